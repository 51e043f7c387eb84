"""The functional groups of the synthetic routes as SMARTS, and a function that counts them in a molecule.

Each SMARTS describes exactly one atom, the one that reacts. So a count is the number of reaction sites, and the same
text can be part of a reaction template (`site`).
"""

from __future__ import annotations

from rdkit import Chem

# The halides that an amine displaces without a catalyst: fluorides ortho or para to nitro or cyano on a carbocycle,
# and chlorides on electron-poor nitrogen heterocycles. Each kind of ring has one halogen, so that a product has one
# origin.
_NITRO = "[N+](=O)[O-]"
ACTIVATED_CARBOCYCLE = f"$(cc{_NITRO}),$(cccc{_NITRO}),$(ccC#N),$(ccccC#N);!$(c:n)"
ACTIVATED_HETEROCYCLE = (
    "$(c(:n):n),$(c:n:c:n),$(c:n:n),$(c(:n):c:n),$(c(:n):s),$(c(:n):o),"
    f"$(c(:n):c{_NITRO}),$(c(:n):c:c:c{_NITRO}),$(c(:n):c:c:cC#N),$(c(:n):c:c:cC(F)(F)F)"
)
_BOC = "NC(=O)OC([CH3])([CH3])[CH3]"
_REMOVABLE = "$([R;$(N([CX4])[CX4])]),$([H1][CX4]);!$(N[CX4]c)"

# Groups that react under most conditions. A template refuses a reactant with one of these groups, unless the template
# names the group (`Template.roles`, `Template.tolerates`).
REACTIVE_GROUPS = {
    "acid": "[CX3;$(C(=O)[OX2H1]);$(C[#6])]",
    "acid_chloride": "[CX3;$(C(=O)Cl);$(C[#6])]",
    "chloroformate": "[CX3;$(C(=O)(Cl)[OX2])]",
    "sulfonyl_chloride": "[SX4;$(S(=O)(=O)Cl)]",
    "isocyanate": "[CX2;$(C(=O)=Nc)]",
    "anhydride": "[OX2;$(O(C=O)C=O)]",
    "aldehyde": "[CX3H1;$(C(=O)c)]",
    "benzyl_bromide": "[CX4H2;$(C(Br)c)]",
    "alkyl_bromide": "[CX4H2;$(CBr);!$(Cc)]",
    "snar_fluoride": f"[c;$(cF);{ACTIVATED_CARBOCYCLE}]",
    "snar_chloride": f"[c;$(cCl);{ACTIVATED_HETEROCYCLE}]",
    "boronic_acid": "[BX3;$(B([OX2H1])[OX2H1])]",
    "phosphonate": "[CX4H2;$(CP(=O)(O)O)]",
    "terminal_alkyne": "[CX2H1;$(C#C)]",
    "azide": "[NX2;$(N(=[N+]=[N-])[#6])]",
    "primary_amine": "[NX3H2;$(N[CX4]);!$(N[CX4]c)]",
    "benzyl_amine": "[NX3H2;$(N[CX4]c)]",
    "ring_amine": "[NX3H1;R;$(N([CX4])[CX4])]",
    "chain_amine": "[NX3H1;!R;$(N([CX4])[CX4])]",
    "aniline": "[NX3H2;$(Nc)]",
    "alkyl_aniline": "[NX3H1;$(N(c)[CX4])]",
    "azole": "[nH]",
    "alcohol": "[OX2H1;$(O[CX4]);!$(O[CH3])]",
    "methanol": "[OX2H1;$(O[CH3])]",
    "phenol": "[OX2H1;$(Oc)]",
    "thiol": "[SX2H1]",
}

# Groups that react only in the reaction that is meant for them. A template may still refuse one (`Template.forbids`).
LATENT_GROUPS = {
    "aryl_bromide": "[c;$(cBr)]",
    # An amine displaces it only with palladium, so the product shows which of the two reactions made it.
    "neutral_bromide": f"[c;$(cBr);!$(c:n);!$(cc{_NITRO});!$(cccc{_NITRO});!$(ccC#N);!$(ccccC#N)]",
    "aryl_iodide": "[c;$(cI)]",
    "nitro": "[$([N+](=O)([O-])c)]",
    "nitrile": "[CX2;$(C(#N)c)]",
    "methyl_ester": "[CX3;$(C(=O)(O[CH3])c)]",
    "ethyl_ester": "[CX3;$(C(=O)(O[CH2][CH3])[CX4,$([CX3]=C)])]",
    "other_ester": "[CX3;$(C(=O)(O[#6])[#6]);!$(C(=O)(O[CH3])c);!$(C(=O)(O[CH2][CH3])[CX4,$([CX3]=C)])]",
    # Boc on a primary or a ring amine. Benzylamines are made from nitriles, and anilines from nitro compounds.
    "boc_amine": f"[NX3;$({_BOC});{_REMOVABLE}]",
    "other_boc": f"[NX3;$({_BOC});!$([{_REMOVABLE}])]",
    "ketone": "[CX3;$(C(=O)(c)[CX4])]",
    "sulfide": "[SX2;$(S(c)[CX4H2])]",
    "sulfonamide": "[NX3H1;$(NS(=O)=O)]",
    "alkyne": "[CX2H0;$(C(#[CX2H0])c)]",
}

GROUPS = {**REACTIVE_GROUPS, **LATENT_GROUPS}
_QUERIES = {name: Chem.MolFromSmarts(smarts) for name, smarts in GROUPS.items()}


def count_groups(molecule: Chem.Mol) -> dict[str, int]:
    """Return the number of sites of each group of `GROUPS` in the molecule. Absent groups are left out."""
    counts = {name: len(molecule.GetSubstructMatches(query)) for name, query in _QUERIES.items()}
    return {name: count for name, count in counts.items() if count}


def site(*groups: str, map_number: int) -> str:
    """Return the SMARTS of a mapped atom, the reacting atom of any of the groups, for use in a reaction template."""
    return f"[{','.join(f'$({GROUPS[group]})' for group in groups)}:{map_number}]"

"""Common names of transformations, recognised from their templates.

A name describes the kind of reaction that the structures show, not whether the reaction works or with which reagents: an amine that replaces
a bromine on a ring is called a Buchwald amination, though some of them need no palladium.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from rdkit import Chem, rdBase

_TERT_BUTYL = "C([C;D1])([C;D1])[C;D1]"
_HALIDE = "[Cl,Br,I]"
# What a nucleophile replaces on carbon: a halide or a sulfonate.
_LEAVING = "[$([Cl,Br,I]),$(OS(=O)=O)]"
# The second nitrogen stands beside or opposite the carbon, as far as a template shows it.
_POOR = "[c;$(c:[#7;a]),$(c:c:c:[#7;a]):1]"

# Names with their reactions from the reactants to the product, without charges. Atoms with the same number are the same atom.
# All bonds that a template makes, breaks or changes must be between atoms that the reaction matches. The first name that fits counts.
NAMES = (
    # first, because these would look like the removal of an acyl group
    ("acid reduction", "O=[C:1][OH:2]>>[CH2:1][OH:2]"),
    ("amide reduction", "O=[C:1][#7:2]>>[C:1][#7:2]"),
    # protecting groups
    ("Boc protection", f"[C:1](=O)OC(=O)O{_TERT_BUTYL}.[#7:2]>>[C:1](=O)[#7:2]"),
    ("Boc removal", f"[#7:1]C(=O)O{_TERT_BUTYL}>>[#7:1]"),
    ("Cbz removal", "[#7:1]C(=O)O[C;D2]c>>[#7:1]"),
    ("Fmoc removal", "[#7:1]C(=O)OCC(c)c>>[#7:1]"),
    ("phthalimide removal", "[#7:1](C(=O)c)C(=O)c>>[#7:1]"),
    ("trifluoroacetamide removal", "[#7:1]C(=O)C(F)(F)F>>[#7:1]"),
    ("carbamate removal", "[#7:1]C(=O)O>>[#7:1]"),
    ("amide hydrolysis", "[#7:1]C(=O)[#6]>>[#7:1]"),
    ("amide hydrolysis", "[#7][C:1]=O>>[C:1](=O)[OH]"),
    ("trityl removal", "[#7,#8,#16:1]C(c)(c)c>>[*:1]"),
    ("THP removal", "[#7,#8:1]C1CCCCO1>>[*:1]"),
    ("SEM removal", "[#7,#8:1]COCC[Si]>>[*:1]"),
    ("MOM removal", "[#8:1]CO[C;D1]>>[#8:1]"),
    ("PMB removal", "[#7,#8,#16:1][C;D2]c1ccc(OC)cc1>>[*:1]"),
    ("acetate removal", "[#8:1]C(=O)[C;D1]>>[OH:1]"),
    ("benzoate removal", "[#8:1]C(=O)c>>[OH:1]"),
    ("methyl ester hydrolysis", "[C;D1][O:1][C:2]=O>>[OH:1][C:2]=O"),
    ("ethyl ester hydrolysis", "[C;D1][C;D2][O:1][C:2]=O>>[OH:1][C:2]=O"),
    ("tert-butyl ester cleavage", f"[C:2](=O)[O:1]{_TERT_BUTYL}>>[OH:1][C:2]=O"),
    ("benzyl ester cleavage", "c[C;D2][O:1][C:2]=O>>[OH:1][C:2]=O"),
    ("ester hydrolysis", "[#6][O:1][C:2]=O>>[OH:1][C:2]=O"),
    ("ester hydrolysis", "[#6]O[C:1]=O>>[C:1](=O)[OH]"),
    ("benzyl ether removal", "[#8:1][C;D2]c>>[#8:1]"),
    ("benzylamine removal", "[#7:1][C;D2]c>>[#7:1]"),
    ("silyl ether removal", "[#8:1][Si]>>[#8:1]"),
    ("desilylation of an alkyne", "[C:1][Si]>>[CH:1]"),
    ("silyl protection", "[Si:1][Cl,O,#7].[O:2]>>[Si:1][O:2]"),
    ("acetal removal", "[C:1](O)O>>[C:1]=O"),
    ("acetal removal", "O[C:1][O:2]C>>[C:1]=[O:2]"),
    ("acetonide removal", "[O:1]C([C;D1])([C;D1])[O:2]>>[OH:1].[OH:2]"),
    ("acetal formation", "[C:1]=O.[O:2].[O:3]>>[O:2][C:1][O:3]"),
    ("demethylation of an aryl ether", "[C;D1][#8:1][c:2]>>[#8:1]~[c:2]"),
    ("ether cleavage", "[#6][O:1][C,c:2]>>[OH:1][C,c:2]"),
    ("sulfonamide cleavage", "[#7:1]S(=O)=O>>[#7:1]"),
    # bonds of nitrogen to carbonyl and sulfonyl groups
    ("amide coupling", "[#6:3][C:1](=O)[O;D1].[#7:2]>>[#6:3][C:1](=O)[#7:2]"),
    ("amide coupling", "[C;H1:1](=O)[O;D1].[#7:2]>>[C:1](=O)[#7:2]"),
    ("amide from an acid chloride", "[#6:3][C:1](=O)[F,Cl,Br].[#7:2]>>[#6:3][C:1](=O)[#7:2]"),
    ("amide from an anhydride", "[#6:3][C:1](=O)OC(=O)[#6].[#7:2]>>[#6:3][C:1](=O)[#7:2]"),
    ("amide from an activated ester", "[#6:3][C:1](=O)[$(O[#7]),$(n)].[#7:2]>>[#6:3][C:1](=O)[#7:2]"),
    ("amide from an ester", "[#6:3][C:1](=O)O[#6].[#7:2]>>[#6:3][C:1](=O)[#7:2]"),
    ("carbamate from a chloroformate", "[#8:3][C:1](=O)Cl.[#7:2]>>[#8:3][C:1](=O)[#7:2]"),
    ("carbamate formation", "[#8:3][C:1](=O)[O,#7].[#7:2]>>[#8:3][C:1](=O)[#7:2]"),
    ("urea from a carbamoyl chloride", "[#7:3][C:1](=O)Cl.[#7:2]>>[#7:3][C:1](=O)[#7:2]"),
    ("urea from a carbamate", "[#7:3][C:1](=O)[O,#7].[#7:2]>>[#7:3][C:1](=O)[#7:2]"),
    ("urea from an isocyanate", "[#7:3]=[C:1]=O.[#7:2]>>[#7:3][C:1](=O)[#7:2]"),
    ("thiourea from an isothiocyanate", "[#7:3]=[C:1]=S.[#7:2]>>[#7:3][C:1](=S)[#7:2]"),
    ("carbamate from an isocyanate", "[#7:3]=[C:1]=O.[#8:2]>>[#7:3][C:1](=O)[#8:2]"),
    ("sulfonamide formation", "[S:1](=O)(=O)[F,Cl].[#7:2]>>[S:1](=O)(=O)[#7:2]"),
    ("sulfonate ester formation", "[S:1](=O)(=O)[F,Cl,O].[#8:2]>>[S:1](=O)(=O)[#8:2]"),
    # esters
    ("esterification", "[C:1](=O)[O;D1].[#8:2]>>[C:1](=O)[#8:2]"),
    ("esterification", "[O;D1][C:1].[O:2][C:3]=O>>[C:1][O:2][C:3]=O"),
    ("methyl ester formation", "[$([Cl,Br,I,#7]),$(OS)][CH3:1].[O:2][C:3]=O>>[CH3:1][O:2][C:3]=O"),
    ("esterification by alkylation", f"{_LEAVING}[C:1].[O:2][C:3]=O>>[C:1][O:2][C:3]=O"),
    ("ester from an acid chloride", "[C:1](=O)Cl.[#8:2]>>[C:1](=O)[#8:2]"),
    ("ester from an anhydride", "[C:1](=O)OC=O.[#8:2]>>[C:1](=O)[#8:2]"),
    ("transesterification", "[C:1](=O)O[#6].[#8:2]>>[C:1](=O)[#8:2]"),
    # alkylation of heteroatoms
    ("azide formation", f"{_LEAVING}[C:1].[#7:2]~[#7:3]~[#7:4]>>[C:1][#7:2]~[#7:3]~[#7:4]"),
    ("O-methylation", f"{_LEAVING}[CH3:1].[#8:2]>>[CH3:1][#8:2]"),
    ("N-methylation", f"{_LEAVING}[CH3:1].[#7:2]>>[CH3:1][#7:2]"),
    ("N-methylation with formaldehyde", "O=[CH2:1].[#7:2]>>[CH3:1][#7:2]"),
    ("Mitsunobu reaction", "[O;D1][C;!$(C=*):1].[#8:2][c:3]>>[C:1][#8:2][c:3]"),
    ("Mitsunobu reaction", "[O;D1][C;!$(C=*):1].[#7:2]>>[C:1][#7:2]"),
    ("Mitsunobu reaction", "[O;D1][C;!$(C=*):1].[#8;a,$(O-c):2]>>[C:1][#8:2]"),
    ("Williamson ether formation", f"{_LEAVING}[C;!$(C=*):1].[#8:2]>>[C:1][#8:2]"),
    ("N-alkylation", f"{_LEAVING}[C;!$(C=[O,N,S]):1].[#7:2]>>[C:1][#7:2]"),
    ("thioether formation", f"{_LEAVING}[C;!$(C=*):1].[#16:2]>>[C:1][#16:2]"),
    ("epoxide opening by an amine", "[C:1]1[C:4][O:3]1.[#7:2]>>[#7:2][C:1][C:4][O:3]"),
    ("epoxide opening by an alcohol or phenol", "[C:1]1[C:4][O:3]1.[#8:2]>>[#8:2][C:1][C:4][O:3]"),
    ("reductive amination", "[C:1]=O.[#7:2]>>[C:1]-[#7:2]"),
    ("addition to an enol ether", "[C;$(C-O):1]=[C:3].[#7,#8:2]>>[*:2][C:1]-[C:3]"),
    ("aza-Michael addition", "[C:1]=[C:3].[#7:2]>>[#7:2][C:1]-[C:3]"),
    ("amidoxime formation", "[C:1]#[N:3].[#7:2][#8:4]>>[#8:4][#7:2]~[C:1]~[N:3]"),
    ("amidine formation", "[C:1]#[N:3].[#7:2]>>[#7:2]~[C:1]~[N:3]"),
    # bonds of heteroatoms to rings
    ("SNAr of an aryl fluoride", "F[c:1].[#7:2]>>[c:1][#7:2]"),
    ("SNAr of a heteroaryl chloride", f"Cl{_POOR}.[#7:2]>>[c:1][#7:2]"),
    ("Buchwald amination", f"{_LEAVING}[c:1].[N:2]>>[c:1][N:2]"),
    ("N-arylation", f"{_LEAVING}[c:1].[#7:2]>>[c:1][#7:2]"),
    ("Chan-Lam coupling", "B[c:1].[#7,#8:2]>>[c:1][*:2]"),
    ("SNAr of a sulfone", "S(=O)[c:1].[#7,#8:2]>>[c:1][*:2]"),
    ("aryl ether formation by SNAr", "F[c:1].[#8:2]>>[c:1][#8:2]"),
    ("aryl ether formation by SNAr", f"Cl{_POOR}.[#8:2]>>[c:1][#8:2]"),
    ("aryl ether formation", f"{_HALIDE}[c:1].[#8:2]>>[c:1][#8:2]"),
    ("aryl thioether formation", "[F,Cl,Br,I][c:1].[#16:2]>>[c:1][#16:2]"),
    # bonds between carbon atoms
    ("Suzuki coupling", f"{_LEAVING}[#6:1].B[#6:2]>>[#6:1][#6:2]"),
    ("Miyaura borylation", f"{_LEAVING}[c:1].B[B:2]>>[c:1][B:2]"),
    ("borylation", f"{_LEAVING}[c:1].[B:2]O>>[c:1][B:2]"),
    ("borylation", f"{_LEAVING}[c:1].[B:2]>>[c:1][B:2]"),
    ("Sonogashira coupling", f"{_LEAVING}[c,C:1].[C:2]#[C:3]>>[c,C:1][C:2]#[C:3]"),
    ("Stille coupling", f"{_LEAVING}[#6:1].[Sn][#6:2]>>[#6:1][#6:2]"),
    ("Negishi coupling", f"{_LEAVING}[#6:1].[Zn][#6:2]>>[#6:1][#6:2]"),
    ("Heck reaction", f"{_LEAVING}[c:1].[C:2]=[C:3]>>[c:1][C:2]=[C:3]"),
    ("cyanation", "[$([F,Cl,Br,I]),$(OS(=O)=O)][#6:1].[C:2]#[N:3]>>[#6:1][C:2]#[N:3]"),
    ("cyanation", f"{_LEAVING}[#6:1].[Cu,Zn,K,Na][C:2]#[N:3]>>[#6:1][C:2]#[N:3]"),
    ("Friedel-Crafts acylation", "[C:1](=O)[Cl,O].[c:2]>>[C:1](=O)[c:2]"),
    ("Weinreb ketone synthesis", "[C:1](=O)N(O)C.[#6:2]>>[C:1](=O)[#6:2]"),
    ("formylation", "[CH:1](=O)[#7].[c:2]>>[CH:1](=O)[c:2]"),
    ("formylation", "[CH:1](=O)[#7].[Br,I][c:2]>>[CH:1](=O)[c:2]"),
    ("Grignard addition", "[C:1]=[O:2].[Mg][#6:3]>>[#6:3][C:1]-[O:2]"),
    ("organolithium addition", "[C:1]=[O:2].[Li][#6:3]>>[#6:3][C:1]-[O:2]"),
    ("organometallic addition to a carbonyl group", "[C:1]=[O:2].[Br,I][#6:3]>>[#6:3][C:1]-[O:2]"),
    ("aldol addition", "[C:1]=[O:2].[C:3]>>[C:3][C:1]-[O:2]"),
    ("Horner-Wadsworth-Emmons olefination", "[C:1]=O.P(=O)(O)[C:2]>>[C:1]=[C:2]"),
    ("Wittig reaction", "[C:1]=O.P~[C:2]>>[C:1]=[C:2]"),
    ("Knoevenagel or aldol condensation", "[C:1]=O.[C:2]>>[C:1]=[C:2]"),
    ("Michael addition", "[C:1]=[C:3].[C:2]>>[C:2][C:1]-[C:3]"),
    ("C-alkylation", f"{_LEAVING}[C;!$(C=*):1].[C:2]>>[C:1][C:2]"),
    # rings
    ("azide-alkyne cycloaddition", "[#7:1]~[#7:2]~[#7:3].[C:4]#[C:5]>>[#7:1]1:[#7:2]:[#7:3]:[#6:4]:[#6:5]:1"),
    ("tetrazole formation", "[C:1]#[N:2].[#7:3]~[#7:4]~[#7:5]>>[#6:1]1:[#7:2]:[#7:5]:[#7:4]:[#7:3]:1"),
    ("tetrazole formation", "[C:1]#[N:2].[#7:3]~[#7:4]~[#7:5]>>[#6:1]1:[#7:2]:[#7:3]:[#7:4]:[#7:5]:1"),
    # reductions
    ("nitro reduction", "[#7:1](=O)O>>[NH2:1]"),
    ("nitrile reduction", "[C:1]#[N:2]>>[CH2:1][NH2:2]"),
    ("azide reduction", "[#7:1]~[#7]~[#7]>>[NH2:1]"),
    ("aldehyde reduction", "[CH:1]=[O:2]>>[CH2:1][OH:2]"),
    ("ketone reduction", "[C;H0:1]=[O:2]>>[CH:1][OH:2]"),
    ("ester reduction", "O[C:1]=[O:2]>>[CH2:1][OH:2]"),
    ("ester reduction", "O=[C:1][O:2]>>[CH2:1][OH:2]"),
    ("carbonyl to methylene reduction", "[C:1]=O>>[CH2:1]"),
    ("hydrodehalogenation", f"{_HALIDE}[#6:1]>>[#6;!H0:1]"),
    ("alkyne hydrogenation", "[C:1]#[C:2]>>[C:1]~[C:2]"),
    ("alkene hydrogenation", "[C:1]=[C:2]>>[C:1]-[C:2]"),
    ("imine reduction", "[C:1]=[#7:2]>>[C:1]-[#7:2]"),
    # oxidations
    ("alcohol oxidation", "[C:1]-[OH:2]>>[C:1]=[O:2]"),
    ("sulfide or sulfoxide oxidation", "[S:1].[O:2]>>[S:1]=[O:2]"),
    ("sulfide or sulfoxide oxidation", "[S:1].[O:2].[O:3]>>[S:1](=[O:2])=[O:3]"),
    ("sulfide or sulfoxide oxidation", "[S:1].O[O:2]>>[S:1]=[O:2]"),
    ("N-oxide formation", "[n:1].[O:2]>>[n:1][O:2]"),
    ("N-oxide formation", "[n:1].O[O:2]>>[n:1][O:2]"),
    ("epoxidation", "[C:1]=[C:2].[O:3]>>[C:1]1-[C:2][O:3]1"),
    # functional groups
    ("oxime formation", "[C:1]=O.[N:2][O:3]>>[C:1]=[N:2][O:3]"),
    ("hydrazone formation", "[C:1]=O.[N:2][N:3]>>[C:1]=[N:2][N:3]"),
    ("imine formation", "[C:1]=O.[N:2]>>[C:1]=[N:2]"),
    ("acid chloride formation", "[O;D1][C:1]=O.[Cl:2]~[C,S,P]>>[C:1](=O)[Cl:2]"),
    ("bromination with NBS", "[Br:1]N.[C:2]>>[Br:1][C:2]"),
    ("aromatic bromination with NBS", "[Br:1]N.[c:2]>>[Br:1][c:2]"),
    ("chlorination with NCS", "[Cl:1]N.[#6:2]>>[Cl:1][#6:2]"),
    ("iodination with NIS", "[I:1]N.[#6:2]>>[I:1][#6:2]"),
    ("bromination", "[Br:1]Br.[#6:2]>>[Br:1][#6:2]"),
    ("iodination", "[I:1]I.[#6:2]>>[I:1][#6:2]"),
    ("chlorination by thionyl chloride", "[Cl:1]S(=O)Cl.O[C:2]>>[Cl:1][C:2]"),
    ("chlorination by phosphoryl chloride", "[Cl:1]P.[O;D1]~[#6:2]>>[Cl:1][#6:2]"),
    ("bromination of an alcohol", "[Br:1].[O;D1][C:2]>>[Br:1][C:2]"),
    ("bromination of an alcohol", "[Br:1]~[C,P,S].[O;D1][C:2]>>[Br:1][C:2]"),
    ("chlorination of an alcohol", "[Cl:1].[O;D1][C:2]>>[Cl:1][C:2]"),
    ("Sandmeyer reaction", "[#7][c:1].[Cl,Br,I:2]>>[c:1][*:2]"),
    ("halogen exchange", f"{_LEAVING}[#6:1].[F,Cl,Br,I:2]>>[#6:1][*:2]"),
    ("fluorination", "O[C:1].[F:2]>>[C:1][F:2]"),
    ("nitration", "[#7:1](=O)(O)O.[c:2]>>[#7:1](=O)(O)[c:2]"),
    ("amide dehydration", "O=[C:1][N:2]>>[C:1]#[N:2]"),
)  # fmt: skip


@cache
def common_name(smarts: str) -> str | None:
    """
    Return the common name of a transformation.

    Args:
        smarts (`str`):
            Its template from the product to the reactants, as rdchiral writes it.

    Returns:
        `str` or None: the first of `NAMES` whose reaction the template contains, with all bonds that change. None if there is none.
    """
    with rdBase.BlockLogs():
        product, reactants = (_molecule(side) for side in smarts.split(">>"))
    before_bonds, after_bonds = _bonds(reactants), _bonds(product)
    broken = {key: atoms for key, (atoms, kind) in before_bonds.items() if after_bonds.get(key, ("", ""))[1] != kind}
    formed = {key: atoms for key, (atoms, kind) in after_bonds.items() if before_bonds.get(key, ("", ""))[1] != kind}
    new = len(after_bonds.keys() - before_bonds.keys())
    for name, used, made in _reactions():
        if new != len(_numbers(made) - _numbers(used)):
            continue
        for before in _places(reactants, used):
            if not all(set(bond) <= set(before) for bond in broken.values()):
                continue
            numbers = {number: atom.GetAtomMapNum() for number, atom in _numbered(reactants, used, before)}
            for after in _places(product, made):
                same = all(numbers[number] == atom.GetAtomMapNum() for number, atom in _numbered(product, made, after))
                if same and all(set(bond) <= set(after) for bond in formed.values()):
                    return name
    return None


@cache
def _reactions() -> list[tuple[str, Chem.Mol, Chem.Mol]]:
    """The names with the patterns of the reactants and of the product."""
    found = []
    for name, reaction in NAMES:
        used, made = (Chem.MolFromSmarts(side) for side in reaction.split(">>"))
        found.append((name, used, made))
    return found


def _molecule(smarts: str) -> Chem.Mol:
    """One side of a template as a molecule without charges, whose atoms have the hydrogens that the template gives them."""
    # rdchiral puts several parts of one molecule into parentheses, which SMARTS reads as a condition
    pattern = Chem.MolFromSmarts(re.sub(r"^\(([^()]*\..*)\)$", r"\1", smarts))
    found = Chem.RWMol()
    for atom in pattern.GetAtoms():
        plain = Chem.Atom(atom.GetAtomicNum())
        words = atom.GetSmarts()
        plain.SetIsAromatic(atom.GetIsAromatic() or "&a" in words)
        plain.SetAtomMapNum(atom.GetAtomMapNum())
        plain.SetNoImplicit(True)
        hydrogens = re.search(r"(?<=[A-Za-z@;&])H(\d?)", words)
        plain.SetNumExplicitHs(int(hydrogens[1] or 1) if hydrogens else 0)
        found.AddAtom(plain)
    for bond in pattern.GetBonds():
        kind = bond.GetBondType()
        found.AddBond(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), kind)
        found.GetBondBetweenAtoms(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()).SetIsAromatic(
            kind == Chem.BondType.AROMATIC
        )
    found.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(found)
    return found.GetMol()


def _numbers(pattern: Chem.Mol) -> set[tuple[int, ...]]:
    """The bonds between numbered atoms, by the numbers."""
    return {key for key in _bonds(pattern) if min(key) > 0}


def _bonds(molecule: Chem.Mol) -> dict[tuple[int, ...], tuple[tuple[int, int], Chem.BondType]]:
    """The bonds between numbered atoms, and from numbered atoms to those that leave, by the numbers and by the atom that leaves."""
    found = {}
    for bond in molecule.GetBonds():
        ends = bond.GetBeginAtom(), bond.GetEndAtom()
        numbers = [atom.GetAtomMapNum() for atom in ends]
        if not any(numbers):
            continue
        leaving = [-1 - atom.GetIdx() for atom in ends if not atom.GetAtomMapNum()]
        key = tuple(sorted([*filter(None, numbers), *leaving]))
        found[key] = ((ends[0].GetIdx(), ends[1].GetIdx()), bond.GetBondType())
    return found


def _places(molecule: Chem.Mol, pattern: Chem.Mol) -> Iterator[tuple[int, ...]]:
    yield from molecule.GetSubstructMatches(pattern, uniquify=False, maxMatches=200)


def _numbered(molecule: Chem.Mol, pattern: Chem.Mol, place: tuple[int, ...]) -> Iterator[tuple[int, Chem.Atom]]:
    """The atoms of a molecule at the numbered atoms of a pattern, with these numbers."""
    for atom, index in zip(pattern.GetAtoms(), place, strict=True):
        if atom.GetAtomMapNum():
            yield atom.GetAtomMapNum(), molecule.GetAtomWithIdx(index)

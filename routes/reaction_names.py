"""Names of reactions. A reaction has the name of a disconnection that takes its product apart into its very reactants; all
other reactions have none.

A name says what kind of reaction the structures show. It does not say that the reaction works, and not with which reagents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from rdkit import Chem
from rdkit.Chem import rdChemReactions

from .files.formats import made, reaction_smiles
from .molecules import canonical_smiles
from .plans import Candidate, Plan
from .tree import Route

# The number of products, and of reactions, whose names a process keeps.
_PRODUCTS, _REACTIONS = 1 << 12, 1 << 16

# The carbons whose halide an amine displaces without a catalyst: those of fluorides ortho or para to nitro or cyano on a
# carbocycle, and those of chlorides on electron-poor nitrogen heterocycles.
_POOR_CARBOCYCLE = "$(cc[N+](=O)[O-]),$(cccc[N+](=O)[O-]),$(ccC#N),$(ccccC#N);!$(c:n)"
_POOR_HETEROCYCLE = (
    "$(c(:n):n),$(c:n:c:n),$(c:n:n),$(c(:n):c:n),$(c(:n):s),$(c(:n):o),$(c(:n):c[N+](=O)[O-]),"
    "$(c(:n):c:c:c[N+](=O)[O-]),$(c(:n):c:c:cC#N),$(c(:n):c:c:cC(F)(F)F)"
)
_UREA = "[CX3:1](=[O:2])(!@-[NX3H1;$(Nc):3])"
_FREE_AMINE = "[$([NX3H2;$(N[CX4]);!$(N[CX4]c)]),$([NX3H1;R;$(N([CX4])[CX4])]):1]"
_BOC = "C(=O)(OC(C)(C)C)O[C:2](=[O:3])[O:4][C:5](C)(C)C"

# The disconnections as reaction SMARTS from the product to the reactants. Where several give the same reactants, the first
# names the reaction: changes of a functional group come first, then bonds between aromatic rings and to alkynes, then other
# bonds, then protections.
DISCONNECTIONS = {
    "methyl ester hydrolysis": "[CX3;$(Cc):1](=[O:2])[OX2H1:3]>>[C:1](=[O:2])[O:3]C",
    "ethyl ester hydrolysis": "[CX3;$(C[CX4]),$(C[CX3]=C):1](=[O:2])[OX2H1:3]>>[C:1](=[O:2])[O:3]CC",
    "nitro reduction": "[c:1][NX3H2]>>[c:1][N+](=O)[O-]",
    "nitrile reduction": "[CX4H2;$(Cc):1]-[NX3H2:2]>>[C:1]#[N:2]",
    "Boc removal": f"{_FREE_AMINE}>>[N:1]C(=O)OC(C)(C)C",
    "carbonyl reduction": "[CX4;H1,H2;$(Cc):1]-[OX2H1:2]>>[C:1]=[O:2]",
    "sulfide oxidation": "[SX4;$(S(c)[CX4H2]):1](=O)=O>>[S:1]",
    "Suzuki coupling": "[c:1]!@-[c:2]>>[c:1]Br.[c:2]B(O)O",
    "Sonogashira coupling": "[c:1]!@-[CX2;$(C#[CX2H0]):2]>>[c:1]I.[C:2]",
    "azide-alkyne cycloaddition": "[#6:6]-!@[n:1]1[n:2][n:3][c:5][cH:4]1>>[#6:6]-[N:1]=[N+:2]=[N-:3].[CH:4]#[C:5]",
    "Buchwald amination": "[c:1]!@-[NX3;R;$(N([CX4])[CX4]):2]>>[c:1]Br.[N:2]",
    "urea formation": f"{_UREA}!@-[NX3;$(N[CX4]):4]>>[C:1](=[O:2])=[N:3].[N:4]",
    "carbamate from isocyanate": f"{_UREA}!@-[OX2;$(O[CX4]):4]>>[C:1](=[O:2])=[N:3].[O:4]",
    "carbamate from chloroformate": "[CX3:1](=[O:2])([OX2:3])!@-[NX3;$(N[CX4]):4]>>[C:1](=[O:2])([O:3])Cl.[N:4]",
    "sulfonamide formation": "[SX4:1](=[O:2])(=[O:3])!@-[NX3:4]>>[S:1](=[O:2])(=[O:3])Cl.[N:4]",
    "amide coupling": "[CX3;$(C[#6]):1](=[O:2])!@-[NX3:3]>>[C:1](=[O:2])O.[N:3]",
    "phenol acylation": "[CX3;$(C[#6]):1](=[O:2])!@-[OX2;$(Oc):3]>>[C:1](=[O:2])Cl.[O:3]",
    "esterification": "[CX3;$(C[#6]):1](=[O:2])!@-[OX2;$(O[CX4]);!$(O[CH2][CH3]):3]>>[C:1](=[O:2])O.[O:3]",
    "Horner-Wadsworth-Emmons olefination": "[c:1][CX3H1:2]=[CX3H1:3][CX3:4](=[O:5])[OX2:6]>>[c:1][CH:2]=O.[CH2:3](P(=O)(OCC)OCC)[C:4](=[O:5])[O:6]",
    "reductive amination": "[CX4H2;$(Cc):1]!@-[NX3:2]>>[CH:1]=O.[N:2]",
    "N-alkylation": "[NX3;R:1]!@-[CX4H2;!$(Cc):2]>>[N:1].[C:2]Br",
    "Williamson ether formation": "[OX2;$(Oc):1]!@-[CX4H2:2]>>[O:1].[C:2]Br",
    "thioether formation": "[SX2;$(Sc):1]!@-[CX4H2:2]>>[S:1].[C:2]Br",
    "SNAr of an aryl fluoride": f"[c;{_POOR_CARBOCYCLE}:1]!@-[NX3:2]>>[c:1]F.[N:2]",
    "SNAr of a heteroaryl chloride": f"[c;{_POOR_HETEROCYCLE}:1]!@-[NX3:2]>>[c:1]Cl.[N:2]",
    "Boc protection": f"[NX3:1]!@-[CX3:2](=[O:3])[O:4][C:5]([CH3])([CH3])[CH3]>>[N:1].{_BOC}",
    "methyl ester formation": "[CX3;$(Cc):1](=[O:2])!@-[OX2:4][CH3:3]>>[C:1](=[O:2])O.[CH3:3][OH:4]",
}


def reaction_name(product: str, reactants: Iterable[str]) -> str | None:
    """
    Return the name of a reaction. What was computed for a product is remembered.

    Args:
        product (`str`):
            The SMILES of the product.
        reactants (`Iterable[str]`):
            The SMILES of the reactants, in any order.

    Returns:
        `str` or None: the name of the first of `DISCONNECTIONS` that gives these reactants, compared as canonical SMILES with
        their stereochemistry. None if there is none, or RDKit cannot read a molecule.
    """
    return _name(product, tuple(reactants))


def step_names(route: Route) -> list[dict[str, Any]]:
    """
    Return the reactions of a route with their names, each after the reactions that make its reactants.

    Args:
        route ([`Route`]):
            The route.

    Returns:
        `list[dict[str, Any]]`: for each reaction, in the order of `files.formats.made`, which is the order of
        the steps in a picture, `{"step": 1, "reaction": "reactant.reactant>>product", "name": "amide coupling"}`. The
        `name` is None for a reaction of another kind.
    """
    return [
        {"step": step, "reaction": reaction_smiles(part), "name": route_name(part)}
        for step, part in enumerate(made(route), 1)
    ]


def route_name(route: Route) -> str | None:
    """Return the name of the last reaction of a route, None for a single molecule and as in [`reaction_name`]."""
    return reaction_name(route.smiles, [child.smiles for child in route.children]) if route.children else None


def candidate_with_names(candidate: Candidate) -> dict[str, Any]:
    """Return `Candidate.to_dict()` with the field `reactions`: [`step_names`] of its route, None without a route."""
    return candidate.to_dict() | {"reactions": None if candidate.route is None else step_names(candidate.route)}


def plan_with_names(plan: Plan) -> dict[str, Any]:
    """Return `Plan.to_dict()`, each candidate as [`candidate_with_names`] gives it. `Plan.from_dict` reads it."""
    return plan.to_dict() | {"candidates": [candidate_with_names(candidate) for candidate in plan.candidates]}


@lru_cache(_REACTIONS)
def _name(product: str, reactants: tuple[str, ...]) -> str | None:
    try:
        parts = tuple(sorted(canonical_smiles(smiles) for smiles in reactants))
        return _disconnections(canonical_smiles(product)).get(parts)
    except ValueError:
        return None


@lru_cache(_PRODUCTS)
def _disconnections(product: str) -> Mapping[tuple[str, ...], str]:
    """Return the sets of reactants that a product is taken apart into, each sorted, and the name of the first way to do so."""
    molecule = Chem.MolFromSmiles(product)
    found: dict[tuple[str, ...], str] = {}
    for name, reaction in _reactions().items():
        for fragments in reaction.RunReactants((molecule,)):
            try:
                parts = sorted(canonical_smiles(Chem.MolToSmiles(fragment)) for fragment in fragments)
            except ValueError:  # an atom with too many bonds
                continue
            found.setdefault(tuple(parts), name)
    return found


@cache
def _reactions() -> dict[str, rdChemReactions.ChemicalReaction]:
    reactions = {name: rdChemReactions.ReactionFromSmarts(smarts) for name, smarts in DISCONNECTIONS.items()}
    for reaction in reactions.values():
        reaction.Initialize()
    return reactions

"""Judges a single step: whether its transformation is recorded, reasons against it, and remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rdkit import Chem

from ..molecules import KNOWN, Molecule, is_among, missing_atoms, read_molecule
from ..tree import Route
from .transformations import Example, Library, joined, shipped_library, without_stereo

State = Literal["precedented", "no precedent", "fails"]

# The classes of USPTO-50K (Schneider et al. 2016, doi 10.1021/acs.jcim.6b00564).
CLASSES = {
    1: "heteroatom alkylation and arylation",
    2: "acylation",
    3: "C-C bond formation",
    4: "heterocycle formation",
    5: "protection",
    6: "deprotection",
    7: "reduction",
    8: "oxidation",
    9: "functional group interconversion",
    10: "functional group addition",
}

# Reagents that routes leave out, by the heavy atoms that they supply to a product.
REAGENTS: dict[str, Mapping[str, int]] = {
    "water, oxygen or an oxidant": {"O": 1},
    "two oxygen atoms of an oxidant": {"O": 2},
    "a chlorinating agent": {"Cl": 1},
    "a brominating agent": {"Br": 1},
    "an iodinating agent": {"I": 1},
    "a fluorinating agent": {"F": 1},
    "ammonia or an azide": {"N": 1},
    "a nitrating agent": {"N": 1, "O": 2},
    "an azide": {"N": 3},
    "hydroxylamine": {"N": 1, "O": 1},
    "hydrazine": {"N": 2},
    "a cyanide": {"C": 1, "N": 1},
    "a methylating agent or formaldehyde": {"C": 1},
    "carbon monoxide or DMF": {"C": 1, "O": 1},
    "carbon dioxide": {"C": 1, "O": 2},
    "a sulfide or sulfur": {"S": 1},
    "sulfur dioxide or chlorosulfonic acid": {"S": 1, "O": 2},
    "a sulfonating agent": {"S": 1, "O": 3},
    "phosgene or its substitutes": {"C": 1, "O": 1, "Cl": 1},
    "boric acid or a borate": {"B": 1, "O": 2},
    "bis(pinacolato)diboron": {"B": 1, "C": 6, "O": 2},
    "ethanol or an acetylating agent": {"C": 2, "O": 1},
    "Boc anhydride": {"C": 5, "O": 2},
    "a trifluoromethylating agent": {"C": 1, "F": 3},
}

# The name of a step whose product differs from a reactant only in its stereochemistry.
_STEREO_ALONE = "change of stereochemistry"
# Unproductive steps besides protections: the same synthetic problem remains after them.
_MOVES = frozenset({_STEREO_ALONE, "acetal formation", "Boc protection", "silyl protection", "transesterification"})
# Two steps that convert one ester into another: cleavage to the acid, then esterification.
_ESTER_CLEAVAGES = frozenset(
    {
        "methyl ester hydrolysis",
        "ethyl ester hydrolysis",
        "ester hydrolysis",
        "benzyl ester cleavage",
        "tert-butyl ester cleavage",
    }
)
_ESTER_FORMATIONS = frozenset({"esterification", "methyl ester formation", "esterification by alkylation"})


@dataclass(frozen=True)
class Judgement:
    """
    The judgement of a step.

    Args:
        state (`str`):
            `"precedented"`: a recorded reaction has the same transformation, with the same neighbours of the changed
            atoms and the same stereochemistry. `"fails"`: the step cannot work as written. `"no precedent"`: neither.
        precedents (`int`):
            The number of recorded reactions with the same transformation.
        examples (`tuple[Example, ...]`):
            A few of these reactions.
        reaction_class (`str` or None):
            The most common class of USPTO-50K among them.
        name (`str` or None):
            The common name of the transformation.
        reason (`str` or None):
            Why the step fails.
        remarks (`tuple[str, ...]`):
            Oddities of the step.
    """

    state: State
    precedents: int = 0
    examples: tuple[Example, ...] = ()
    reaction_class: str | None = None
    name: str | None = None
    reason: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str | None:
        """The title of the step: its name, else its class, else None."""
        return self.name or self.reaction_class

    @property
    def moves(self) -> bool:
        """Whether the step is unproductive: a protection, an epimerisation, or an ester made from another ester."""
        return self.name in _MOVES or self.reaction_class == CLASSES[5]


def judge(product: str, reactants: Sequence[str], library: Library | None = None) -> Judgement:
    """
    Judge a step of a synthesis. Recent results are cached.

    Args:
        product (`str`):
            SMILES of the product.
        reactants (`Sequence[str]`):
            SMILES of the reactants, in any order. Reagents may be left out.
        library ([`Library`], *optional*):
            The recorded transformations. Defaults to the included ones.

    Returns:
        [`Judgement`]
    """
    return _judge(product, tuple(reactants), library or shipped_library())


def judge_route(route: Route) -> list[Judgement]:
    """Return the judgement of each reaction of a route, in the order of `Route.steps`.

    A step also fails if one of its reactants is made from its product later in the route.
    """
    return [
        judge_step(step) if reason is None else Judgement("fails", reason=reason) for step, reason in _checked(route)
    ]


def count_moves(route: Route, judgements: Sequence[Judgement]) -> int:
    """Return the number of unproductive steps of a route. An ester that is made from the acid of another ester counts as one.

    Args:
        route: the route.
        judgements: the judgements of its reactions, in the order of `Route.steps`.
    """
    steps = list(route.steps())
    cleaved = {step.smiles for step, one in zip(steps, judgements, strict=True) if one.name in _ESTER_CLEAVAGES}
    swaps = sum(
        one.name in _ESTER_FORMATIONS and any(child.smiles in cleaved for child in step.children)
        for step, one in zip(steps, judgements, strict=True)
    )
    return sum(one.moves for one in judgements) + swaps


def why_it_fails(route: Route) -> str | None:
    """Return the distinct reasons why steps of a route fail, or None. This is fast and needs no library."""
    return "; ".join(dict.fromkeys(reason for _, reason in _checked(route) if reason)) or None


def _checked(route: Route, above: tuple[str, ...] = ()) -> Iterator[tuple[Route, str | None]]:
    """Yield the steps of a route, each with the reason why it fails. `above` are made from the route's target."""
    if not route.children:
        return
    for child in route.children:
        yield from _checked(child, (*above, route.smiles))
    yield route, _against(route.smiles, [child.smiles for child in route.children], above)


def judge_step(route: Route) -> Judgement:
    """Return the judgement of the last reaction of a route."""
    return judge(route.smiles, [child.smiles for child in route.children])


@lru_cache(KNOWN)
def _judge(product: str, reactants: tuple[str, ...], library: Library) -> Judgement:
    reason = _against(product, reactants)
    if reason is not None:
        return Judgement("fails", reason=reason)
    made, *used = (one for one in map(read_molecule, (product, *reactants)) if one is not None)
    flat = without_stereo(made.canonical), [without_stereo(one.canonical) for one in used]
    name = _STEREO_ALONE if flat[0] in flat[1] else None
    found = library.find(product, reactants)
    if found is not None:
        kind = None if found.reaction_class is None else CLASSES[found.reaction_class]
        return Judgement("precedented", found.count, found.examples, kind, name or found.name)
    supplier = _supplier(missing_atoms(made.atoms, used))
    remarks = [] if supplier is None else [f"reagent not drawn: {supplier}"]
    if (flat[0], joined(flat[1])) != (made.canonical, joined(one.canonical for one in used)):
        found = library.find(*flat)
        if found is not None:
            remarks.append(
                f"the transformation is recorded {found.count} times, but here a stereocentre or double bond is inverted or newly defined"
            )
    remarks += _remarks(made, used)
    return Judgement("no precedent", name=name, remarks=tuple(remarks))


def _against(product: str, reactants: Sequence[str], above: Iterable[str] = ()) -> str | None:
    """Return the reason why a step fails, or None. `above` are the molecules that are made from its product."""
    molecules = {smiles: read_molecule(smiles) for smiles in (product, *reactants)}
    made, *used = (molecules[smiles] for smiles in (product, *reactants))
    unread = [smiles for smiles, one in molecules.items() if one is None]
    if unread or made is None or not used:
        return ", ".join(f"{smiles} cannot be read" for smiles in unread) or "no reactant"
    read = [one for one in used if one is not None]
    path = [made, *filter(None, map(read_molecule, above))]
    for one in read:
        if is_among(one, path):
            return f"{one.canonical} is made from itself"
    missing = missing_atoms(made.atoms, read)
    if not missing or (
        _supplier(missing) is not None and missing != made.atoms
    ):  # a reagent does not supply all of a product
        return None
    return ", ".join(f"{count} {element}" for element, count in missing.items()) + " missing"


def _supplier(missing: Mapping[str, int]) -> str | None:
    """Return the reagent that supplies exactly these atoms, or None."""
    return next((name for name, atoms in REAGENTS.items() if atoms == missing), None)


def _remarks(made: Molecule, used: list[Molecule]) -> Iterator[str]:
    counts = Counter(one.canonical for one in used)
    product = Chem.MolFromSmiles(made.canonical)
    molecules = [Chem.MolFromSmiles(one.canonical) for one in used]
    for smiles, count in counts.items():
        rest = [one for one in used if one.canonical != smiles]
        if count > 1:
            yield f"{smiles} is used {count} times"
        elif rest and not missing_atoms(made.atoms, rest):
            yield f"no atom of {smiles} is needed"
    for one, molecule in zip(used, molecules, strict=True):
        if len(used) > 1 and molecule.HasSubstructMatch(product):
            yield f"{one.canonical} contains the whole product"
    isotopes = _isotopes([product]), _isotopes(molecules)
    if isotopes[0] - isotopes[1]:
        yield f"isotopes not in the reactants: {', '.join(sorted(isotopes[0] - isotopes[1]))}"
    if isotopes[1] - isotopes[0]:
        yield f"isotopes not in the product: {', '.join(sorted(isotopes[1] - isotopes[0]))}"
    moved = _halogens([product]) - _halogens(molecules)
    for symbol in sorted({symbol for symbol, _ in moved}):
        if sum(one.atoms.get(symbol, 0) for one in used) >= made.atoms[symbol]:
            yield f"{symbol} of a leaving group is kept at another position"


def _isotopes(molecules: Sequence[Chem.Mol]) -> Counter[str]:
    return Counter(
        f"{atom.GetIsotope()}{atom.GetSymbol()}" for one in molecules for atom in one.GetAtoms() if atom.GetIsotope()
    )


def _halogens(molecules: Sequence[Chem.Mol]) -> Counter[tuple[str, str]]:
    """Count the halogen atoms by element and by the kind of atom to which they are bound."""
    return Counter(
        (
            atom.GetSymbol(),
            f"{atom.GetNeighbors()[0].GetSymbol()} {atom.GetNeighbors()[0].GetHybridization()} {atom.GetNeighbors()[0].GetIsAromatic()}",
        )
        for one in molecules
        for atom in one.GetAtoms()
        if atom.GetSymbol() in {"F", "Cl", "Br", "I"} and atom.GetDegree() == 1
    )

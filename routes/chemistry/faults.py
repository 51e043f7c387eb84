"""The rules that a step must keep to be possible as it is written: the search for routes and their judgement share
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations_with_replacement
from typing import Any

from ..tree import Route
from .double_bonds import wrong_marks
from .finding import Finding
from .groups import unstable_kind
from .molecules import KNOWN, UNDEFINED, Molecule, is_among, missing_atoms, read_molecule, structure
from .strain import impossible_ring

OXIDANT = "water, oxygen or an oxidant"
# Reagents that routes leave out, by the heavy atoms that they supply to a product.
REAGENTS: dict[str, Mapping[str, int]] = {
    OXIDANT: {"O": 1},
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
# The largest number of further equivalents of a reactant, and the largest number of different reactants for which they
# are combined. A sole reactant with as many equivalents as on another molecule would be an oligomer.
MOST_EQUIVALENTS, _MOST_DISTINCT = 7, 3
# The largest number of heavy atoms of a labelled reagent that may be used several times, with one carbon at most.
_MOST_ATOMS_OF_A_REAGENT = 4
# A carbanion, such as the ligand of a metallocene.
_CARBANION = re.compile(r"\[[Cc]H?\d*-\]")
# An atom with an isotope, in a SMILES that RDKit has written.
_ISOTOPE = re.compile(r"\[(\d+[A-Za-z][a-z]?)")


def step_fault(product: str, reactants: Sequence[str], above: Iterable[str] = (), rules: Any = None) -> Finding | None:
    """Return why a step is not possible, or None if it is.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants. Reagents may be left out.
        above: SMILES of the molecules that are made from the product.
        rules: the `Constraints` of a search that decide which rules apply (default: all). A search counts a reactant
            as often as it is given; without rules, further equivalents of it may supply atoms.
    """
    path = (product, *above)
    sources = reactants if rules is not None else with_equivalents(product, reactants)
    faults = [
        _existence_fault(product) if read_molecule(product) else _unreadable(product),
        *(molecule_fault(smiles, path) for smiles in reactants),
        atoms_fault(product, tuple(sources)),
    ]
    return next((fault for fault in faults if fault and (rules is None or getattr(rules, fault.rule))), None)


def _unreadable(smiles: str) -> Finding:
    reason = "it has an R group or another undefined atom" if UNDEFINED.search(smiles) else wrong_marks(smiles)
    return _fault(f"{smiles} cannot be read{f': {reason}' if reason else ''}", "readable")


def _fault(text: str, rule: str) -> Finding:
    return Finding(text, "fails", rule)


@lru_cache(KNOWN)
def _existence_fault(smiles: str) -> Finding | None:
    """Return why a molecule cannot exist or be isolated, or None."""
    molecule = read_molecule(smiles)
    if molecule is None:
        return None
    if reason := impossible_ring(structure(molecule.canonical)):
        return _fault(f"{smiles} cannot exist: {reason}", "readable")
    kind = unstable_kind(molecule.canonical)
    return _fault(f"{molecule.canonical} is unstable: {kind}", "readable") if kind else None


def molecule_fault(smiles: str, path: Iterable[str]) -> Finding | None:
    """Return why a molecule cannot be a reactant, or None. `path` are the molecules that are made from it."""
    molecule = read_molecule(smiles)
    if molecule is None:
        return _unreadable(smiles)
    for other in filter(None, map(read_molecule, path)):
        if is_among(molecule, [other]) or _holds(molecule, other):
            return _fault(f"{other.canonical} is made from itself", "acyclic")
    return _existence_fault(smiles)


def _holds(molecule: Molecule, other: Molecule) -> bool:
    """Return whether two mixtures share a molecule, and are not forms of it with and without inorganic ions or
    water.
    """
    if "." not in molecule.smiles + other.smiles:
        return False
    parts, other_parts = ({*mixture.canonical.split(".")} for mixture in (molecule, other))
    return bool(_organic(parts & other_parts)) and bool(_organic(parts ^ other_parts))


def _organic(parts: Iterable[str]) -> list[str]:
    """Return the organic molecules among parts. A ligand of a metal is none on its own."""
    molecules = {part: read_molecule(part) for part in parts if not _CARBANION.search(part)}
    return [part for part, molecule in molecules.items() if molecule and "C" in molecule.atoms]


@lru_cache(KNOWN)
def atoms_fault(product: str, reactants: tuple[str, ...]) -> Finding | None:
    """Return which atoms of the product neither the reactants nor a common reagent supplies, or None.

    A reagent that is not among the reactants does not supply all atoms of a product, and no isotopes. Nothing is known
    of molecules that RDKit cannot read.
    """
    if not reactants:
        return _fault("no reactant", "atoms_supplied")
    molecule, missing = read_molecule(product), atoms_left(product, reactants)
    if isotopes := missing_isotopes(product, reactants):
        return _fault(f"{', '.join(isotopes)} missing", "atoms_supplied")
    if molecule is None or not missing or (supplier(missing) is not None and missing != molecule.atoms):
        return None
    return _fault(", ".join(f"{count} {element}" for element, count in missing.items()) + " missing", "atoms_supplied")


def atoms_left(product: str, reactants: Sequence[str]) -> dict[str, int]:
    """Return the heavy atoms of the product that the reactants do not supply, by element."""
    molecule, *molecules = map(read_molecule, (product, *reactants))
    return {} if molecule is None or None in molecules else missing_atoms(molecule.atoms, filter(None, molecules))


def with_equivalents(product: str, reactants: Sequence[str]) -> list[str]:
    """Return the reactants, with further equivalents of them if the product has more atoms than one of each supplies:
    those with the fewest atoms that are enough.

    Reactions list a reactant once, whatever its equivalents.
    """
    parts, distinct = list(reactants), sorted(set(reactants))
    missing = atoms_left(product, parts)
    if not missing or supplier(missing) is not None:
        return parts
    counts = range(1, (MOST_EQUIVALENTS if len(distinct) > 1 else _MOST_DISTINCT) + 1)
    ways = [[*parts, *[part] * count] for part in distinct for count in counts]
    if len(distinct) <= _MOST_DISTINCT:
        more = (combinations_with_replacement(distinct, count) for count in range(2, _MOST_DISTINCT + 1))
        ways += [[*parts, *others] for others in chain.from_iterable(more)]
    return min((way for way in ways if not atoms_left(product, way)), key=_num_atoms, default=parts)


def _num_atoms(parts: Sequence[str]) -> int:
    """Return the number of heavy atoms of molecules."""
    return sum(sum(molecule.atoms.values()) for molecule in filter(None, map(read_molecule, parts)))


def isotopes_of(smiles: Iterable[str]) -> Counter[str]:
    """Return the number of atoms of each isotope in molecules, such as `2H`."""
    canonical = (molecule.canonical for text in smiles if "[" in text and (molecule := read_molecule(text)))
    return Counter(isotope.title() for text in canonical for isotope in _ISOTOPE.findall(text))


def missing_isotopes(product: str, reactants: Sequence[str]) -> list[str]:
    """Return the isotopes of a product that the reactants do not supply, such as `2H`.

    A small reagent supplies as many atoms as are needed, and so does one with a hydrogen isotope that is not bound to
    carbon: a deuteride, deuterium gas, heavy water. All other molecules supply the atoms that they have.
    """
    lacking = isotopes_of([product]) - isotopes_of(reactants)
    if not lacking:
        return []
    parts = _parts(reactants)
    return sorted(isotope for isotope in lacking if not any(_supplies(part, isotope, product) for part in parts))


def lost_isotopes(product: str, reactants: Sequence[str]) -> list[str]:
    """Return the isotopes of which the product has fewer atoms than the reactants, except for those of reagents."""
    labels, parts = isotopes_of([product]), _parts(reactants)
    counts = isotopes_of(reactants)
    for isotope in counts.keys() & labels.keys():
        if any(_supplies(part, isotope, product) for part in parts):
            counts[isotope] = 0
    return sorted(counts - labels)


def _parts(reactants: Sequence[str]) -> set[str]:
    return {part for text in reactants if (molecule := read_molecule(text)) for part in molecule.canonical.split(".")}


def _supplies(smiles: str, isotope: str, product: str) -> bool:
    """Return whether a reagent supplies any number of atoms of an isotope. One carbon keeps its hydrogens."""
    places = _isotope_places(smiles, isotope)
    if any(place is None for place in places):
        return True
    molecule: Any = structure(smiles)
    elements = [atom.GetSymbol() for atom in molecule.GetAtoms() if atom.GetAtomicNum() > 1]
    if not places or len(elements) > _MOST_ATOMS_OF_A_REAGENT or elements.count("C") > 1:
        return False
    label_counts = Counter(_isotope_places(read_molecule(product).canonical, isotope))  # type: ignore[union-attr]
    return max(label_counts.values()) <= max(Counter(places).values())


@lru_cache(KNOWN // 16)
def _isotope_places(smiles: str, isotope: str) -> tuple[int | None, ...]:
    """Return the place of each atom of an isotope: of a hydrogen that of its carbon, None if it is bound to none."""
    places = list[int | None]()
    for atom in structure(smiles).GetAtoms():
        if f"{atom.GetIsotope()}{atom.GetSymbol()}" == isotope:
            around = [neighbour.GetIdx() for neighbour in atom.GetNeighbors() if neighbour.GetSymbol() == "C"]
            places.append(atom.GetIdx() if atom.GetAtomicNum() > 1 else next(iter(around), None))
    return tuple(places)


def supplier(missing: Mapping[str, int]) -> str | None:
    """Return the reagent that supplies exactly these atoms, or None."""
    return next((name for name, atoms in REAGENTS.items() if atoms == missing), None)


def route_faults(route: Route, above: tuple[str, ...] = ()) -> Iterator[tuple[Route, Finding | None]]:
    """Yield the steps of a route, in the order of `Route.steps`, each with the reason why it is not possible.

    Args:
        route: the route.
        above: the molecules that are made from its target.
    """
    if not route.children:
        return
    for child in route.children:
        yield from route_faults(child, (*above, route.smiles))
    yield route, step_fault(route.smiles, [child.smiles for child in route.children], above)

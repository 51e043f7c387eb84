"""Where the skeleton of a product comes from, for steps whose transformation nobody recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from rdkit import Chem
from rdkit.Chem import rdFMCS

from .matching import SearchTooLong, bounded_search, ends_in_time
from .molecules import KNOWN, structure
from .stereo import compare

# The work that all common substructures of a step may take: for each step of RDKit's search, the number of pairs of
# atoms. Most take less than a hundredth of it, and all of it takes some seconds.
_MOST_WORK = 80_000_000
# The property of atoms in a ring of six carbon atoms.
_IN_CARBOCYCLE = "in_carbocycle"
# The number of matches of a common substructure in each molecule.
_MOST_MATCHES = 32
# The largest number of reactants of which each may come first.
_MOST_ORDERED = 4
# The numbers of elements that are in no molecule. They replace those of a product's atoms whose source is known, and
# of a reactant's atoms that have supplied one.
_KNOWN, _SPENT = 118, 117
# The number of pieces, beyond one of each reactant, into which a rearrangement takes its reactants apart.
_MOST_MOVED = 2
# The size of a benzene ring, and a carbon atom in SMILES.
_RING, _CARBON = 6, re.compile("C(?![a-z])|c")


class Sources(NamedTuple):
    """The sources of a product's atoms.

    Args:
        reactants: SMILES of the reactants.
        counts: for each reactant, how often it supplies atoms.
        pieces: SMILES of the connected parts of the product without a source.
        wrong_centre: `"inverted"` or `"defined"` for a stereocentre whose neighbours stay the same atoms, if there is
            one.
        mapped: SMILES of the reactants, as often as they supply atoms. These have the numbers of the product's atoms,
            counted from 1. None if a reactant supplies several pieces.
    """

    reactants: tuple[str, ...]
    counts: tuple[int, ...]
    pieces: tuple[str, ...]
    wrong_centre: str | None
    mapped: str | None = None

    @property
    def largest(self) -> int:
        """The number of carbon atoms in the largest part without a source."""
        return max(map(num_carbons, self.pieces), default=0)


def num_carbons(smiles: str) -> int:
    """Return the number of carbon atoms in a SMILES."""
    return len(_CARBON.findall(smiles))


class _SameElement(rdFMCS.MCSAtomCompare):
    """Atoms of the same element. A benzene ring stays aromatic, or becomes another ring of six carbon atoms."""

    def __call__(self, parameters: Any, product: Any, place: int, part: Any, origin: int) -> bool:
        return _may_become(product.GetAtomWithIdx(place), part.GetAtomWithIdx(origin))


def _may_become(after: Any, before: Any) -> bool:
    return after.GetAtomicNum() == before.GetAtomicNum() and (
        not before.GetIsAromatic()
        or after.GetIsAromatic()
        or not before.HasProp(_IN_CARBOCYCLE)
        or after.HasProp(_IN_CARBOCYCLE)
    )


class _Work(rdFMCS.MCSProgress):
    """Counts the work of the searches for the common substructures of a step, and ends them. A time would not give the
    same answer on every machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.remaining, self.num_pairs = _MOST_WORK, 0

    def __call__(self, progress: Any, parameters: Any) -> bool:
        self.remaining -= self.num_pairs
        return self.remaining > 0


def _mark_carbocycles(molecule: Any) -> None:
    """Set the property of the atoms in rings of six carbon atoms. To ask the rings for each pair takes too long."""
    for atom in molecule.GetAtoms():
        atom.ClearProp(_IN_CARBOCYCLE)
    for ring in molecule.GetRingInfo().AtomRings():
        atoms = [molecule.GetAtomWithIdx(place) for place in ring]
        if len(ring) == _RING and all(atom.GetSymbol() == "C" for atom in atoms):
            for atom in atoms:
                atom.SetBoolProp(_IN_CARBOCYCLE, True)


@lru_cache(KNOWN // 16)
def sources(product: str, reactants: tuple[str, ...], most_copies: int = 1) -> Sources | None:
    """Return the sources of a product's atoms: each reactant supplies one connected substructure.

    Return None if that takes too long.

    Args:
        product: canonical SMILES of the product.
        reactants: canonical SMILES of single molecules.
        most_copies: the number of substructures that a reactant may supply.
    """
    molecule, parts = structure(product), [Chem.Mol(structure(smiles)) for smiles in reactants]
    for part in parts:
        _mark_carbocycles(part)
    work = _Work()
    best = _assigned(molecule, parts, most_copies, work)
    if best is None or not best.pieces:
        return best
    # the largest common substructure is not always the right one: let each reactant come first
    for index in range(len(parts)) if best.largest > 1 and len(parts) <= _MOST_ORDERED else ():
        assignment = _assigned(molecule, parts, most_copies, work, first=index)
        if assignment is not None and assignment.largest < best.largest:
            best = assignment
    return (_rearranged(molecule, parts, work) if best.pieces else None) or best


def _rearranged(product: Any, parts: list[Any], work: _Work) -> Sources | None:
    """Return the sources of the atoms of a rearrangement, in which reactants supply several pieces, or None.

    Each atom of a reactant supplies one atom. The reactants that supply carbon lose none, because the pieces of others
    fit into any product.
    """
    rest, remaining = Chem.RWMol(product), [Chem.RWMol(part) for part in parts]
    counts = [0] * len(parts)
    for _ in range(len(parts) + _MOST_MOVED):
        largest = _largest_piece(rest, remaining, range(len(parts)), work)
        if largest is None:
            return None
        index, pairs = largest
        if not pairs:
            break
        counts[index] += 1
        _replace(rest, [place for place, _ in pairs], _KNOWN)
        _replace(remaining[index], [origin for _, origin in pairs], _SPENT)
    for part, rest_of_part in zip(parts, remaining, strict=True):
        before, after = (sum(atom.GetAtomicNum() == 6 for atom in side.GetAtoms()) for side in (part, rest_of_part))
        if 0 < after < before:
            return None
    pieces = _pieces(product, rest)
    if any(map(num_carbons, pieces)):
        return None
    return Sources(tuple(map(Chem.MolToSmiles, parts)), tuple(counts), pieces, None)


def _largest_piece(
    rest: Any, parts: list[Any], candidates: Iterable[int], work: _Work
) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the index of the part that has the largest substructure in common with the rest of a product, and the
    pairs of atoms, or None if that takes too long.
    """
    _mark_carbocycles(rest)
    largest: tuple[int, list[tuple[int, int]]] = (0, [])
    for index in candidates:
        common = _common(rest, parts[index], work)
        if common is None:
            return None
        if len(common) > len(largest[1]):
            largest = index, common
    return largest


def _replace(molecule: Any, places: Iterable[int], number: int) -> None:
    """Give atoms the number of an element that fits no other."""
    for place in places:
        molecule.GetAtomWithIdx(place).SetAtomicNum(number)
        molecule.GetAtomWithIdx(place).SetIsAromatic(False)


def _pieces(product: Any, rest: Any) -> tuple[str, ...]:
    """Return the SMILES of the connected parts of a product whose source is not known."""
    places = [atom.GetIdx() for atom in rest.GetAtoms() if atom.GetAtomicNum() != _KNOWN]
    return tuple(Chem.MolFragmentToSmiles(product, places, isomericSmiles=False).split(".")) if places else ()


def _assigned(
    product: Any, parts: list[Any], most_copies: int, work: _Work, first: int | None = None
) -> Sources | None:
    """Assign the atoms of a product to its reactants, that of the largest common substructure first.

    Args:
        product: the product.
        parts: the reactants.
        most_copies: the number of substructures that a reactant may supply.
        work: what is left of the work. Without any, the search gives up, and returns None.
        first: the index of the reactant whose substructure comes first.
    """
    rest: Any = Chem.RWMol(product)
    counts, sources = [0] * len(parts), list[Any]()
    while True:
        candidates = [index for index in range(len(parts)) if counts[index] < most_copies]
        if first is not None and not sources:
            candidates = [first]
        largest = _largest_piece(rest, parts, candidates, work)
        if largest is None:
            return None
        index, pairs = largest
        if not pairs:
            break
        counts[index] += 1
        source = Chem.Mol(parts[index])
        for place, origin in pairs:
            source.GetAtomWithIdx(origin).SetAtomMapNum(place + 1)
        _replace(rest, [place for place, _ in pairs], _KNOWN)
        sources.append(source)
    wrong_centre = None
    if sources:
        copies = [part for part, count in zip(parts, counts, strict=True) for _ in range(count)]
        wrong_centre = compare(product, *(reduce(Chem.CombineMols, side) for side in (copies, sources))).centres
    mapped = ".".join(map(Chem.MolToSmiles, sources))
    return Sources(tuple(map(Chem.MolToSmiles, parts)), tuple(counts), _pieces(product, rest), wrong_centre, mapped)


def _common(product: Any, part: Any, work: _Work) -> list[tuple[int, int]] | None:
    """Return the pairs of atoms of the largest connected substructure in both, whatever its bonds, or None if it takes
    too long.
    """
    if work.remaining <= 0 or not ends_in_time(product, part):
        return None
    work.num_pairs = product.GetNumAtoms() * part.GetNumAtoms()
    parameters: Any = rdFMCS.MCSParameters()
    parameters.AtomTyper, parameters.BondTyper = _SameElement(), rdFMCS.BondCompare.CompareAny
    parameters.ProgressCallback = work
    result = rdFMCS.FindMCS([product, part], parameters)
    if result.canceled:
        return None
    if result.numAtoms > 1:
        # the pattern says nothing of benzene rings
        pattern = Chem.MolFromSmarts(result.smartsString)
        search = bounded_search(uniquify=False, maxMatches=_MOST_MATCHES)
        try:
            in_product, in_part = (molecule.GetSubstructMatches(pattern, search) for molecule in (product, part))
        except SearchTooLong:
            return None
        ways = [list(zip(places, origins, strict=True)) for origins in in_part for places in in_product]
        after, before = _surroundings(product), _surroundings(part)
        ways.sort(key=lambda pairs: -sum(after[place] == before[origin] for place, origin in pairs))
        for pairs in ways:
            if all(_may_become(product.GetAtomWithIdx(place), part.GetAtomWithIdx(origin)) for place, origin in pairs):
                return pairs
        return []
    # RDKit finds no single atoms
    by_element = {atom.GetAtomicNum(): atom.GetIdx() for atom in part.GetAtoms()}
    for atom in product.GetAtoms():
        if atom.GetAtomicNum() in by_element:
            return [(atom.GetIdx(), by_element[atom.GetAtomicNum()])]
    return []


def _surroundings(molecule: Any) -> list[tuple[int, int]]:
    """Return the hydrogens and the number of neighbours of each atom. Most atoms of a step keep both."""
    return [(atom.GetTotalNumHs(), atom.GetDegree()) for atom in molecule.GetAtoms()]

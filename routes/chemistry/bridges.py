"""Bridgeheads of small bicycles: the bridge fixes their relative configuration, because both have their substituents
outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

# The largest number of atoms of the three bridges together. Larger bicycles may have a hydrogen atom inside.
_LARGEST = 8
_NO_TAG = Chem.ChiralType.CHI_UNSPECIFIED
_TAGS = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)


def without_superfluous_marks(molecule: Any) -> Any:
    """Return a molecule without the marks of pairs of bridgeheads whose other configuration is the same molecule."""
    for pair, _ in _pairs(molecule):
        if _is_superfluous(molecule, pair):
            molecule = _tagged(molecule, dict.fromkeys(pair, _NO_TAG))
    return molecule


def with_bridgeheads(molecule: Any) -> tuple[Any, set[int]]:
    """Return a molecule with the marks that [`without_superfluous_marks`] removes, and the indices of their atoms."""
    places = set[int]()
    for (first, second), bridges in _pairs(molecule):
        if molecule.GetAtomWithIdx(first).GetChiralTag() == molecule.GetAtomWithIdx(second).GetChiralTag() == _NO_TAG:
            begins, ends = zip(*bridges, strict=True)
            is_alike = is_odd(molecule, first, begins) == is_odd(molecule, second, ends)
            marked = _tagged(molecule, {first: _TAGS[0], second: _TAGS[is_alike]})
            if _is_superfluous(marked, (first, second)):
                molecule = marked
                places |= {first, second}
    return molecule, places


def _pairs(molecule: Any) -> Iterator[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """Yield pairs of bridgeheads with their neighbours in the three bridges."""
    places: Any = []
    if molecule.GetRingInfo().NumRings() > 1:
        rdMolDescriptors.CalcNumBridgeheadAtoms(molecule, places)
    carbons = [place for place in sorted(places) if molecule.GetAtomWithIdx(place).GetTotalDegree() == 4]
    for first, second in combinations(carbons, 2):
        bridges = _bridges(molecule, first, second)
        if len(bridges) == 3 and sum(length for _, _, length in bridges) <= _LARGEST:
            yield (first, second), [(begin, end) for begin, end, _ in bridges]


def _bridges(molecule: Any, first: int, second: int) -> list[tuple[int, int, int]]:
    """Return the first and the last atom of the chains that connect two atoms, and their lengths."""
    bridges = list[tuple[int, int, int]]()
    ends = {atom.GetIdx() for atom in molecule.GetAtomWithIdx(second).GetNeighbors()} - {first}
    for atom in molecule.GetAtomWithIdx(first).GetNeighbors():
        reach, visited, length = {atom.GetIdx()}, {first, second}, 1
        while reach and not reach & ends and length <= _LARGEST:
            visited |= reach
            reach = {
                other.GetIdx() for place in reach for other in molecule.GetAtomWithIdx(place).GetNeighbors()
            } - visited
            length += 1
        bridges += [(atom.GetIdx(), end, length) for end in sorted(reach & ends)]
    return bridges


def _is_superfluous(molecule: Any, pair: tuple[int, int]) -> bool:
    tags = {place: molecule.GetAtomWithIdx(place).GetChiralTag() for place in pair}
    if not set(tags.values()) <= set(_TAGS):
        return False
    other = _tagged(molecule, {place: _TAGS[tag == _TAGS[0]] for place, tag in tags.items()})
    return Chem.MolToSmiles(other) == Chem.MolToSmiles(molecule)


def _tagged(molecule: Any, tags: dict[int, Any]) -> Any:
    tagged: Any = Chem.Mol(molecule)
    for place, tag in tags.items():
        tagged.GetAtomWithIdx(place).SetChiralTag(tag)
    Chem.AssignStereochemistry(tagged, cleanIt=True, force=True)
    return tagged


def is_odd(molecule: Any, place: int, bridges: Sequence[int]) -> bool:
    """Return whether the bonds of an atom have an odd order: its substituent outside, then the bridges.

    RDKit counts a hydrogen atom without a bond as the last.
    """
    neighbours = [atom.GetIdx() for atom in molecule.GetAtomWithIdx(place).GetNeighbors()]
    order = [bridges.index(neighbour) if neighbour in bridges else -1 for neighbour in neighbours]
    swaps = sum(first > second for first, second in combinations(order, 2))
    return (swaps + (len(order) == 3)) % 2 == 1

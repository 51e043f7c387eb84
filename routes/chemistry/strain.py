"""Rings that cannot exist, or not long enough to be a starting material or an intermediate.

Limits are those of isolated compounds (Smith, March's Advanced Organic Chemistry, 8th edition, Wiley 2020, section
4.Q.iii): [5]metacyclophanes and [6]paracyclophanes are known, smaller ones are not. Double bonds at bridgeheads are
known from nine ring atoms (bicyclo[3.3.1]non-1-ene; Bredt's rule), and lactams with their nitrogen there too. A
three-membered ring is fused to one of up to seven atoms in cis (4 of 977 recorded molecules are drawn otherwise), and
a dioxolane to one of five (16 of 378).
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from typing import Any

from rdkit import Chem

from .bridges import is_odd

# The numbers of atoms in the shortest known bridges over a benzene ring, by the bonds between their ends.
_SHORTEST_BRIDGE = {2: 5, 3: 6}
# The number of atoms of the smallest bicycle with a double bond at a bridgehead.
_SMALLEST_ANTI_BREDT = 9
# The largest ring to which one of three atoms is fused in cis only, and the same for a dioxolane.
_LARGEST_CIS, _LARGEST_CIS_DIOXOLANE = 7, 5


def impossible_ring(molecule: Any) -> str | None:
    """Return why a ring system of a molecule, an RDKit `Mol`, cannot exist, or None."""
    rings = molecule.GetRingInfo().AtomRings()
    if len(rings) < 2:
        return None
    for ring in rings:
        is_benzene = len(ring) == 6 and all(molecule.GetAtomWithIdx(index).GetIsAromatic() for index in ring)
        if is_benzene and _is_bridged_too_short(molecule, ring):
            return "a bridge of so few atoms does not span a benzene ring"
    for first, second in combinations(map(set, rings), 2):
        common = first & second
        if len(common) > 2 and len(first | second) < _SMALLEST_ANTI_BREDT:
            for bridgehead in common:
                if reason := _at_bridgehead(molecule, bridgehead, first | second):
                    return reason
        if len(common) == 2 and _is_cis_only(molecule, first, second) and _is_trans(molecule, first, second):
            return "rings of these sizes can only be cis-fused"
    return None


def _is_cis_only(molecule: Any, first: set[int], second: set[int]) -> bool:
    """Return whether two fused rings are too small to be fused in trans."""
    small, large = sorted((first, second), key=len)
    symbols = sorted(molecule.GetAtomWithIdx(index).GetSymbol() for index in small - large)
    if symbols == ["C", "O", "O"]:
        return len(large) <= _LARGEST_CIS_DIOXOLANE
    return len(symbols) == 1 and len(large) <= _LARGEST_CIS


def _is_trans(molecule: Any, first: set[int], second: set[int]) -> bool:
    """Return whether the other substituents of the two atoms that two rings share are on opposite sides."""
    common, marks = first & second, set[bool]()
    for index in common if molecule.GetBondBetweenAtoms(*common) is not None else ():
        atom = molecule.GetAtomWithIdx(index)
        if atom.GetChiralTag() == Chem.ChiralType.CHI_UNSPECIFIED:
            return False
        neighbours = {neighbour.GetIdx() for neighbour in atom.GetNeighbors()}
        bridges = [min(neighbours & part) for part in (common, first - common, second - common)]
        is_clockwise = atom.GetChiralTag() == Chem.ChiralType.CHI_TETRAHEDRAL_CW
        marks.add(is_clockwise == is_odd(molecule, index, bridges))
    return len(marks) == 1


def _is_bridged_too_short(molecule: Any, ring: tuple[int, ...]) -> bool:
    for place, other in combinations(range(6), 2):
        bonds = min(other - place, 6 - other + place)
        shortest = _SHORTEST_BRIDGE.get(bonds)
        if shortest and _bridge(molecule, ring[place], ring[other], set(ring), shortest - 1):
            return True
    return False


def _bridge(molecule: Any, begin: int, end: int, ring: set[int], most: int) -> bool:
    """Return whether at most `most` atoms outside aromatic rings connect two atoms of a ring."""
    to_visit, visited = deque([(begin, 0)]), {begin}
    while to_visit:
        index, length = to_visit.popleft()
        for neighbour in molecule.GetAtomWithIdx(index).GetNeighbors():
            place = neighbour.GetIdx()
            if place == end and length:
                return True
            if place not in ring | visited and length < most and not neighbour.GetIsAromatic():
                visited.add(place)
                to_visit.append((place, length + 1))
    return False


def _at_bridgehead(molecule: Any, index: int, bicycle: set[int]) -> str | None:
    """Return what is wrong with a bridgehead of a small bicycle, or None."""
    atom = molecule.GetAtomWithIdx(index)
    inside = [neighbour for neighbour in atom.GetNeighbors() if neighbour.GetIdx() in bicycle]
    if len(inside) < 3 or atom.GetIsAromatic():
        return None
    for neighbour in inside:
        bond = molecule.GetBondBetweenAtoms(index, neighbour.GetIdx())
        if bond.GetBondType() == Chem.BondType.DOUBLE:
            return "a double bond at the bridgehead of so small a bicycle breaks Bredt's rule"
        if atom.GetSymbol() == "N" and _is_acyl(neighbour):
            return "the nitrogen of an amide is not at the bridgehead of so small a bicycle"
    return None


def _is_acyl(atom: Any) -> bool:
    """Return whether an atom is the carbonyl group of an amide: one oxygen atom, one nitrogen atom and a carbon atom.

    Ureas such as avibactam are known.
    """
    neighbours = sorted(neighbour.GetSymbol() for neighbour in atom.GetNeighbors())
    is_double = any(bond.GetBondType() == Chem.BondType.DOUBLE for bond in atom.GetBonds())
    return is_double and neighbours == ["C", "N", "O"]

"""The marks of double bonds in SMILES, `/` and `\\`, which RDKit drops silently where they contradict each other."""

from __future__ import annotations

import re
from typing import Any

from rdkit import Chem, rdBase

# The largest ring that has no room for a trans double bond.
LARGEST_CIS_RING = 7
MARKS = frozenset("/\\")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_RING_BOND = re.compile(r"([-=#$:~/\\]?)(%\d\d|%\(\d+\)|\d)")
_DOUBLE = Chem.MolFromSmarts("*=*")
_CONTRADICTION = "the marks / and \\ of a double bond contradict each other"


def wrong_marks(smiles: str) -> str | None:
    """Return what is wrong with the marks of a SMILES, or None.

    A mark may belong to two double bonds, one on each side of it. Where a double bond has no configuration, such as in
    a small ring, its marks are those of its neighbours, and say nothing about it.

    Args:
        smiles: a SMILES that RDKit can read, without an extension.
    """
    if MARKS.isdisjoint(smiles):
        return None
    if _ring_bond_is_marked_twice(smiles):
        return _CONTRADICTION
    with rdBase.BlockLogs():
        molecule: Any = Chem.MolFromSmiles(smiles, sanitize=False)
    if molecule is None:
        return None
    doubles = [
        molecule.GetBondBetweenAtoms(*ends)
        for ends in molecule.GetSubstructMatches(_DOUBLE)
        if all(_is_marked(molecule.GetAtomWithIdx(end)) for end in ends)
    ]
    rings: list[set[int]] = []
    if doubles:
        Chem.FastFindRings(molecule)
        if any(bond.IsInRing() for bond in doubles):
            rings = [set(ring) for ring in Chem.GetSymmSSSR(molecule) if len(ring) <= LARGEST_CIS_RING]
    return next(filter(None, (_wrong(bond, rings) for bond in doubles)), None)


def _wrong(double: Any, rings: list[set[int]]) -> str | None:
    """Return what is wrong with the marks of a double bond, or None. `rings` are the small rings of the molecule."""
    ends = double.GetBeginAtom(), double.GetEndAtom()
    levels = [_levels(atom, double, rings) for atom in ends]
    if any(len(around) == 2 and len(set(around.values())) == 1 and _own(around) for around in levels):
        return _CONTRADICTION
    for ring in rings:
        if ring.issuperset(atom.GetIdx() for atom in ends) and all(map(_own, levels)):
            first, second = (_level_in(ring, around) for around in levels)
            if first != second:
                return f"a trans double bond does not fit into a ring of {len(ring)}"
    return None


def _ring_bond_is_marked_twice(smiles: str) -> bool:
    """Return whether the two marks of a ring closure disagree. Each is seen from its own end."""
    closures: dict[str, str] = {}
    for mark, number in _RING_BOND.findall(_BRACKETS.sub("C", smiles)):
        number = number.strip("%()").lstrip("0")
        before = closures.pop(number, None)
        if before is None:
            closures[number] = mark
        elif mark == before and mark in MARKS:
            return True
    return False


def _is_marked(atom: Any) -> bool:
    return any(bond.GetBondDir() != Chem.BondDir.NONE for bond in atom.GetBonds())


def _levels(atom: Any, double: Any, rings: list[set[int]]) -> dict[tuple[int, bool], bool]:
    """Return whether each neighbour with a mark is above an end of a double bond. The keys are the neighbours, and
    whether their marks belong to this double bond alone.
    """
    levels = {}
    for bond in atom.GetBonds():
        if bond.GetBondDir() != Chem.BondDir.NONE and bond.GetIdx() != double.GetIdx():
            is_up = bond.GetBondDir() == Chem.BondDir.ENDUPRIGHT
            neighbour = bond.GetOtherAtom(atom)
            is_own = not any(_has_configuration(other, neighbour, rings) for other in neighbour.GetBonds())
            levels[neighbour.GetIdx(), is_own] = is_up == (bond.GetBeginAtomIdx() == atom.GetIdx())
    return levels


def _has_configuration(bond: Any, atom: Any, rings: list[set[int]]) -> bool:
    """Return whether a bond of an atom is a double bond with marks at its other end that is in no small ring."""
    other = bond.GetOtherAtom(atom)
    if bond.GetBondType() != Chem.BondType.DOUBLE or not _is_marked(other):
        return False
    return not any(ring.issuperset((atom.GetIdx(), other.GetIdx())) for ring in rings)


def _own(levels: dict[tuple[int, bool], bool]) -> bool:
    return any(is_own for _, is_own in levels)


def _level_in(ring: set[int], levels: dict[tuple[int, bool], bool]) -> bool:
    """Return whether the neighbour in a ring is above an end of a double bond. Any other neighbour is opposite."""
    (neighbour, _), level = next(iter(levels.items()))
    return level == (neighbour in ring)

"""Substructure searches that end, for patterns and molecules from outside.

RDKit's search has no time limit, and one for a ring of 45 atoms can take hours. It calls a function for each pair of
atoms that it compares, and an exception there ends it. Comparisons are counted, because a time would not give the same
answer on every machine.
"""

from __future__ import annotations

from typing import Any

from rdkit import Chem

# A search for a drug-like part in a drug takes some hundreds. As many as this take a tenth of a second.
MOST_COMPARISONS = 100_000
# RDKit's search for a common substructure reports its progress, except while it fits a large ring into many others or
# a large tree with many equal branches into another. It is not begun for such a ring with so many others, or for more
# pairs of atoms: two molecules of 100 atoms.
_LARGE_RING, _MANY_RINGS, _MOST_PAIRS = 24, 8, 10_000


class SearchTooLong(ValueError):
    """A substructure search needs too many comparisons."""


def bounded_search(**options: Any) -> Any:
    """Return parameters for substructure searches that together raise [`SearchTooLong`] after `MOST_COMPARISONS`.

    Args:
        options: fields of RDKit's `SubstructMatchParameters`.
    """
    parameters: Any = Chem.SubstructMatchParameters()
    for name, value in options.items():
        setattr(parameters, name, value)
    left = MOST_COMPARISONS

    def count(wanted: Any, atom: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise SearchTooLong("The substructure search takes too long: give a smaller substructure.")
        return True

    parameters.setExtraAtomCheckFunc(count)
    return parameters


def ends_in_time(molecule: Any, other: Any) -> bool:
    """Return whether `FindMCS` reports its progress often enough to be ended, for two molecules."""
    if molecule.GetNumAtoms() * other.GetNumAtoms() > _MOST_PAIRS:
        return False
    rings, others = (side.GetRingInfo().AtomRings() for side in (molecule, other))
    is_large = any(len(ring) > _LARGE_RING for ring in (*rings, *others))
    return not is_large or max(len(rings), len(others)) <= _MANY_RINGS

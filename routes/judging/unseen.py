"""What recorded reactions do not have, although it is common elsewhere: groups that do not survive a kind of reaction,
and environments of atoms that do not exist.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from ..chemistry.changes import Change, HalfBond, atom_class, atoms_of, element_of, half_bonds
from ..chemistry.molecules import without_stereo
from ..chemistry.step import MappedStep

# The radii of the environments of groups that stay. 0 stands for the neighbours in general.
RADII = (0, 1, 2)
_RADIUS_BITS = 2


class Absence(NamedTuple):
    """A group that hardly any recorded reaction of a kind keeps.

    Args:
        place: the index of the atom of the reactants in the middle of its environment.
        radius: the number of bonds from there to its ends.
        num_recorded: the number of recorded reactions of the kind that keep it.
        expected: the number of those that would keep it if that did not depend on the kind.
        total: the number of recorded reactions of the kind.
    """

    place: int
    radius: int
    num_recorded: int
    expected: float
    total: int


def ratio(count: int, expected: float) -> float:
    """Return a number over the expected one. One more of each is counted, so that few records say little."""
    return (count + 1) / (expected + 1)


def could_react(atom: Any) -> bool:
    """Return whether an atom could react in many reactions: all but saturated and aromatic carbon atoms."""
    if atom.GetAtomicNum() != 6:
        return atom.GetAtomicNum() > 1
    return not atom.GetIsAromatic() and any(bond.GetBondTypeAsDouble() > 1 for bond in atom.GetBonds())


def environment_keys(atom: Any, numbers: Sequence[int]) -> list[int]:
    """Return the number of the environment of an atom of each of the `RADII`.

    Args:
        atom (`Chem.Atom`): the atom.
        numbers: its environments, as [`~chemistry.changes.environments`] returns them.
    """
    return [(int(numbers[radius]) if radius else _in_general(atom)) << _RADIUS_BITS | radius for radius in RADII]


def _in_general(atom: Any) -> int:
    """Return a number for an atom with its neighbours that says no more of these than functional groups do."""
    neighbours = sorted(
        (
            bond.GetBondTypeAsDouble(),
            (other := bond.GetOtherAtom(atom)).GetAtomicNum(),
            other.GetIsAromatic(),
            any(
                far.GetBondTypeAsDouble() > 1 and far.GetOtherAtom(other).GetSymbol() != "C"
                for far in other.GetBonds()
            ),
        )
        for bond in atom.GetBonds()
    )
    facts = atom.GetAtomicNum(), atom.GetTotalNumHs(), atom.GetFormalCharge(), atom.GetIsAromatic(), neighbours
    return zlib.crc32(repr(facts).encode())


def kinds_of_change(changed: Sequence[Change], reactants: Any, product: Any) -> set[int]:
    """Return numbers for the kinds of a reaction: what each atom loses and gains, and each of these alone.

    Args:
        changed: what happens to the atoms.
        reactants, product (`Chem.Mol`): the molecules, as in [`~chemistry.changes.changes`].
    """
    kinds = set[Any]()
    for change in changed:
        atom = reactants.GetAtomWithIdx(change.before)
        if (site := atom_class(atom)) is None:
            continue
        element, hydrogens = (site, atom.GetSymbol()), (change.hydrogens > 0) - (change.hydrogens < 0)
        gained = sorted(_gained(product, change.after, place) for place in change.gained)
        kinds.add(repr((element, change.lost, change.strengthened, hydrogens, gained)))
        kinds |= {repr((element, facts)) for facts in (change.lost, gained) if facts}
    return {zlib.crc32(kind.encode()) for kind in kinds}


def _gained(product: Any, place: int, other: int) -> tuple[float, str, bool, int, int]:
    """Return what is known of an atom of a product to which another one is newly bound."""
    atom = product.GetAtomWithIdx(other)
    bonds = [bond for bond in atom.GetBonds() if bond.GetOtherAtomIdx(other) != place]
    oxo = sum(bond.GetBondTypeAsDouble() == 2 and bond.GetOtherAtom(atom).GetSymbol() == "O" for bond in bonds)
    hydrogens = atom.GetTotalNumHs() if atom.GetSymbol() == "N" else 0
    order = product.GetBondBetweenAtoms(place, other).GetBondTypeAsDouble()
    return order, atom.GetSymbol(), atom.GetIsAromatic(), oxo, hydrogens


def molecule_key(smiles: str) -> int:
    """Return the number of a molecule in canonical SMILES, without stereochemistry."""
    return zlib.crc32(without_stereo(smiles).encode())


def _sums(first: Any, second: Any, counts: Any) -> dict[tuple[int, int], int]:
    """Return the sum of the counts of each pair of numbers below 2**32."""
    pairs, places = numpy.unique(first << 32 | second, return_inverse=True)
    sums = numpy.bincount(places, counts).astype(numpy.int64).tolist()
    return dict(zip(zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True), sums, strict=True))


class Unseen:
    """What recorded reactions do not have.

    Args:
        tensors: `kinds` and `environments`, for each absence the number of the kind and that of
            [`environment_keys`], and `counts`, the last three numbers of [`Absence`]; `bonds`, the `rest`, `atom` and
            `end` of the half bonds of recorded molecules, and the number of molecules with each; `known`, the
            [`molecule_key`] of small molecules that several reactions have.
    """

    def __init__(self, tensors: Mapping[str, NDArray[Any]]):
        rows = {name: tensor.tolist() for name, tensor in tensors.items() if name != "bonds"}
        self._kinds, self._known = set(rows["kinds"]), set(rows["known"])
        self._absences = dict(zip(zip(rows["kinds"], rows["environments"], strict=True), rows["counts"], strict=True))
        rest, atom, end, counts = tensors["bonds"].astype(numpy.uint64).T
        element, kind = element_of(atom), element_of(end)
        self._num_bonds, self._num_ends = _sums(rest, end, counts), _sums(rest, kind, counts)
        # the same of all atoms of an element
        self._element_bonds, self._element_ends = _sums(element, end, counts), _sums(element, kind, counts)

    def absences(self, step: MappedStep) -> Iterator[Absence]:
        """Yield the groups of a step that hardly any recorded reaction of its kinds keeps."""
        kinds = kinds_of_change(step.changes, step.reactants, step.molecule) & self._kinds
        for atom in atoms_of(step.reactants) if kinds else ():
            place = atom.GetIdx()
            if step.is_unchanged(place) and could_react(atom):
                for radius, key in zip(RADII, environment_keys(atom, step.environments[place]), strict=True):
                    for counts in filter(None, (self._absences.get((kind, key)) for kind in kinds)):
                        yield Absence(place, radius, int(counts[0]), counts[1], int(counts[2]))

    def is_known(self, smiles: str) -> bool:
        """Return whether several recorded reactions have a small molecule, in canonical SMILES."""
        return molecule_key(smiles) in self._known

    def bonds(self, molecule: Any, places: Collection[int]) -> Iterator[tuple[HalfBond, int, float]]:
        """Yield the bonds of some atoms as each end sees them, with the number of recorded molecules that have an atom
        with these neighbours, and the number that would be expected if its neighbour did not depend on the others.

        Args:
            molecule (`Chem.Mol`): the molecule.
            places: the indices of the atoms.
        """
        for half in half_bonds(molecule):
            if half.place in places or half.neighbour in places:
                element, kind = element_of(half.atom), element_of(half.end)
                num_ends, total = self._num_ends.get((half.rest, kind), 0), self._element_ends.get((element, kind), 0)
                expected = num_ends * self._element_bonds.get((element, half.end), 0) / total if total else 0.0
                yield half, self._num_bonds.get((half.rest, half.end), 0), expected

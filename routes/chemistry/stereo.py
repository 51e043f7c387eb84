"""Compares the stereochemistry of the product and the reactants of a step whose atoms are mapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from rdkit import Chem

from .bridges import with_bridgeheads
from .changes import without_maps
from .matching import SearchTooLong, bounded_search
from .molecules import KNOWN, canonical_smiles, structure, without_stereo

# A double bond in a smaller ring has no mark, and its neighbours in the ring are cis.
_SMALLEST_TRANS_RING = 8
# The number of ways to map equivalent atoms that are tried.
_MOST_MAPPINGS = 64

# Carbon atoms of sugars and the like whose bonds to one heteroatom break by way of a cation, and of hemiacetals, which
# open by themselves.
_ANOMERIC = Chem.MolFromSmarts("[CX4;R;$(C([OX2;R])[O,N,S,F,Cl,Br,I])]")
_HEMIACETAL = Chem.MolFromSmarts("[CX4;R;$(C([OX2;R])[OX2H])]")
# An anomeric centre with a nucleophile beside a carbon atom with an acyl group, which takes part and gives the trans
# isomer (March's Advanced Organic Chemistry, 8th edition, chapter 10: neighbouring groups).
_NUCLEOPHILE, _ACYL = "[#7,#16,$([OX2][#6;!$(C=O)])]", "[$([OX2]C(=O)[#6]),$([NX3]C=O)]"
_BESIDE_ACYL = {
    hands: Chem.MolFromSmarts(f"[CX4;R;{hands[0]}](@[OX2;R])(-!@{_NUCLEOPHILE})@[CX4;R;{hands[1]}](-!@{_ACYL})@[#6]")
    for hands in (("@", "@"), ("@@", "@@"), ("@", "@@"), ("@@", "@"))
}

Anomer = Literal["anomeric", "cis", "trans"]
Change = Literal["kept", "changed", "inverted", "defined"] | Anomer


class StereoComparison(NamedTuple):
    """How the stereochemistry of a step changes.

    Args:
        centres: for a stereocentre whose neighbours stay the same atoms, `"inverted"` or `"defined"`, if there is one.
        is_kept: whether every stereocentre and double bond of the product is that of the reactants, except for
            anomeric centres that react.
        anomer: for such a centre, `"cis"` or `"trans"` to an acyl group at the carbon atom beside it, or else
            `"anomeric"`.
    """

    centres: str | None
    is_kept: bool
    anomer: Anomer | None = None


@lru_cache(KNOWN // 16)
def is_chiral(smiles: str) -> bool:
    """Return whether a canonical SMILES is that of one of two enantiomers."""
    if "@" not in smiles:
        return False
    mirror: Any = Chem.Mol(structure(smiles))
    for atom in mirror.GetAtoms():
        atom.InvertChirality()
    return Chem.MolToSmiles(mirror) != smiles


@lru_cache(KNOWN)
def mixture(smiles: str) -> str | None:
    """Return the canonical SMILES of the mixture of both isomers of a molecule with one stereocentre or double bond,
    which is defined, or None for others. Isotopes alone make no isomers that can be separated.

    Args:
        smiles: canonical SMILES.
    """
    if "@" not in smiles and "/" not in smiles:
        return None
    defined = [element.specified == Chem.StereoSpecified.Specified for element in _elements(smiles)]
    return canonical_smiles(without_stereo(smiles)) if defined == [True] else None


@lru_cache(KNOWN)
def undefined_kinds(smiles: str) -> frozenset[Any]:
    """Return the kinds of the undefined stereo elements of a molecule, such as `Chem.StereoType.Atom_Tetrahedral`."""
    return frozenset(
        element.type for element in _elements(smiles) if element.specified != Chem.StereoSpecified.Specified
    )


def _elements(smiles: str) -> Any:
    """Return the stereocentres and double bonds of a molecule without its isotopes, as RDKit describes them."""
    molecule: Any = Chem.Mol(structure(smiles))
    for atom in molecule.GetAtoms():
        atom.SetIsotope(0)
    return Chem.FindPotentialStereo(molecule)


def compare(product: Chem.Mol, reactants: Chem.Mol, mapped: Any) -> StereoComparison:
    """Compare the stereochemistry of a product and its reactants.

    Args:
        product: the product.
        reactants: the reactants, as one molecule of several parts.
        mapped: the reactants whose atom maps are the indices of the product's atoms, counted from 1, as one molecule
            too.
    """
    pattern, numbers = without_maps(mapped), [atom.GetAtomMapNum() for atom in mapped.GetAtoms()]
    try:
        places = reactants.GetSubstructMatches(pattern, bounded_search(uniquify=False, maxMatches=_MOST_MAPPINGS))
    except SearchTooLong:
        return StereoComparison(None, False)
    after, before = _Side(product), _Side(reactants)
    best: StereoComparison | None = None
    # equivalent atoms are mapped as they fit best: those of the reactants, and if none fits those of the product too
    for order in _orders(product):
        after.number({place: number + 1 for place, number in enumerate(order)})
        for atoms in places:
            before.number(dict(zip(atoms, numbers, strict=True)))
            comparison = _compare(after, before)
            if best is None or _badness(comparison) < _badness(best):
                best = comparison
        if best is None or not any(_badness(best)):
            break
    return best or StereoComparison(None, False)


def _orders(molecule: Any) -> Iterator[Sequence[int]]:
    """Yield the order of a molecule's atoms, then those that give the same molecule without its stereochemistry."""
    yield range(molecule.GetNumAtoms())
    with suppress(SearchTooLong):
        yield from molecule.GetSubstructMatches(molecule, bounded_search(uniquify=False, maxMatches=_MOST_MAPPINGS))


def _badness(comparison: StereoComparison) -> tuple[bool, bool]:
    return comparison.centres is not None, not comparison.is_kept


def _compare(after: _Side, before: _Side) -> StereoComparison:
    changes = [*_centres(after, before), *_double_bonds(after, before)]
    wrong = next((change for change in ("inverted", "defined") if change in changes), None)
    anomer = next((anomer for anomer in get_args(Anomer)[::-1] if anomer in changes), None)
    return StereoComparison(wrong, set(changes) <= {"kept", *get_args(Anomer)}, anomer)


class _Side:
    """A side of a step: a molecule, the number of each atom, and which atoms and bonds may have stereochemistry."""

    def __init__(self, molecule: Any):
        # a copy, because RDKit appends to the notes on rings with each call, so that each takes longer than the last
        self.molecule: Any = Chem.Mol(molecule)
        stereo = list(Chem.FindPotentialStereo(self.molecule))
        self.molecule, self.bridgeheads = with_bridgeheads(self.molecule)
        self.centres = {info.centeredOn for info in stereo if info.type == Chem.StereoType.Atom_Tetrahedral}
        self.bonds = {info.centeredOn for info in stereo if info.type == Chem.StereoType.Bond_Double}
        self.anomeric, self.hemiacetals = (
            {place for (place,) in self.molecule.GetSubstructMatches(pattern)} for pattern in (_ANOMERIC, _HEMIACETAL)
        )
        self.beside_acyl: dict[int, Anomer] = {
            place: "cis" if hand == other else "trans"
            for (hand, other), pattern in _BESIDE_ACYL.items()
            for place, *_ in self.molecule.GetSubstructMatches(pattern, useChirality=True)
        }

    def number(self, numbers: dict[int, int]) -> None:
        """Set the numbers of the atoms."""
        self.numbers = numbers
        self.places = {number: place for place, number in numbers.items() if number}

    def label(self, place: int) -> int:
        """Return the number of an atom, or a negative one if it is not in the product."""
        return self.numbers.get(place) or -1 - place

    def around(self, place: int, but: int | None = None) -> list[int]:
        """Return the labels of the neighbours of an atom, in the order of its bonds."""
        atom = self.molecule.GetAtomWithIdx(place)
        return [self.label(neighbour.GetIdx()) for neighbour in atom.GetNeighbors() if neighbour.GetIdx() != but]

    def handedness(self, place: int) -> int | None:
        """Return the handedness of an atom by the order of the labels around it, None if it has none."""
        tag = int(self.molecule.GetAtomWithIdx(place).GetChiralTag())
        if not tag:
            return None
        labels = self.around(place)
        swaps = sum(label > other for index, label in enumerate(labels) for other in labels[index + 1 :])
        return (tag + swaps) % 2

    def cis(self, begin: int, end: int) -> tuple[int, int, bool] | None:
        """Return the labels of two neighbours of a double bond and whether they are cis, None if that is unknown."""
        bond = self.molecule.GetBondBetweenAtoms(begin, end)
        ring = next((ring for ring in self.molecule.GetRingInfo().AtomRings() if {begin, end} <= set(ring)), ())
        if bond.GetStereo() > Chem.BondStereo.STEREOANY:
            atoms = list(bond.GetStereoAtoms())
            if bond.GetBeginAtomIdx() != begin:
                atoms.reverse()
            is_cis = bond.GetStereo() in (Chem.BondStereo.STEREOZ, Chem.BondStereo.STEREOCIS)
        elif 0 < len(ring) < _SMALLEST_TRANS_RING:
            is_cis = True
            atoms = [self._neighbour_in(ring, begin, end), self._neighbour_in(ring, end, begin)]
        else:
            return None
        return self.label(atoms[0]), self.label(atoms[1]), is_cis

    def _neighbour_in(self, ring: Any, place: int, but: int) -> int:
        """Return the neighbour of an atom in a ring, besides another one."""
        neighbours = (neighbour.GetIdx() for neighbour in self.molecule.GetAtomWithIdx(place).GetNeighbors())
        return next(index for index in neighbours if index in ring and index != but)


def _centres(after: _Side, before: _Side) -> Iterator[Change]:
    for number, place in after.places.items():
        if (old := before.places.get(number)) is None:
            continue
        new_hand, old_hand = after.handedness(place), before.handedness(old)
        is_fixed = place in after.bridgeheads or old in before.bridgeheads
        if new_hand is None and (old_hand is None or place not in after.centres or is_fixed):
            continue
        has_other_neighbours = sorted(after.around(place)) != sorted(before.around(old))
        if (has_other_neighbours and old in before.anomeric) or (new_hand != old_hand and old in before.hemiacetals):
            yield after.beside_acyl.get(place, "anomeric")
        elif has_other_neighbours or new_hand is None:
            yield "changed"
        elif old_hand is None:
            yield "defined" if old in before.centres and not is_fixed else "changed"
        else:
            yield "kept" if new_hand == old_hand else "inverted"


def _double_bonds(after: _Side, before: _Side) -> Iterator[Change]:
    for bond in after.molecule.GetBonds():
        if bond.GetBondType() != Chem.BondType.DOUBLE:
            continue
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        old_ends: Any = [before.places.get(after.label(end)) for end in ends]
        old_bond = None if None in old_ends else before.molecule.GetBondBetweenAtoms(*old_ends)
        new = after.cis(*ends)
        if old_bond is None or old_bond.GetBondType() != Chem.BondType.DOUBLE:
            if bond.GetStereo() > Chem.BondStereo.STEREOANY:
                yield "changed"
            continue
        old = before.cis(*old_ends)
        if new is None or old is None:
            if new is not old and (bond.GetIdx() in after.bonds or old is None):
                yield "changed" if new is None or old_bond.GetIdx() in before.bonds else "kept"
            continue
        yield _compared(after, before, ends, old_ends, new, old)


def _compared(after: _Side, before: _Side, ends: Any, old_ends: Any, new: Any, old: Any) -> Change:
    is_same = new[2] == old[2]
    for side, (end, old_end) in enumerate(zip(ends, old_ends, strict=True)):
        now, then = after.around(end, ends[1 - side]), before.around(old_end, old_ends[1 - side])
        if not (common := set(now) & set(then)):
            if len(now) != 1 or len(then) != 1:
                return "changed"
            continue  # the one replaces the other
        reference = common.pop()
        is_same ^= (new[side] != reference) ^ (old[side] != reference)
    return "kept" if is_same else "changed"

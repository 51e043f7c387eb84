"""Which of several sites of the reactants reacts: a linear softmax over their environments, learned from recorded
reactions.

An atom that reacts was chosen among all atoms that could do the same: heteroatoms that bind, carbon atoms with
hydrogen, with a leaving group, with a carbonyl group, and so on. The score of a candidate is the sum of the weights of
its environments and of those of the atoms near it, alone and together with what it binds to. Weights are whole
numbers, so that sums are the same on every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray
from rdkit import Chem

from ..chemistry.changes import RADIUS, Change, atom_class, atoms_of, bond_kind, without_maps

# The number of bits of a feature's number, and the largest number of bonds to atoms near a candidate.
BITS, _NEAR = 21, 5
# The ring sizes that a tether reaches.
_RINGS = range(3, 9)
# What a carbon atom loses, the first of which names its kind of site.
_LOSSES = ("leaving group", "metal", "hetero=", "carbon=")
_MIX, _MULTIPLY = numpy.uint64(0x9E3779B97F4A7C15), numpy.uint64(0xBF58476D1CE4E5B9)


class Choice(NamedTuple):
    """A site that reacts, and the others that could have reacted.

    Args:
        kind: the kind of the site.
        context: what is the same for all candidates, from the general to the particular: the kind, the atom to which
            the site binds, and that atom with its neighbours and what it loses.
        candidates: indices of atoms of the reactants, the site that reacts first. Symmetric ones are one.
        with_partner: for each, whether it is in the molecule of the atom to which the site binds, and not in that of
            the site. Weights are learned without such leaving groups, because chemists avoid these reagents.
        rings: for each, the size of the ring that would close, or 0.
    """

    kind: str
    context: tuple[Any, Any, Any]
    candidates: list[int]
    with_partner: list[bool]
    rings: list[int]


def kind_of(change: Change, atom: Any) -> str | None:
    """Return the kind of the site that changes, or None if it is none."""
    lost, site = {kind for kind, _ in change.lost}, atom_class(atom)
    if site == "hetero":
        if change.gained:
            return "binds"
        if change.hydrogens > 0 and lost:
            return "reduced" if any(kind.endswith("=") for kind in lost) else "released"
    elif site is not None:
        if (loss := next((loss for loss in _LOSSES if loss in lost), None)) is not None:
            return loss
        if "hetero" in lost and (change.gained or change.hydrogens > 0):
            return _beside_hetero(site)
        if not lost and change.hydrogens < 0 and change.gained:
            return f"{site} CH"
        if not lost and change.hydrogens < 0 and change.strengthened and site == "sp3":
            return "oxidised CH"
    return None


def _beside_hetero(site: str) -> str:
    return "sp3 hetero" if site == "sp3" else "other hetero"


def could_be(atom: Any, kind: str) -> bool:
    """Return whether an atom could be a site of a kind."""
    site = atom_class(atom)
    if site == "hetero":
        if kind == "binds":
            return True
        bonds = {bond_kind(bond, atom) for bond in atom.GetBonds()}
        if kind == "reduced":
            return any(bond.endswith("=") for bond in bonds)
        return kind == "released" and not bonds.isdisjoint({"carbon", "hetero", "metal"})
    if site is None:
        return False
    if kind in (f"{site} CH", "oxidised CH"):
        return atom.GetTotalNumHs() > 0 and (kind != "oxidised CH" or site == "sp3")
    loss = "hetero" if kind == _beside_hetero(site) else kind
    return loss in (*_LOSSES, "hetero") and any(bond_kind(bond, atom) == loss for bond in atom.GetBonds())


def choices(reactants: Any, product: Any, changed: list[Change]) -> Iterator[Choice]:
    """Yield the sites of a step that react, those that were chosen among several.

    Args:
        reactants, product (`Chem.Mol`): as in [`~chemistry.changes.changes`].
        changed: what happens to the atoms.
    """
    atoms = atoms_of(reactants)
    sites = [(change, kind) for change in changed if (kind := kind_of(change, atoms[change.before])) is not None]
    if not sites:
        return
    numbers = {atom.GetAtomMapNum() for atom in atoms_of(product)} - {0}
    before = {atom.GetAtomMapNum(): atom.GetIdx() for atom in atoms if atom.GetAtomMapNum() in numbers}
    ranks = _symmetry_classes(reactants, any(atom_class(atoms[change.before]) == "hetero" for change, _ in sites))
    fragment_of = {place: number for number, places in enumerate(Chem.GetMolFrags(reactants)) for place in places}
    distances = Chem.GetDistanceMatrix(reactants)
    distinct = {(kind, ranks[change.before]): change for change, kind in sites}
    for (kind, _), change in distinct.items():
        partner = product.GetAtomWithIdx(change.gained[0]) if change.gained else None
        origin = before.get(partner.GetAtomMapNum()) if partner is not None else None
        fragment = None if origin is None else fragment_of[origin]
        is_closing = fragment == fragment_of[change.before]
        others = dict[int, int]()
        for place in before.values():
            is_free = (kind, ranks[place]) not in distinct and place != origin and could_be(atoms[place], kind)
            if is_closing:
                is_free &= fragment_of[place] == fragment and distances[place, origin] + 1 in _RINGS
            if is_free:
                others.setdefault(ranks[place], place)
        if others:
            candidates = [change.before, *others.values()]
            rings = [int(distances[place, origin]) + 1 if is_closing else 0 for place in candidates]
            shared = [not is_closing and fragment_of[place] == fragment for place in candidates]
            yield Choice(kind, _context(kind, change, partner, origin, reactants, numbers), candidates, shared, rings)


def _symmetry_classes(molecule: Any, has_hetero: bool) -> list[int]:
    """Return equal numbers for the atoms that symmetry does not tell apart, and for heteroatoms that tautomers or
    resonance make equal, such as the oxygen atoms of an acid, if there are such sites.
    """
    ranks = list(Chem.CanonicalRankAtoms(molecule, breakTies=False, includeAtomMaps=False))
    if not has_hetero:
        return ranks
    graph: Any = Chem.RWMol(without_maps(molecule))
    for bond in graph.GetBonds():
        bond.SetBondType(Chem.BondType.SINGLE)
        bond.SetIsAromatic(False)
    for atom in atoms_of(graph):
        atom.SetIsAromatic(False)
        atom.SetFormalCharge(0)
        atom.SetNoImplicit(True)
        atom.SetNumExplicitHs(0)
    graph.UpdatePropertyCache(strict=False)
    of_graph = Chem.CanonicalRankAtoms(graph, breakTies=False, includeChirality=False)
    is_hetero = [atom_class(atom) == "hetero" for atom in atoms_of(molecule)]
    return [-1 - of_graph[place] if is_hetero[place] else rank for place, rank in enumerate(ranks)]


def _context(
    kind: str, change: Change, partner: Any, origin: int | None, reactants: Any, numbers: set[int]
) -> tuple[Any, Any, Any]:
    if partner is None:
        return kind, (kind, change.strengthened), None
    bonds = [bond for bond in partner.GetBonds() if bond.GetOtherAtomIdx(partner.GetIdx()) != change.after]
    around = sorted((int(2 * bond.GetBondTypeAsDouble()), bond.GetOtherAtom(partner).GetAtomicNum()) for bond in bonds)
    general = kind, partner.GetAtomicNum(), partner.GetIsAromatic(), around.count((4, 8))
    lost = None
    if origin is not None:
        neighbours = reactants.GetAtomWithIdx(origin).GetNeighbors()
        lost = sorted(other.GetAtomicNum() for other in neighbours if other.GetAtomMapNum() not in numbers)
    return kind, general, (general, partner.GetTotalNumHs(), around, lost)


class Sites:
    """The weights of the sites.

    Args:
        weights: whole numbers, of shape `(2**BITS,)`.
        scale: the value of a weight of 1.
    """

    def __init__(self, weights: NDArray[numpy.int8], scale: float):
        self._weights, self._scale = weights, scale

    def probabilities(self, choice: Choice, near: Environments) -> list[float]:
        """Return the probability of each candidate of a choice."""
        features, candidates = near.features(choice)
        sums = numpy.bincount(candidates, self._weights[features], len(choice.candidates))
        shares = numpy.exp(self._scale * (sums - sums.max()))
        return (shares / shares.sum()).tolist()


class Environments:
    """The environments of the atoms of reactants.

    Args:
        reactants (`Chem.Mol`): the reactants as one molecule.
        numbers: their environments, as [`~chemistry.changes.environments`] returns them.
    """

    def __init__(self, reactants: Any, numbers: NDArray[numpy.uint64]):
        self.numbers, self._distances = numbers, Chem.GetDistanceMatrix(reactants)

    def features(self, choice: Choice) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Return the numbers of the features of the candidates of a choice, and the place of the candidate of each."""
        keys = numpy.array([zlib.crc32(repr(key).encode()) for key in choice.context], numpy.uint64)
        places = numpy.array(choice.candidates)
        candidates, others = numpy.nonzero((self._distances[places] > 0) & (self._distances[places] <= _NEAR))
        distances = self._distances[places[candidates], others].astype(numpy.uint64)
        radii = numpy.arange(RADIUS + 1, dtype=numpy.uint64)
        around = _mixed(self.numbers[places] * numpy.uint64(31) + radii)
        near = _mixed(self.numbers[others, 1] * numpy.uint64(37) + distances + numpy.uint64(100))
        relation = 200 + numpy.array(choice.rings, numpy.uint64)
        related = _mixed(self.numbers[places, 1:3] + relation[:, None] * numpy.uint64(1009))
        rows = numpy.arange(len(places))
        pieces = [
            (_crossed(around, keys), rows.repeat(around[0].size * len(keys))),
            (_crossed(near, keys[:2]), candidates.repeat(2)),
            (_crossed(_mixed(relation), keys[:2]), rows.repeat(2)),
            (_crossed(related, keys[:1]), rows.repeat(2)),
        ]
        features = numpy.concatenate([piece for piece, _ in pieces]) >> numpy.uint64(64 - BITS)
        return features.astype(numpy.int64), numpy.concatenate([row for _, row in pieces])


def _mixed(numbers: NDArray[numpy.uint64]) -> NDArray[numpy.uint64]:
    """Return numbers with their bits mixed, as SplitMix64 does (Steele et al. 2014, doi 10.1145/2714064.2660195)."""
    with numpy.errstate(over="ignore"):
        numbers = numbers * _MULTIPLY
        return (numbers ^ numbers >> numpy.uint64(29)) * _MIX


def _crossed(numbers: NDArray[numpy.uint64], keys: NDArray[numpy.uint64]) -> NDArray[numpy.uint64]:
    """Return a number for each pair of a number and a key, flat, the pairs of a row together."""
    with numpy.errstate(over="ignore"):
        return _mixed(numbers[..., None] + keys * _MIX).ravel()

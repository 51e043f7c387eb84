"""The positions of aromatic rings that recorded reactions take, and those that they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rdkit import Chem

ORIENTATION = "orientation.json"
_BENZENE = 6
# Aromatic carbon atoms with an atom that can leave.
_LEAVING = [Chem.MolFromSmarts(smarts) for smarts in ("[cH]", "cF", "cCl", "cBr", "cI")]
_META = 2
# A substituent without a name in the table.
UNNAMED = "another group"


class Place(NamedTuple):
    """What is known of a position of an aromatic ring.

    Args:
        bonds: the number of bonds to a substituent of the same benzene ring, or 0.
        what: the name of the substituent, or with 0 the SMILES of a ring system in which the position has the number 1.
    """

    bonds: int
    what: str

    def __str__(self) -> str:
        relation = ("", "ortho", "meta", "para")[self.bonds]
        return f"a position {relation} to {self.what}" if relation else f"position 1 of {self.what}"


class Substitution(NamedTuple):
    """A substitution at an aromatic carbon atom whose ring stays.

    Args:
        kind: what leaves and what comes, such as `H by a nitro group`.
        taken: what is known of its position.
        others: the same for each other position of the ring system from which the same atom could leave.
    """

    kind: str
    taken: frozenset[Place]
    others: tuple[frozenset[Place], ...]


def substitutions(product: Any, reactants: Any) -> Iterator[Substitution]:
    """Yield the aromatic substitutions of a step that could have taken another position.

    Args:
        product (`Chem.Mol`): the product with atom maps.
        reactants (`Chem.Mol`): the reactants with the same atom maps, as one molecule of several parts.
    """
    if _num_leaving(reactants) == _num_leaving(product):  # most steps, and quick to see
        return
    after = {atom.GetAtomMapNum(): atom for atom in product.GetAtoms() if atom.GetIsAromatic()}
    names: tuple[dict[int, str], dict[int, str]] | None = None
    for atom in reactants.GetAtoms():
        now, left = after.get(atom.GetAtomMapNum()), _leaving(atom)
        if left is None or now is None:
            continue
        (ring, before), (same_ring, bound) = _neighbours(atom), _neighbours(now)
        if ring != same_ring or len(bound) != 1 or not bound.isdisjoint(before):
            continue
        system = _ring_system(atom)
        others = [one for one in system if one.GetIdx() != atom.GetIdx() and _leaving(one) == left]
        # a position whose atom leaves as well is none of the others
        others = [one for one in others if _neighbours(one) == _neighbours(after.get(one.GetAtomMapNum(), one))]
        if others:
            names = names or (_substituents(reactants), _substituents(product))
            if came := names[1].get(now.GetIdx()):
                taken, *left_alone = (_place(one, system, names[0]) for one in (atom, *others))
                yield Substitution(f"{left} by {came}", taken, tuple(left_alone))


def unseen_positions(product: str, mapped: str) -> list[tuple[str, str, int, int]]:
    """Return the positions of aromatic rings that a step takes, but hardly any similar recorded reactions.

    Args:
        product: canonical SMILES of the product.
        mapped: SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.

    Returns:
        The kind as in [`Substitution`], the position in words, the number of recorded reactions of this kind that took
        such a position, and the number of those that could have taken it.
    """
    found = [
        (one.kind, place, *_unseen()[one.kind][place])
        for one in _of_step(product, Chem.MolFromSmiles(mapped))
        for place in map(str, one.taken)
        if place in _unseen().get(one.kind, ())
    ]
    return sorted(set(found))


def misdirection(name: str | None, product: str, reactants: Any) -> str | None:
    """Return why an electrophile does not enter a benzene ring where a step says, or None.

    An oxygen or amino group directs to its *ortho* and *para* positions, whatever else is there. Without one, a
    position is wrong if no substituent directs to it.

    Args:
        name: the common name of the transformation.
        product: canonical SMILES of the product.
        reactants (`Chem.Mol`): the reactants, whose atoms have the numbers of the product's atoms, counted from 1.
    """
    directing = _table()["directing"]
    if name is not None and name not in directing["steps"]:
        return None
    for one in _of_step(product, reactants):
        if one.kind not in directing["kinds"] and name not in directing["always"]:
            continue
        weak = directing["not"].get(one.kind, ())
        places = [place for place in one.taken if place.bonds and place.what not in weak]
        strong = [place for place in places if place.what in directing["strong"]]
        if strong and all(place.bonds == _META for place in strong):
            return f"{strong[0].what} directs to its ortho and para positions"
        if places and not strong and all(
            place.bonds == _META if place.what in directing["ortho and para"]
            else place.bonds != _META and place.what in directing["meta"]
            for place in places
        ):  # fmt: skip
            where = "meta position" if places[0].what in directing["meta"] else "ortho and para positions"
            return f"{places[0].what} directs to its {where}"
    return None


def _of_step(product: str, reactants: Any) -> list[Substitution]:
    """Return the substitutions of a step, given the reactants with the numbers of the product's atoms."""
    made: Any = Chem.MolFromSmiles(product)
    if made is None or reactants is None:
        return []
    for place in range(made.GetNumAtoms()):
        made.GetAtomWithIdx(place).SetAtomMapNum(place + 1)
    return list(substitutions(made, reactants))


def _neighbours(atom: Any) -> tuple[set[int], set[int]]:
    """Return the numbers of the neighbours of an aromatic atom in aromatic bonds, and those of the others."""
    ring, others = set[int](), set[int]()
    for bond in atom.GetBonds():
        (ring if bond.GetIsAromatic() else others).add(bond.GetOtherAtom(atom).GetAtomMapNum())
    return ring, others


def _leaving(atom: Any) -> str | None:
    """Return the symbol of the only atom that can leave an aromatic carbon atom, such as H or Cl, or None."""
    if atom.GetSymbol() != "C":
        return None
    if atom.GetTotalNumHs():
        return "H"
    outside = [bond for bond in atom.GetBonds() if not bond.GetIsAromatic()]
    if len(outside) != 1 or outside[0].IsInRing():
        return None
    other = outside[0].GetOtherAtom(atom)
    return other.GetSymbol() if other.GetSymbol() in ("F", "Cl", "Br", "I") else None


def _num_leaving(molecule: Any) -> list[int]:
    """Return the numbers of aromatic carbon atoms with each of the atoms that can leave."""
    return [len(molecule.GetSubstructMatches(pattern)) for pattern in _LEAVING]


def _ring_system(atom: Any) -> list[Any]:
    """Return the atoms that aromatic bonds connect with an atom, itself among them."""
    found, to_visit = {atom.GetIdx(): atom}, [atom]
    while to_visit:
        for bond in (one := to_visit.pop()).GetBonds():
            other = bond.GetOtherAtom(one)
            if bond.GetIsAromatic() and other.GetIdx() not in found:
                found[other.GetIdx()] = other
                to_visit.append(other)
    return list(found.values())


def _place(atom: Any, system: list[Any], names: Mapping[int, str]) -> frozenset[Place]:
    """Return what is known of a position, with the names of the substituents."""
    is_benzene = len(system) == _BENZENE and all(one.GetSymbol() == "C" for one in system)
    found = set() if is_benzene else {Place(0, _drawn(atom, system))}
    molecule = atom.GetOwningMol()
    for ring in molecule.GetRingInfo().AtomRings():
        if atom.GetIdx() in ring and len(ring) == _BENZENE:
            atoms = [molecule.GetAtomWithIdx(index) for index in ring]
            if all(one.GetSymbol() == "C" for one in atoms):
                here = ring.index(atom.GetIdx())
                for place, one in enumerate(atoms):
                    bonds = min(abs(here - place), _BENZENE - abs(here - place))
                    if bonds and one.GetDegree() > 2:
                        found.add(Place(bonds, names.get(one.GetIdx(), UNNAMED)))
    return frozenset(found)


def _drawn(atom: Any, system: list[Any]) -> str:
    """Return the SMILES of a ring system without substituents, in which an atom has the number 1."""
    molecule, symbols = atom.GetOwningMol(), {}
    for one in system:
        has_oxo = any(bond.GetBondTypeAsDouble() == 2 for bond in one.GetBonds())
        symbol = one.GetSymbol().lower()
        if one.GetSymbol() == "N" and one.GetDegree() + one.GetTotalNumHs() > 2:
            symbol = "[n+]" if one.GetFormalCharge() else "[nH]"
        symbols[one.GetIdx()] = f"{symbol}(=O)" if has_oxo else symbol
    symbols[atom.GetIdx()] = f"[{atom.GetSymbol().lower()}:1]"
    texts = [symbols.get(index, "*") for index in range(molecule.GetNumAtoms())]
    bare = Chem.Mol(molecule)
    for one in bare.GetAtoms():
        one.SetAtomMapNum(0)
    return Chem.MolFragmentToSmiles(bare, list(symbols), atomSymbols=texts, isomericSmiles=False)


def _substituents(molecule: Any) -> dict[int, str]:
    """Return the names of the substituents of aromatic carbon atoms, by the index of these atoms."""
    found: dict[int, str] = {}
    for name, pattern in _patterns().items():
        for ring_atom, *_ in molecule.GetSubstructMatches(pattern):
            found.setdefault(ring_atom, name)
    return found


@cache
def _table() -> dict[str, Any]:
    return json.loads(files("weftformer.routes.chemistry").joinpath(ORIENTATION).read_text(encoding="utf-8"))


@cache
def _patterns() -> dict[str, Any]:
    return {name: Chem.MolFromSmarts(smarts) for name, smarts in _table()["substituents"].items()}


def _unseen() -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Return, for each kind of substitution, the positions that are hardly ever taken, with the number of reactions
    that took them and the number of those that could have.
    """
    return _table()["unseen"]

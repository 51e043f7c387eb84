"""The positions of aromatic rings that recorded reactions take, and those that they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rdkit import Chem

from .groups import GROUPS

ORIENTATION = "orientation.json"
# The relation of two positions of a benzene ring, by the number of bonds between them.
_RELATIONS = {1: "ortho", 2: "meta", 3: "para"}
_BENZENE = 6
# Aromatic carbon atoms with an atom that can leave.
_LEAVING = [Chem.MolFromSmarts(smarts) for smarts in ("[cH]", "cF", "cCl", "cBr", "cI")]


class Substitution(NamedTuple):
    """A substitution at an aromatic carbon atom whose ring stays.

    Args:
        kind: what leaves and what comes, such as `H by a nitro group`.
        taken: what is known of its position: where it is in its ring system, such as `position 1 of [c:1]1ccco1`, and
            where it is from the substituents of a benzene ring, such as `a position meta to a nitro group`.
        others: the same for each other position of the ring system from which the same atom could leave.
    """

    kind: str
    taken: frozenset[str]
    others: tuple[frozenset[str], ...]


def substitutions(product: Any, reactants: Any) -> Iterator[Substitution]:
    """
    Yield the aromatic substitutions of a step that could have taken another position.

    Args:
        product (`Chem.Mol`):
            The product with atom maps.
        reactants (`Chem.Mol`):
            The reactants with the same atom maps, as one molecule of several parts.
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
    """
    Return the positions that the aromatic substitutions of a step take and those of recorded reactions hardly ever
    took.

    Args:
        product (`str`):
            Canonical SMILES of the product.
        mapped (`str`):
            SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.

    Returns:
        `list[tuple[str, str, int, int]]`: the kind and the position as in [`Substitution`], the number of recorded
        reactions of this kind that took such a position, and of those that could have.
    """
    reactants, made = Chem.MolFromSmiles(mapped), Chem.MolFromSmiles(product)
    if reactants is None or made is None:
        return []
    for place in range(made.GetNumAtoms()):
        made.GetAtomWithIdx(place).SetAtomMapNum(place + 1)
    return sorted(
        {
            (one.kind, position, *_table()[one.kind][position])
            for one in substitutions(made, reactants)
            for position in one.taken.intersection(_table().get(one.kind, ()))
        }
    )


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


def _place(atom: Any, system: list[Any], names: Mapping[int, str]) -> frozenset[str]:
    """Return what is known of a position, with the names of the substituents."""
    molecule = atom.GetOwningMol()
    rings = [ring for ring in molecule.GetRingInfo().AtomRings() if atom.GetIdx() in ring]
    is_benzene = len(system) == _BENZENE and all(one.GetSymbol() == "C" for one in system)
    found = set() if is_benzene else {f"position 1 of {_drawn(atom, system)}"}
    for ring in rings:
        if len(ring) == _BENZENE and all(molecule.GetAtomWithIdx(index).GetSymbol() == "C" for index in ring):
            here = ring.index(atom.GetIdx())
            for place, index in enumerate(ring):
                apart = min(abs(here - place), _BENZENE - abs(here - place))
                if apart and index in names:
                    found.add(f"a position {_RELATIONS[apart]} to {names[index]}")
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
    for name, pattern in _directing().items():
        for ring_atom, *_ in molecule.GetSubstructMatches(pattern):
            found.setdefault(ring_atom, name)
    return found


@cache
def _directing() -> dict[str, Any]:
    table = json.loads(files("weftformer.routes.shipped").joinpath(GROUPS).read_text(encoding="utf-8"))
    return {name: Chem.MolFromSmarts(smarts) for name, smarts in table["substituents"].items()}


@cache
def _table() -> Mapping[str, Mapping[str, tuple[int, int]]]:
    text = files("weftformer.routes.shipped").joinpath(ORIENTATION).read_text(encoding="utf-8")
    return {
        kind: {place: tuple(counts) for place, counts in places.items()} for kind, places in json.loads(text).items()
    }

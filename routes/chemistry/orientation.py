"""The positions of aromatic rings that recorded reactions take, and those that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rdkit import Chem

from .tables import table, table_patterns

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
        what: the name of the substituent, or with 0 the SMILES of a ring system in which the position has the number
            1.
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
        free: the same for each other position of the ring system from which the same atom could leave.
    """

    kind: str
    taken: frozenset[Place]
    free: tuple[frozenset[Place], ...]


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
    places = {atom.GetAtomMapNum(): atom.GetIdx() for atom in reactants.GetAtoms() if atom.GetAtomMapNum()}
    fragments = {index: number for number, atoms in enumerate(Chem.GetMolFrags(reactants)) for index in atoms}
    for atom in reactants.GetAtoms():
        now, symbol = after.get(atom.GetAtomMapNum()), _leaving(atom)
        if symbol is None or now is None:
            continue
        (ring, before), (same_ring, bound) = _neighbours(atom), _neighbours(now)
        if ring != same_ring or len(bound) != 1 or not bound.isdisjoint(before):
            continue
        if fragments[atom.GetIdx()] == fragments.get(places.get(next(iter(bound)), -1)):
            continue  # a ring closes, and the tether decides
        system = _ring_system(atom)
        positions = [other for other in system if other.GetIdx() != atom.GetIdx() and _leaving(other) == symbol]
        # a position whose atom leaves as well is none of the others
        positions = [
            other for other in positions if _neighbours(other) == _neighbours(after.get(other.GetAtomMapNum(), other))
        ]
        if positions:
            names = names or (_substituents(reactants), _substituents(product))
            if substituent := names[1].get(now.GetIdx()):
                place, *free = (_place(position, system, names[0]) for position in (atom, *positions))
                yield Substitution(f"{symbol} by {substituent}", place, tuple(free))


def positions(steps: Iterable[Substitution]) -> Iterator[tuple[str, str]]:
    """Yield the kind of each substitution, with each description of the position that it takes."""
    for substitution in steps:
        for place in substitution.taken:
            yield substitution.kind, str(place)


def position_counts() -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Return, for each kind of substitution, the positions that are hardly ever taken, with the number of recorded
    reactions that took them and the number of those that could have.
    """
    return table(ORIENTATION)["unseen"]


def may_be_misdirected(name: str | None) -> bool:
    """Return whether [`misdirection`] knows a transformation: a quick test, before substitutions are looked for."""
    return name is None or name in table(ORIENTATION)["directing"]["steps"]


def misdirection(name: str | None, steps: Iterable[Substitution]) -> str | None:
    """Return why an electrophile does not enter a benzene ring where a step says, or None.

    An oxygen or amino group directs to its *ortho* and *para* positions, whatever else is there. Without one, a
    position is wrong if no substituent directs to it.

    Args:
        name: the common name of the transformation.
        steps: the aromatic substitutions of the step.
    """
    directing = table(ORIENTATION)["directing"]
    for substitution in steps:
        if substitution.kind not in directing["kinds"] and name not in directing["always"]:
            continue
        weak = directing["not"].get(substitution.kind, ())
        places = [place for place in substitution.taken if place.bonds and place.what not in weak]
        strong = [place for place in places if place.what in directing["strong"]]
        if strong and all(place.bonds == _META for place in strong):
            return f"{strong[0].what} directs to its ortho and para positions"
        if places and not strong and all(_is_misplaced(place, directing) for place in places):
            where = "meta position" if places[0].what in directing["meta"] else "ortho and para positions"
            return f"{places[0].what} directs to its {where}"
    return None


def _is_misplaced(place: Place, directing: Mapping[str, Any]) -> bool:
    """Return whether a substituent directs to other positions."""
    if place.what in directing["ortho and para"]:
        return place.bonds == _META
    return place.bonds != _META and place.what in directing["meta"]


def _neighbours(atom: Any) -> tuple[set[int], set[int]]:
    """Return the numbers of the neighbours of an aromatic atom in aromatic bonds, and those of the others."""
    ring, outside = set[int](), set[int]()
    for bond in atom.GetBonds():
        (ring if bond.GetIsAromatic() else outside).add(bond.GetOtherAtom(atom).GetAtomMapNum())
    return ring, outside


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
    system, to_visit = {atom.GetIdx(): atom}, [atom]
    while to_visit:
        place = to_visit.pop()
        for bond in place.GetBonds():
            neighbour = bond.GetOtherAtom(place)
            if bond.GetIsAromatic() and neighbour.GetIdx() not in system:
                system[neighbour.GetIdx()] = neighbour
                to_visit.append(neighbour)
    return list(system.values())


def _place(atom: Any, system: list[Any], names: Mapping[int, str]) -> frozenset[Place]:
    """Return what is known of a position, with the names of the substituents."""
    is_benzene = len(system) == _BENZENE and all(member.GetSymbol() == "C" for member in system)
    places = set() if is_benzene else {Place(0, _drawn(atom, system))}
    molecule = atom.GetOwningMol()
    for ring in molecule.GetRingInfo().AtomRings():
        if atom.GetIdx() in ring and len(ring) == _BENZENE:
            atoms = [molecule.GetAtomWithIdx(index) for index in ring]
            if all(member.GetSymbol() == "C" for member in atoms):
                here = ring.index(atom.GetIdx())
                for index, member in enumerate(atoms):
                    bonds = min(abs(here - index), _BENZENE - abs(here - index))
                    if bonds and member.GetDegree() > 2:
                        places.add(Place(bonds, names.get(member.GetIdx(), UNNAMED)))
    return frozenset(places)


def _drawn(atom: Any, system: list[Any]) -> str:
    """Return the SMILES of a ring system without substituents, in which an atom has the number 1."""
    molecule, symbols = atom.GetOwningMol(), {}
    for member in system:
        has_oxo = any(bond.GetBondTypeAsDouble() == 2 for bond in member.GetBonds())
        symbol = member.GetSymbol().lower()
        if member.GetSymbol() == "N" and member.GetDegree() + member.GetTotalNumHs() > 2:
            symbol = "[n+]" if member.GetFormalCharge() else "[nH]"
        symbols[member.GetIdx()] = f"{symbol}(=O)" if has_oxo else symbol
    symbols[atom.GetIdx()] = f"[{atom.GetSymbol().lower()}:1]"
    texts = [symbols.get(index, "*") for index in range(molecule.GetNumAtoms())]
    bare = Chem.Mol(molecule)
    for copied in bare.GetAtoms():
        copied.SetAtomMapNum(0)
    return Chem.MolFragmentToSmiles(bare, list(symbols), atomSymbols=texts, isomericSmiles=False)


def _substituents(molecule: Any) -> dict[int, str]:
    """Return the names of the substituents of aromatic carbon atoms, by the index of these atoms."""
    names: dict[int, str] = {}
    for name, pattern in table_patterns(ORIENTATION, "substituents").items():
        for ring_atom, *_ in molecule.GetSubstructMatches(pattern):
            names.setdefault(ring_atom, name)
    return names

"""What happens to each atom of a mapped step, and the environments of atoms, in which records are compared."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

# The largest number of bonds between an atom and the rest of its environment.
RADIUS = 4
_HALOGENS, _HETERO = frozenset({9, 17, 35, 53}), frozenset({7, 8, 15, 16, 34})
# Lithium, boron, magnesium, aluminium, silicon, manganese, copper, zinc, germanium, tin.
_METALS = frozenset({3, 5, 12, 13, 14, 25, 29, 30, 32, 50})
# The number of atoms from which what leaves is known by its size alone, and the largest ring that is told apart.
_LARGE, _LARGEST_RING = 12, 14
# The bits of an atom's number that are its element and whether it is aromatic, and those of a bond.
_ELEMENT = 0x7F | 1 << 18 | 0x1F << 23
# The bits of the size of its ring, all set where that is left out, and the bit of such a bond.
_ANY_RING, _WITHOUT_RINGS = 0xF << 19, 1 << 27


class Change(NamedTuple):
    """What happens to an atom that is in the reactants and in the product.

    Args:
        before: its index in the reactants.
        after: its index in the product.
        lost: for each of its bonds that breaks or becomes a lower one, its kind, as [`bond_kind`] returns it, and the
            SMILES of the atoms that leave with it, or the symbol of the atom that stays.
        gained: the indices of the atoms of the product to which it is newly bound.
        strengthened: the symbols of the neighbours to which its bond becomes a higher one.
        hydrogens: the number of hydrogens that it gains.
    """

    before: int
    after: int
    lost: tuple[tuple[str, str], ...]
    gained: tuple[int, ...]
    strengthened: tuple[str, ...]
    hydrogens: int


def atoms_of(molecule: Any) -> list[Any]:
    """Return the atoms of a molecule (`Chem.Mol`). RDKit's own sequence of them takes several times as long."""
    return [molecule.GetAtomWithIdx(place) for place in range(molecule.GetNumAtoms())]


def invariants(molecule: Any) -> list[int]:
    """Return a number below 2**23 for the element, hydrogens, neighbours, charge, aromaticity and smallest ring of
    each atom of a molecule (`Chem.Mol`). Atom maps, isotopes and stereochemistry are left out.
    """
    rings = dict[int, int]()
    for ring in sorted(molecule.GetRingInfo().AtomRings(), key=len, reverse=True):
        rings.update(dict.fromkeys(ring, min(len(ring), _LARGEST_RING)))
    return [
        atom.GetAtomicNum()
        | atom.GetTotalNumHs() << 7
        | atom.GetDegree() << 10
        | atom.GetFormalCharge() + 8 << 14
        | atom.GetIsAromatic() << 18
        | rings.get(atom.GetIdx(), 0) << 19
        for atom in atoms_of(molecule)
    ]


def environments(molecule: Any) -> NDArray[numpy.uint64]:
    """Return numbers for the environments of each atom of up to 0, 1, ... `RADIUS` bonds, of shape `(atoms, radii)`.

    Equal environments have equal numbers: those of Morgan fingerprints, from the [`invariants`] of the atoms.

    Args:
        molecule (`Chem.Mol`): the molecule.
    """
    output = rdFingerprintGenerator.AdditionalOutput()
    output.AllocateBitInfoMap()
    _generator().GetSparseFingerprint(molecule, additionalOutput=output, customAtomInvariants=invariants(molecule))
    numbers = numpy.zeros((molecule.GetNumAtoms(), RADIUS + 1), numpy.uint64)
    for number, places in output.GetBitInfoMap().items():
        for place in places:
            numbers[place] = number
    return numbers


@cache
def _generator() -> Any:
    return rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, includeRedundantEnvironments=True)


def without_maps(molecule: Any) -> Any:
    """Return a copy of a molecule (`Chem.Mol`) without atom maps."""
    bare = Chem.Mol(molecule)
    for atom in atoms_of(bare):
        atom.SetAtomMapNum(0)
    return bare


def atom_class(atom: Any) -> str | None:
    """Return the class of an atom: `hetero`, `aromatic`, `sp3` or `unsaturated` (carbon), or None."""
    if atom.GetAtomicNum() in _HETERO:
        return "hetero"
    if atom.GetAtomicNum() != 6:
        return None
    if atom.GetIsAromatic():
        return "aromatic"
    return "sp3" if atom.GetHybridization() == Chem.HybridizationType.SP3 else "unsaturated"


def bond_kind(bond: Any, atom: Any) -> str:
    """Return the kind of a bond of an atom: `leaving group`, `metal`, `hetero`, `carbon` or `aromatic`, with an
    equals sign if it is a multiple one.

    A leaving group is a halogen, the oxygen atom of a sulfonate or a diazonium group at carbon. Boron and silicon
    count as metals.
    """
    other, is_multiple = bond.GetOtherAtom(atom), bond.GetBondTypeAsDouble() > 1
    if bond.GetIsAromatic():
        return "aromatic"
    if atom.GetAtomicNum() == 6 and not is_multiple and _leaves(other, atom):
        return "leaving group"
    number = other.GetAtomicNum()
    kind = "metal" if number in _METALS else "carbon" if number == 6 else "hetero"
    return f"{kind}=" if is_multiple else kind


def _leaves(atom: Any, carbon: Any) -> bool:
    beyond = [other for other in atom.GetNeighbors() if other.GetIdx() != carbon.GetIdx()]
    if atom.GetAtomicNum() == 8:
        return any(other.GetAtomicNum() == 16 and other.GetDegree() > 3 for other in beyond)
    if atom.GetAtomicNum() == 7:
        return atom.GetFormalCharge() == 1 and any(bond.GetBondTypeAsDouble() == 3 for bond in atom.GetBonds())
    return atom.GetAtomicNum() in _HALOGENS


class HalfBond(NamedTuple):
    """A bond as one of its atoms sees it.

    Args:
        place: the index of the atom.
        neighbour: the index of the other atom.
        rest: a number for the atom with its other bonds and neighbours.
        atom: the number of the atom among [`invariants`].
        end: the number of the other atom, with the order of the bond in its upper bits.
    """

    place: int
    neighbour: int
    rest: int
    atom: int
    end: int


def element_of(number: int) -> int:
    """Return the bits of a number that are the element of an atom, its aromaticity, and the bond of a half bond."""
    return number & _ELEMENT


def half_bonds(molecule: Any) -> Iterator[HalfBond]:
    """Yield the bonds of a molecule (`Chem.Mol`) as each of their atoms sees them, with the rings of its neighbours
    and without. Numbers are below 2**32.
    """
    numbers = invariants(molecule)
    without_rings = [number | _ANY_RING for number in numbers]
    for atom in atoms_of(molecule):
        place, bonds = atom.GetIdx(), list(atom.GetBonds())
        others = [bond.GetOtherAtomIdx(place) for bond in bonds]
        orders = [int(2 * bond.GetBondTypeAsDouble()) for bond in bonds]
        for level, around in enumerate((without_rings, numbers)):
            ends = [(order, around[other]) for order, other in zip(orders, others, strict=True)]
            for index, (order, number) in enumerate(ends):
                rest = repr((level, around[place], sorted(ends[:index] + ends[index + 1 :])))
                end = order << 23 | number | (0 if level else _WITHOUT_RINGS)
                yield HalfBond(place, others[index], zlib.crc32(rest.encode()), numbers[place], end)


def changes(reactants: Any, product: Any) -> list[Change]:
    """Return what happens to the atoms of a step, those that change.

    Args:
        reactants (`Chem.Mol`): the reactants as one molecule, with atom maps.
        product (`Chem.Mol`): the product with atom maps.
    """
    after, before = ({atom.GetAtomMapNum(): atom for atom in atoms_of(side)} for side in (product, reactants))
    after.pop(0, None)
    before = {number: atom for number, atom in before.items() if number in after}
    around, around_now = _surroundings(reactants), _surroundings(product)
    changed = [
        number for number, atom in before.items() if around[atom.GetIdx()] != around_now[after[number].GetIdx()]
    ]
    fragments = _leaving_fragments(reactants, {atom.GetIdx() for atom in before.values()})
    rows = []
    for number in changed:
        atom, now = before[number], after[number]
        lost, strengthened, neighbours = list[tuple[str, str]](), list[str](), set[int]()
        for bond in atom.GetBonds():
            other = bond.GetOtherAtom(atom)
            same = 0 if other.GetIdx() in fragments else other.GetAtomMapNum()
            neighbours.add(same)
            new = product.GetBondBetweenAtoms(now.GetIdx(), after[same].GetIdx()) if same else None
            if new is None:
                lost.append((bond_kind(bond, atom), fragments.get(other.GetIdx(), other.GetSymbol())))
            elif not (bond.GetIsAromatic() or new.GetIsAromatic()):
                difference = new.GetBondTypeAsDouble() - bond.GetBondTypeAsDouble()
                if difference < 0:
                    lost.append((bond_kind(bond, atom), other.GetSymbol()))
                elif difference > 0:
                    strengthened.append(other.GetSymbol())
        gained = [other.GetIdx() for other in now.GetNeighbors() if (other.GetAtomMapNum() or -1) not in neighbours]
        hydrogens = now.GetTotalNumHs() - atom.GetTotalNumHs()
        facts = tuple(sorted(lost)), tuple(gained), tuple(sorted(strengthened)), hydrogens
        rows.append(Change(atom.GetIdx(), now.GetIdx(), *facts))
    return rows


def _surroundings(molecule: Any) -> list[tuple[set[tuple[int, Any]], int, int]]:
    """Return the bonds, the hydrogens and the charge of each atom. Bonds have the map of the other atom."""
    atoms = atoms_of(molecule)
    numbers, bonds = [atom.GetAtomMapNum() for atom in atoms], list[set[tuple[int, Any]]](set() for _ in atoms)
    for bond in map(molecule.GetBondWithIdx, range(molecule.GetNumBonds())):
        begin, end, kind = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bond.GetBondType()
        bonds[begin].add((numbers[end], kind))
        bonds[end].add((numbers[begin], kind))
    return [(around, atom.GetTotalNumHs(), atom.GetFormalCharge()) for around, atom in zip(bonds, atoms, strict=True)]


def _leaving_fragments(reactants: Any, staying: set[int]) -> dict[int, str]:
    """Return the SMILES of the fragment of each atom that is not in the product."""
    leaving, texts = set(range(reactants.GetNumAtoms())) - staying, dict[int, str]()
    bare = without_maps(reactants) if leaving else reactants
    for place in leaving:
        if place in texts:
            continue
        fragment, to_visit = {place}, [place]
        while to_visit:
            around = {other.GetIdx() for other in reactants.GetAtomWithIdx(to_visit.pop()).GetNeighbors()} & leaving
            to_visit += around - fragment
            fragment |= around
        is_large = len(fragment) > _LARGE
        text = "" if is_large else Chem.MolFragmentToSmiles(bare, sorted(fragment), isomericSmiles=False)
        texts.update(dict.fromkeys(fragment, text))
    return texts

"""A step of a synthesis whose atoms are mapped, and what can be read from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

from rdkit import Chem

from .groups import elements_of, patterns
from .molecules import structure
from .orientation import Substitution, substitutions

# The indices of a group's atoms.
Atoms = tuple[int, ...]


class MappedStep:
    """A step whose atoms are mapped. Each fact is computed once, when it is needed.

    Args:
        product: canonical SMILES.
        mapped: SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.
    """

    def __init__(self, product: str, mapped: str):
        self.product, self.mapped = product, mapped
        self._matches: dict[str, tuple[list[Atoms], list[Atoms]]] = {}

    @cached_property
    def molecule(self) -> Any:
        """The product as an RDKit molecule with atom maps."""
        molecule: Any = Chem.Mol(structure(self.product))
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(atom.GetIdx() + 1)
        return molecule

    @cached_property
    def reactants(self) -> Any:
        """The reactants as one RDKit molecule with atom maps, or None if RDKit cannot read them."""
        return Chem.MolFromSmiles(self.mapped)

    @cached_property
    def _after(self) -> dict[int, list[Any]]:
        return _of_product(self.product)

    @cached_property
    def _before(self) -> list[tuple[Any, ...]]:
        return [] if self.reactants is None else _environments(self.reactants, from_maps=True)

    @cached_property
    def changed_atoms(self) -> set[int]:
        """The numbers of the product's atoms whose bonds, hydrogens or charge change."""
        before = {number: environment for number, *environment in self._before}
        return {number for number, environment in self._after.items() if before.get(number) != environment}

    @cached_property
    def _kept(self) -> set[int]:
        """The indices of the reactants' atoms that are in the product."""
        return {index for index, (number, *_) in enumerate(self._before) if number in self._after}

    @cached_property
    def _changed(self) -> set[int]:
        """The indices of the reactants' atoms that change: also of leaving ones beside an atom of the product."""
        changed = set[int]()
        for index, (number, bonds, *counts) in enumerate(self._before):
            if number in self._after:
                is_changed = self._after[number] != [bonds, *counts]
            else:
                is_changed = any(neighbour in self._after for neighbour, _ in bonds)
            if is_changed:
                changed.add(index)
        return changed

    @cached_property
    def _changed_elements(self) -> set[str]:
        return {self.reactants.GetAtomWithIdx(index).GetSymbol() for index in self._changed}

    @cached_property
    def hydrogenated_atoms(self) -> set[int]:
        """The numbers of the product's carbon atoms that have hydrogen in place of atoms that are not in the product,
        and no other change.
        """
        before, numbers = {number: environment for number, *environment in self._before}, set[int]()
        for number in self.changed_atoms & before.keys():
            (old_bonds, old_hydrogens, _), (bonds, hydrogens, _) = before[number], self._after[number]
            lost = {bond for bond in old_bonds if bond[0] not in self._after}
            is_carbon = self.molecule.GetAtomWithIdx(number - 1).GetSymbol() == "C"
            if is_carbon and hydrogens > old_hydrogens and lost and old_bonds - lost == bonds:
                numbers.add(number)
        return numbers

    @cached_property
    def loses_atoms(self) -> bool:
        """Whether atoms of the reactants are not in the product."""
        return len(self._kept) < len(self._before)

    def number(self, index: int) -> int:
        """Return the number of an atom of the reactants, 0 if it has none."""
        return self.reactants.GetAtomWithIdx(index).GetAtomMapNum()

    def is_in_product(self, index: int) -> bool:
        """Return whether an atom of the reactants is in the product."""
        return index in self._kept

    def reacts(self, group: str) -> bool:
        """Return whether a functional group of the reactants reacts: one of its atoms changes."""
        elements = elements_of(group)
        if elements and elements.isdisjoint(self._changed_elements):
            return False  # to match the pattern would take longer
        return bool(self._match(group)[0])

    def stays(self, group: str) -> bool:
        """Return whether a functional group is in the product as it was."""
        return bool(self._match(group)[1])

    def competes(self, group: str) -> bool:
        """Return whether a group that could have reacted stays: none that is equivalent to one that reacts, of which
        an excess decides.
        """
        reacting, staying = self._match(group)
        if not (reacting and staying):
            return bool(staying)
        taken = {self._symmetry_classes[index] for atoms in reacting for index in atoms}
        return any(taken.isdisjoint(self._symmetry_classes[index] for index in atoms) for atoms in staying)

    @cached_property
    def _symmetry_classes(self) -> list[int]:
        ranks: Any = Chem.CanonicalRankAtoms(self.reactants, breakTies=False, includeAtomMaps=False)
        return list(ranks)

    def leaves(self, group: str) -> bool:
        """Return whether a group of the reactants reacts and one of its atoms is not in the product."""
        return any(not self._kept.issuperset(atoms) for atoms in self._match(group)[0])

    def forms(self, group: str) -> bool:
        """Return whether the step makes a group: one of its atoms in the product changes."""
        matches = self.molecule.GetSubstructMatches(patterns()[group])
        return any(atom + 1 in self.changed_atoms for atoms in matches for atom in atoms)

    def symbols_reacting(self, group: str) -> set[str]:
        """Return the symbols of the first atoms of a group where it reacts."""
        return {self.reactants.GetAtomWithIdx(atoms[0]).GetSymbol() for atoms in self._match(group)[0]}

    def symbols_staying(self, group: str) -> set[str]:
        """Return the symbols of the first atoms of a group where it stays."""
        return {self.reactants.GetAtomWithIdx(atoms[0]).GetSymbol() for atoms in self._match(group)[1]}

    def stays_beside(self, group: str, partners: Iterable[str]) -> bool:
        """Return whether a group stays in a molecule in which one of the partners reacts."""
        reacting = {index for partner in partners for atoms in self._match(partner)[0] for index in atoms}
        molecules = [set(atoms) for atoms in Chem.GetMolFrags(self.reactants) if not reacting.isdisjoint(atoms)]
        return any(molecule.issuperset(atoms) for molecule in molecules for atoms in self._match(group)[1])

    def _match(self, group: str) -> tuple[list[Atoms], list[Atoms]]:
        """Return the atoms of a group where it reacts, and where it stays."""
        places = self._matches.get(group)
        if places is None:
            matches = () if self.reactants is None else self.reactants.GetSubstructMatches(patterns()[group])
            places = self._matches[group] = [], []
            for atoms in matches:
                if not self._changed.isdisjoint(atoms):
                    places[0].append(atoms)
                elif self._kept.issuperset(atoms):
                    places[1].append(atoms)
        return places

    @cached_property
    def substitutions(self) -> list[Substitution]:
        """The aromatic substitutions that could have taken another position."""
        return [] if self.reactants is None else list(substitutions(self.molecule, self.reactants))


@lru_cache(16)  # a product has many proposals
def _of_product(smiles: str) -> dict[int, list[Any]]:
    return {number: environment for number, *environment in _environments(structure(smiles))}


def _environments(molecule: Any, from_maps: bool = False) -> list[tuple[int, set[tuple[int, Any]], int, int]]:
    """Return the number, the bonds, the hydrogens and the charge of each atom. Atoms are numbered from 1, or by their
    maps.
    """
    atoms = [molecule.GetAtomWithIdx(index) for index in range(molecule.GetNumAtoms())]
    numbers = [atom.GetAtomMapNum() if from_maps else atom.GetIdx() + 1 for atom in atoms]
    bonds: list[set[tuple[int, Any]]] = [set() for _ in atoms]
    for index in range(molecule.GetNumBonds()):
        bond = molecule.GetBondWithIdx(index)
        ends, kind = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()), bond.GetBondType()
        for end, other in (ends, ends[::-1]):
            bonds[end].add((numbers[other], kind))
    return [
        (number, neighbours, atom.GetTotalNumHs(), atom.GetFormalCharge())
        for number, neighbours, atom in zip(numbers, bonds, atoms, strict=True)
    ]

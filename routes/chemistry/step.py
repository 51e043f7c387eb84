"""A step of a synthesis whose atoms are mapped, and what can be read from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

from rdkit import Chem

from .changes import Change, changes, environments
from .groups import elements_of, patterns
from .molecules import structure

# The indices of a group's atoms.
Atoms = tuple[int, ...]
# The number of products whose molecules are cached: many steps are proposed for one.
_MOLECULES = 64


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
        return _numbered(self.product)

    @cached_property
    def reactants(self) -> Any:
        """The reactants as one RDKit molecule with atom maps, or None if RDKit cannot read them."""
        return Chem.MolFromSmiles(self.mapped)

    @cached_property
    def changes(self) -> list[Change]:
        """What happens to the atoms of the reactants that are in the product and change."""
        return [] if self.reactants is None else changes(self.reactants, self.molecule)

    @cached_property
    def environments(self) -> Any:
        """The environments of the atoms of the reactants, as [`~chemistry.changes.environments`] returns them."""
        return environments(self.reactants)

    def is_unchanged(self, index: int) -> bool:
        """Return whether an atom of the reactants is in the product as it was."""
        return self.is_in_product(index) and index not in self._changed

    @cached_property
    def changed_atoms(self) -> set[int]:
        """The numbers of the product's atoms whose bonds, hydrogens or charge change, or that no reactant has."""
        numbers = set(range(1, self.molecule.GetNumAtoms() + 1)).difference(map(self.number, self._kept))
        return numbers | {change.after + 1 for change in self.changes}

    @cached_property
    def _kept(self) -> set[int]:
        """The indices of the reactants' atoms that are in the product."""
        atoms, numbers = self.reactants.GetAtoms() if self.reactants else (), range(1, self.molecule.GetNumAtoms() + 1)
        return {atom.GetIdx() for atom in atoms if atom.GetAtomMapNum() in numbers}

    @cached_property
    def _changed(self) -> set[int]:
        """The indices of the reactants' atoms that change: also of leaving ones beside an atom of the product."""
        changed = {change.before for change in self.changes}
        neighbours = (
            other.GetIdx() for index in changed for other in self.reactants.GetAtomWithIdx(index).GetNeighbors()
        )
        return changed.union(index for index in neighbours if index not in self._kept)

    @cached_property
    def _changed_elements(self) -> set[str]:
        return {self.reactants.GetAtomWithIdx(index).GetSymbol() for index in self._changed}

    @cached_property
    def hydrogenated_atoms(self) -> set[int]:
        """The numbers of the product's carbon atoms that have hydrogen in place of atoms that are not in the product,
        and no other change.
        """
        numbers = set[int]()
        for change in self.changes:
            before = self.reactants.GetAtomWithIdx(change.before)
            stays = [other for other in before.GetNeighbors() if self.is_in_product(other.GetIdx())]
            num_lost, is_gained = before.GetDegree() - len(stays), change.gained or change.strengthened
            if before.GetSymbol() == "C" and change.hydrogens > 0 and num_lost == len(change.lost) and not is_gained:
                numbers.add(change.after + 1)
        return numbers

    @cached_property
    def loses_atoms(self) -> bool:
        """Whether atoms of the reactants are not in the product."""
        return self.reactants is not None and len(self._kept) < self.reactants.GetNumAtoms()

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


@lru_cache(_MOLECULES)
def _numbered(smiles: str) -> Any:
    """Return a molecule with atom maps, in the order of its canonical SMILES."""
    molecule: Any = Chem.Mol(structure(smiles))
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)
    return molecule

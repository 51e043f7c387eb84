"""The disconnection of molecules by the templates of the synthetic routes. A priority rule makes each route unique."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rdkit import Chem

from ..tree import Route
from .building_blocks import load_building_blocks
from .groups import count_groups
from .reactions import Template
from .templates import TEMPLATES

_MOLECULES_KEPT = 5000


@dataclass(frozen=True)
class Step:
    """A reaction that makes a molecule: the template, and its reactants as SMILES in the order of the roles."""

    template: Template
    reactants: tuple[str, ...]


class Disconnector:
    """
    Finds the reactions of `TEMPLATES` that can make a molecule, starting from building blocks.

    An object remembers its results, so one object should answer many questions.

    Args:
        building_blocks (`Collection[str]`, *optional*):
            Canonical SMILES that need no synthesis. Defaults to the embedded list.
    """

    def __init__(self, building_blocks: Collection[str] | None = None) -> None:
        self.building_blocks = load_building_blocks() if building_blocks is None else building_blocks
        self._molecules: dict[str, tuple[Chem.Mol, dict[str, int]]] = {}
        self._last_steps: dict[str, tuple[Step, ...]] = {}

    def molecule(self, smiles: str) -> tuple[Chem.Mol, dict[str, int]]:
        """Return the parsed molecule and its groups (`groups.count_groups`).

        Raises:
            ValueError: RDKit cannot read the SMILES.
        """
        if smiles not in self._molecules:
            molecule = Chem.MolFromSmiles(smiles)
            if molecule is None:
                raise ValueError(f"RDKit cannot read the SMILES {smiles!r}")
            # A molecule takes about 10 kB, and most molecules are needed only a few times in a row.
            if len(self._molecules) >= _MOLECULES_KEPT:
                self._molecules.clear()
            self._molecules[smiles] = molecule, count_groups(molecule)
        return self._molecules[smiles]

    def steps(self, smiles: str, template: Template) -> list[Step]:
        """Return every way in which the template makes the molecule from reactants that fit (`Template.accepts`)."""
        return [
            Step(template, reactants)
            for reactants in template.undo(self.molecule(smiles)[0])
            if all(
                template.accepts(role, self.molecule(reactant)[1])
                and (role not in template.purchased or reactant in self.building_blocks)
                for role, reactant in enumerate(reactants)
            )
        ]

    def last_steps(self, smiles: str) -> tuple[Step, ...]:
        """Return the last step by the priority rule: the first template whose reactants can be bought or made.

        Returns:
            An empty tuple if no template fits. Several steps if the template fits in several places, so that the rule
            does not decide.
        """
        if smiles not in self._last_steps:
            found: tuple[Step, ...] = ()
            for template in TEMPLATES:
                found = tuple(
                    step for step in self.steps(smiles, template) if all(map(self._obtainable, step.reactants))
                )
                if found:
                    break
            self._last_steps[smiles] = found
        return self._last_steps[smiles]

    def _obtainable(self, smiles: str) -> bool:
        return smiles in self.building_blocks or bool(self.last_steps(smiles))

    def route(self, smiles: str) -> Route | None:
        """Return the route by the priority rule, down to building blocks.

        Return None if there is no route or the rule does not decide.
        """
        if smiles in self.building_blocks:
            return Route(smiles)
        steps = self.last_steps(smiles)
        if len(steps) != 1:
            return None
        children = [self.route(reactant) for reactant in steps[0].reactants]
        return None if None in children else Route(smiles, tuple(child for child in children if child))

"""The functional groups that a step changes or keeps, and rules about them that a template of near neighbours does not show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from rdkit import Chem

from ..molecules import KNOWN

GROUPS = "groups.json"


class _Rule(NamedTuple):
    """A reason why a step is not as its precedents. Each condition with groups needs one of them; `without` needs none.

    Args:
        why: the reason.
        steps: the names of the transformations; all if there are none.
        partner: groups that react, such as the electrophile ("with" in the file).
        without: groups that do not react.
        reacting: groups that react, such as the nucleophile.
        elsewhere: groups that stay as they are.
    """

    why: str
    steps: frozenset[str]
    partner: frozenset[str]
    without: frozenset[str]
    reacting: frozenset[str]
    elsewhere: frozenset[str]

    def applies(self, name: str | None, reacting: frozenset[str], elsewhere: frozenset[str]) -> bool:
        return (
            (not self.steps or name in self.steps)
            and self.without.isdisjoint(reacting)
            and all(not needed or needed & reacting for needed in (self.partner, self.reacting))
            and (not self.elsewhere or not self.elsewhere.isdisjoint(elsewhere))
        )


def objection(name: str | None, product: str, mapped: str, bystanders: Sequence[str] = ()) -> str | None:
    """
    Return why recorded reactions of a transformation are no precedents of a step: another group than theirs reacts, or
    a group elsewhere in the molecules would react first. None if nothing speaks against it.

    Args:
        name: the common name of the transformation.
        product: canonical SMILES.
        mapped: SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.
        bystanders: SMILES of molecules that are there and do not react.
    """
    rules = [rule for rule in _table()[1] if not rule.steps or name in rule.steps]
    reacting, elsewhere = changed_groups(product, mapped)
    elsewhere = elsewhere.union(*map(_groups, bystanders))
    return next((rule.why for rule in rules if rule.applies(name, reacting, elsewhere)), None)


@lru_cache(KNOWN)
def changed_groups(product: str, mapped: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the functional groups of the reactants that react, and those that stay as they are. Arguments are those of [`objection`]."""
    made: Any = Chem.MolFromSmiles(product)
    used: Any = Chem.MolFromSmiles(mapped)
    if used is None:
        return frozenset(), frozenset()
    after = {atom.GetIdx() + 1: atom for atom in made.GetAtoms()}
    kept = {atom.GetIdx() for atom in used.GetAtoms() if atom.GetAtomMapNum() in after}
    changed = set()
    for atom in used.GetAtoms():
        if atom.GetIdx() in kept:
            then = after[atom.GetAtomMapNum()]
            bonds = {(bond.GetOtherAtom(atom).GetAtomMapNum(), bond.GetBondType()) for bond in atom.GetBonds()}
            new_bonds = {(bond.GetOtherAtom(then).GetIdx() + 1, bond.GetBondType()) for bond in then.GetBonds()}
            hydrogens, charges = atom.GetTotalNumHs(), atom.GetFormalCharge()
            if (bonds, hydrogens, charges) != (new_bonds, then.GetTotalNumHs(), then.GetFormalCharge()):
                changed.add(atom.GetIdx())
        elif any(other.GetAtomMapNum() in after for other in atom.GetNeighbors()):
            changed.add(atom.GetIdx())
    reacting, elsewhere = set(), set()
    for name, pattern in _table()[0]:
        for atoms in used.GetSubstructMatches(pattern):
            if not changed.isdisjoint(atoms):
                reacting.add(name)
            elif kept.issuperset(atoms):
                elsewhere.add(name)
    return frozenset(reacting), frozenset(elsewhere)


@lru_cache(KNOWN)
def _groups(smiles: str) -> frozenset[str]:
    molecule = Chem.MolFromSmiles(smiles)
    return frozenset(name for name, pattern in _table()[0] if molecule.HasSubstructMatch(pattern))


@cache
def _table() -> tuple[list[tuple[str, Any]], list[_Rule]]:
    table = json.loads(files("weftformer.routes.shipped").joinpath(GROUPS).read_text(encoding="utf-8"))
    conditions = ("steps", "with", "without", "reacting", "elsewhere")
    rules = [_Rule(rule["why"], *(frozenset(rule.get(key, ())) for key in conditions)) for rule in table["rules"]]
    return [(name, Chem.MolFromSmarts(smarts)) for name, smarts in table["groups"].items()], rules

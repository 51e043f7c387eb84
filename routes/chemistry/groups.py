"""The functional groups that a step changes or keeps, and rules about them that a template of near neighbours does not
show.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from rdkit import Chem

from .molecules import KNOWN
from .orientation import misdirection

GROUPS = "groups.json"
# The indices of a group's atoms.
Atoms = tuple[int, ...]


class _Rule(NamedTuple):
    """A reason why a step is not as its precedents. Each condition with groups needs one of them; `without` needs
    none.

    Args:
        why: the reason.
        steps: the names of the transformations; all if there are none.
        partner: groups that react, such as the electrophile ("with" in the file).
        without: groups that do not react.
        reacting: groups that react, such as the nucleophile.
        elsewhere: groups that stay as they are.
        beside: the same, in the molecule of a partner.
    """

    why: str
    steps: frozenset[str]
    partner: frozenset[str]
    without: frozenset[str]
    reacting: frozenset[str]
    elsewhere: frozenset[str]
    beside: frozenset[str]

    def applies(self, name: str | None, groups: Groups, bystanders: Sequence[str]) -> bool:
        return (
            (not self.steps or name in self.steps)
            and all(not needed or any(map(groups.reacts, needed)) for needed in (self.partner, self.reacting))
            and not any(map(groups.reacts, self.without))
            and (
                not self.elsewhere
                or any(map(groups.stays, self.elsewhere))
                or any(not self.elsewhere.isdisjoint(_groups(smiles)) for smiles in bystanders)
            )
            and (not self.beside or any(groups.stays_beside(group, self.partner) for group in self.beside))
        )


def objection(name: str | None, product: str, mapped: str, bystanders: Sequence[str] = ()) -> str | None:
    """Return why recorded reactions of a transformation are no precedents of a step: another group than theirs reacts,
    or a group elsewhere in the molecules would react first. None if nothing speaks against it.

    Args:
        name: the common name of the transformation.
        product: canonical SMILES.
        mapped: SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.
        bystanders: SMILES of molecules that are there and do not react.
    """
    groups = _of_step(product, mapped)
    why = next((rule.why for rule in _rules_of(name) if rule.applies(name, groups, bystanders)), None)
    return why or misdirection(name, product, groups.reactants)


@cache
def _rules_of(name: str | None) -> list[_Rule]:
    """Return the rules that concern a transformation."""
    return [rule for rule in _table()[1] if not rule.steps or name in rule.steps]


def racemisation(name: str | None, product: str, mapped: str) -> list[str]:
    """Return why a step may lose stereochemistry that the product has. Arguments are those of [`objection`]."""
    if "@" not in product:
        return []
    return [rule.why for rule in _table()[3] if rule.applies(name, _of_step(product, mapped), ())]


def kept_groups(product: str, mapped: str, names: Collection[str] | None = None) -> list[str]:
    """Return the functional groups that stay in a step, or those of some names among them.

    `product` and `mapped` are those of [`Groups`].
    """
    groups = _of_step(product, mapped)
    return [name for name in (_table()[2] if names is None else names) if groups.stays(name)]


def changed_atoms(product: str, mapped: str) -> set[int]:
    """Return the numbers of the product's atoms whose bonds, hydrogens or charge change in a step.

    `product` and `mapped` are those of [`Groups`].
    """
    before = {number: around for number, *around in _surroundings(Chem.MolFromSmiles(mapped), from_maps=True)}
    return {number for number, around in _of_product(product).items() if before.get(number) != around}


@lru_cache(KNOWN)
def unstable_kind(smiles: str) -> str | None:
    """Return why a molecule cannot be isolated, or None if nothing is known against it."""
    parts = [Chem.MolFromSmiles(part) for part in smiles.split(".")]
    kinds = (why for why, patterns in _table()[4] for part in parts if all(map(part.HasSubstructMatch, patterns)))
    return next(kinds, None)


class Groups:
    """The functional groups of the reactants of a step. Each is matched when it is needed, because matching all of them
    takes long.

    Args:
        product: canonical SMILES.
        mapped: SMILES of the reactants, whose atoms have the numbers of the product's atoms, counted from 1.
    """

    def __init__(self, product: str, mapped: str):
        self.reactants: Any = Chem.MolFromSmiles(mapped)
        before = [] if self.reactants is None else _surroundings(self.reactants, from_maps=True)
        after = _of_product(product)
        kept = [number in after for number, *_ in before]
        self._kept = {index for index, is_kept in enumerate(kept) if is_kept}
        self._changed = {
            index
            for index, (number, bonds, *counts) in enumerate(before)
            if (after[number] != [bonds, *counts] if kept[index] else any(other in after for other, _ in bonds))
        }
        self._matches: dict[str, tuple[list[Atoms], list[Atoms]]] = {}

    def reacts(self, group: str) -> bool:
        """Return whether a group reacts: one of its atoms changes."""
        return bool(self._match(group)[0])

    def stays(self, group: str) -> bool:
        """Return whether a group is in the product as it was."""
        return bool(self._match(group)[1])

    def stays_beside(self, group: str, partners: Iterable[str]) -> bool:
        """Return whether a group stays in a molecule in which one of the partners reacts."""
        reacting = {index for partner in partners for atoms in self._match(partner)[0] for index in atoms}
        molecules = [set(atoms) for atoms in Chem.GetMolFrags(self.reactants) if not reacting.isdisjoint(atoms)]
        return any(molecule.issuperset(atoms) for molecule in molecules for atoms in self._match(group)[1])

    def _match(self, group: str) -> tuple[list[Atoms], list[Atoms]]:
        """Return the atoms of a group where it reacts, and where it stays."""
        if group not in self._matches:
            pattern = _table()[0][group]
            every = () if self.reactants is None else self.reactants.GetSubstructMatches(pattern)
            changed = [atoms for atoms in every if not self._changed.isdisjoint(atoms)]
            stays = [atoms for atoms in every if self._changed.isdisjoint(atoms) and self._kept.issuperset(atoms)]
            self._matches[group] = changed, stays
        return self._matches[group]


# The groups of a step are needed several times in a row.
_of_step = lru_cache(16)(Groups)


@lru_cache(16)  # a product has many proposals
def _of_product(smiles: str) -> dict[int, list[Any]]:
    return {number: around for number, *around in _surroundings(Chem.MolFromSmiles(smiles))}


def _surroundings(molecule: Any, from_maps: bool = False) -> list[tuple[int, set[tuple[int, Any]], int, int]]:
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
        (number, around, atom.GetTotalNumHs(), atom.GetFormalCharge())
        for number, around, atom in zip(numbers, bonds, atoms, strict=True)
    ]


@lru_cache(KNOWN)
def _groups(smiles: str) -> frozenset[str]:
    molecule = Chem.MolFromSmiles(smiles)
    return frozenset(name for name, pattern in _table()[0].items() if molecule.HasSubstructMatch(pattern))


@cache
def _table() -> tuple[dict[str, Any], list[_Rule], list[str], list[_Rule], list[tuple[str, list[Any]]]]:
    table = json.loads(files("weftformer.routes.chemistry").joinpath(GROUPS).read_text(encoding="utf-8"))
    conditions = ("steps", "with", "without", "reacting", "elsewhere", "beside")
    rules, stereo_rules = (
        [_Rule(rule["why"], *(frozenset(rule.get(key, ())) for key in conditions)) for rule in table[kind]]
        for kind in ("rules", "stereo_rules")
    )
    counted = [name for name in table["groups"] if name not in table["uncounted"]]
    groups = {name: Chem.MolFromSmarts(smarts) for name, smarts in table["groups"].items()}
    unstable = [(row["why"], list(map(Chem.MolFromSmarts, row["smarts"]))) for row in table["unstable"]]
    return groups, rules, counted, stereo_rules, unstable

"""Rules about the functional groups of a step, which a template of near neighbours does not show (`groups.json`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from .groups import groups_of, groups_table
from .orientation import misdirection
from .step import MappedStep


class _Rule(NamedTuple):
    """A reason why a step is not like the recorded ones. Each condition with groups needs one of them; `without` needs
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

    def applies(self, name: str | None, step: MappedStep, bystanders: Sequence[str]) -> bool:
        return (
            (not self.steps or name in self.steps)
            and all(not groups or any(map(step.reacts, groups)) for groups in (self.partner, self.reacting))
            and not any(map(step.reacts, self.without))
            and (
                not self.elsewhere
                or any(map(step.stays, self.elsewhere))
                or any(not self.elsewhere.isdisjoint(groups_of(smiles)) for smiles in bystanders)
            )
            and (not self.beside or any(step.stays_beside(group, self.partner) for group in self.beside))
        )


def objection(name: str | None, step: MappedStep, bystanders: Sequence[str] = ()) -> str | None:
    """Return why recorded reactions of a transformation are no evidence for a step: another group than theirs reacts,
    a group elsewhere in the molecules would react first, or an arene reacts where its substituents do not direct. None
    if nothing speaks against it.

    Args:
        name: the common name of the transformation.
        step: the step.
        bystanders: SMILES of molecules that are there and do not react.
    """
    for rule in _rules_of(name):
        if rule.applies(name, step, bystanders):
            return rule.why
    return misdirection(name, step.substitutions)


def racemisation(name: str | None, step: MappedStep) -> list[str]:
    """Return why a step may lose stereochemistry that the product has."""
    if "@" not in step.product:
        return []
    return [rule.why for rule in _rules("stereo_rules") if rule.applies(name, step, ())]


@cache
def _rules_of(name: str | None) -> list[_Rule]:
    """Return the rules that concern a transformation."""
    return [rule for rule in _rules("rules") if not rule.steps or name in rule.steps]


@cache
def _rules(kind: str) -> list[_Rule]:
    conditions = ("steps", "with", "without", "reacting", "elsewhere", "beside")
    return [_Rule(row["why"], *(frozenset(row.get(key, ())) for key in conditions)) for row in groups_table()[kind]]

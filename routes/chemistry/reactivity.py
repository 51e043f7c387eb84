"""Which group of a molecule reacts, and which stays, where recorded reactions cannot know: one table
(`reactivity.json`) and what reads it.

The table has rules about steps that nobody runs, and protecting groups with the conditions that remove them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from .finding import Finding
from .groups import groups_of
from .step import MappedStep
from .tables import table, table_patterns

REACTIVITY = "reactivity.json"
# It removes whatever acid removes, so a reason that has acid leaves it out.
_BROMIDE = "boron tribromide"


class _Rule(NamedTuple):
    """A rule. Each condition with groups needs one of them; `without` needs none.

    Args:
        finding: what is found where the rule applies.
        steps: the names of the transformations; all if there are none.
        partner: groups that react, such as the electrophile ("with" in the file).
        without: groups that do not react.
        reacting: groups that react, such as the nucleophile.
        forms: groups that the step makes.
        elsewhere: groups that stay as they are, and are not equivalent to one that reacts.
        beside: the same, in the molecule of a partner.
        molecules: the least number of molecules that react. A rule about two says nothing of a ring that closes.
    """

    finding: Finding
    steps: frozenset[str]
    partner: frozenset[str]
    without: frozenset[str]
    reacting: frozenset[str]
    forms: frozenset[str]
    elsewhere: frozenset[str]
    beside: frozenset[str]
    molecules: int

    def applies(self, name: str | None, step: MappedStep, bystanders: Sequence[str]) -> bool:
        return (
            (not self.steps or name in self.steps)
            and step.mapped.count(".") + 1 >= self.molecules
            and all(not groups or any(map(step.reacts, groups)) for groups in (self.partner, self.reacting))
            and not any(map(step.reacts, self.without))
            and (not self.forms or any(map(step.forms, self.forms)))
            and (
                not self.elsewhere
                or any(map(step.competes, self.elsewhere))
                or any(not self.elsewhere.isdisjoint(groups_of(smiles)) for smiles in bystanders)
            )
            and (not self.beside or any(step.stays_beside(group, self.partner) for group in self.beside))
        )


def rule_objections(name: str | None, step: MappedStep, bystanders: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield what speaks against a step, although recorded reactions have its transformation: another group than theirs
    reacts, a group elsewhere in the molecules would react first, or an arene reacts where its substituents do not
    direct.

    Args:
        name: the common name of the transformation.
        step: the step.
        bystanders: SMILES of molecules that are there and do not react.
    """
    for rule in _rules_of(name):
        if rule.applies(name, step, bystanders):
            yield rule.finding
    if name is None or name in table(REACTIVITY)["deprotections"]:
        yield from _other_protecting_groups(step)


def racemisation(name: str | None, step: MappedStep) -> list[str]:
    """Return why a step may lose stereochemistry that the product has."""
    if "@" not in step.product:
        return []
    return [rule.finding.text for rule in _rules("stereo_rules") if rule.applies(name, step, ())]


def vanished_group(step: MappedStep) -> str | None:
    """Return a group that a step replaces by hydrogen, although no reaction does, or None.

    Such a record pairs the starting material of another example with its product.
    """
    hydrogenated_atoms = step.hydrogenated_atoms
    if not hydrogenated_atoms:
        return None
    for name, pattern in table_patterns(REACTIVITY, "removals").items():
        for site, group in (atoms[:2] for atoms in step.reactants.GetSubstructMatches(pattern)):
            for atom, substituent in ((site, group), (group, site)):
                if step.number(atom) in hydrogenated_atoms and not step.is_in_product(substituent):
                    return name
    return None


def _other_protecting_groups(step: MappedStep) -> Iterator[Finding]:
    """Yield an objection if the conditions that remove a protecting group remove another one that stays.

    A condition that leaves the other group alone raises nothing. If there is none, a condition that removes the other
    group more slowly is a note. Equal rates rank the route lower. If the other group is always removed first, the step
    is refused.
    """
    if "." in step.mapped or not step.loses_atoms:
        return
    rates: dict[str, dict[str, float]] = table(REACTIVITY)["protecting_groups"]
    losses = [name for name in rates if step.leaves(name)]
    if not losses:
        return
    staying = [name for name in rates if step.stays(name) and name not in losses]
    for group in losses:
        for other in staying:
            if not rates[group].keys() <= rates[other].keys():
                continue
            margins = [rate - rates[other][condition] for condition, rate in rates[group].items()]
            conditions = " or ".join(name for name in rates[group] if "acid" not in rates[group] or name != _BROMIDE)
            if max(margins) > 0:
                yield Finding(f"{conditions} also removes the {other}: it has to be mild", "note")
            elif max(margins) == 0:
                yield Finding(f"{conditions} also removes the {other}", "ranks lower")
            else:
                yield Finding(f"{conditions} removes the {other} first", "refuses")


@cache
def _rules_of(name: str | None) -> list[_Rule]:
    """Return the rules that concern a transformation."""
    return [rule for rule in _rules("rules") if not rule.steps or name in rule.steps]


@cache
def _rules(kind: str) -> list[_Rule]:
    conditions = ("steps", "without", "reacting", "forms", "elsewhere", "beside")
    return [
        _Rule(
            finding=Finding(row["why"], row.get("effect", "refuses")),
            partner=frozenset(row.get("with", ())),
            molecules=row.get("molecules", 1),
            **{key: frozenset(row.get(key, ())) for key in conditions},
        )
        for row in table(REACTIVITY)[kind]
    ]

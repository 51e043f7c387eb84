"""The record of a step that was judged once: screens, files and servers read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..chemistry.finding import Effect, Finding
from .transformation import CLASSES, Example, ReagentSet

State = Literal["precedented", "textbook", "no precedent", "fails"]
Support = Literal["textbook", "two at once", "related"]
Evidence = Literal["recorded", "textbook", "two at once", "related", "none"]

# The name of a step whose product differs from a reactant only in its stereochemistry.
STEREO_ALONE, SEPARATION = "change of stereochemistry", "separation of isomers"
# Unproductive steps besides protections: the same synthetic problem remains after them.
_UNPRODUCTIVE = frozenset(
    {STEREO_ALONE, "acetal formation", "Boc protection", "silyl protection", "transesterification"}
)
# Two steps that convert one ester into another: cleavage to the acid, then esterification.
_ESTER_CLEAVAGES = frozenset(
    {
        "methyl ester hydrolysis",
        "ethyl ester hydrolysis",
        "ester hydrolysis",
        "benzyl ester cleavage",
        "tert-butyl ester cleavage",
    }
)
_ESTER_FORMATIONS = frozenset({"esterification", "methyl ester formation", "esterification by alkylation"})


@dataclass(frozen=True)
class JudgedStep:
    """A step with its judgement.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants, as they were given.
        precedents: the number of recorded reactions with the same transformation.
        examples: a few of these reactions, or of those of textbooks.
        reaction_class: the most common class of USPTO-50K among them.
        name: the common name of the transformation.
        findings: what speaks against the step, and notes.
        support: what supports a step that is not recorded: `"textbook"`, the transformation is that of the named
            reaction `name` of textbooks; `"two at once"`, two recorded transformations in one step; or `"related"`,
            the same change with other neighbours. A finding names the last two.
        reagents: the most common sets of reagents of these reactions, or of reactions of the same kind if few were
            recorded. The first is empty, and has the number of reactions whose reagents were recorded.
        usual_reagents: the same in words, such as `K2CO3, DMF (31 of 120); NaH, DMF (22)`, or None. They are those of
            `usual_sets`: the roles of compounds decide their order, and what else was in the flask is left out.
    """

    product: str
    reactants: tuple[str, ...]
    precedents: int = 0
    examples: tuple[Example, ...] = ()
    reaction_class: str | None = None
    name: str | None = None
    findings: tuple[Finding, ...] = ()
    support: Support | None = None
    reagents: tuple[ReagentSet, ...] = ()
    usual_reagents: str | None = None

    @property
    def reaction(self) -> str:
        """The reaction SMILES, `reactant.reactant>>product`."""
        return f"{'.'.join(self.reactants)}>>{self.product}"

    @property
    def state(self) -> State:
        """`"precedented"`: a recorded reaction has the same transformation, with the same neighbours of the changed
        atoms and the same stereochemistry. Molecules that supply no atom are left out. `"textbook"`: the same for a
        reaction of textbooks. `"fails"`: the step cannot work as written. `"no precedent"`: none of these.
        """
        if self.reason is not None:
            return "fails"
        if self.precedents:
            return "precedented"
        return "textbook" if self.support == "textbook" else "no precedent"

    @property
    def reason(self) -> str | None:
        """The reason why the step fails, or None."""
        return next((finding.text for finding in self.findings if finding.effect == "fails"), None)

    @property
    def remarks(self) -> tuple[str, ...]:
        """All other findings in words."""
        return tuple(finding.text for finding in self.findings if finding.effect != "fails")

    @property
    def is_objected(self) -> bool:
        """Whether recorded reactions have the same transformation, but a rule says that this step is not like them."""
        return self._has("refuses")

    @property
    def is_misplaced(self) -> bool:
        """Whether the route of the step comes last among equals, such as for an unusual position of a ring."""
        return self._has("ranks lower")

    def _has(self, effect: Effect) -> bool:
        return any(finding.effect == effect for finding in self.findings)

    @property
    def evidence(self) -> Evidence:
        """The evidence for the step."""
        if self.state == "precedented":
            return "recorded"
        return "none" if self.support is None else self.support

    @property
    def outcome(self) -> str:
        """The judgement in words: `554 recorded`, `textbook: Biltz synthesis`, `fails: ...` or `not recorded`."""
        if self.precedents:
            return f"{self.precedents:,} recorded"
        if self.support == "textbook":
            return f"textbook: {self.name}"
        return f"fails: {self.reason}" if self.reason else "not recorded"

    def words(self, number: str) -> str:
        """Return the step in words: its number, its name or class, its judgement and remarks, and on a second line the
        usual reagents.
        """
        facts = f"{number}: {self.title or f'to {self.product}'}, {self.outcome}"
        reagents = f"\n   usual reagents: {self.usual_reagents}" if self.usual_reagents else ""
        return "; ".join([facts, *self.remarks]) + reagents

    @property
    def title(self) -> str | None:
        """The title of the step: its name, else its class, else None."""
        return self.name or self.reaction_class

    @property
    def is_unproductive(self) -> bool:
        """Whether the step is unproductive: a protection, an epimerisation, or an ester made from another ester."""
        return self.name in _UNPRODUCTIVE or self.reaction_class == CLASSES[5]

    def to_dict(self) -> dict[str, Any]:
        """Return the step for JSON: all fields but the molecules, which `reaction` has, and what follows from them."""
        return {
            "reaction": self.reaction,
            "evidence": self.evidence,
            "state": self.state,
            "precedents": self.precedents,
            "examples": [example._asdict() for example in self.examples],
            "class": self.reaction_class,
            "name": self.name,
            "reason": self.reason,
            "remarks": list(self.remarks),
            "findings": [{"text": finding.text, "effect": finding.effect} for finding in self.findings],
            "support": self.support,
            "reagents": self.usual_reagents,
            "reagent_sets": [compounds._asdict() for compounds in self.reagents],
        }

    @classmethod
    def from_dict(cls, row: dict[str, Any], product: str, reactants: tuple[str, ...]) -> JudgedStep:
        """Read the result of [`to_dict`]. Keys that follow from others are ignored, and those of earlier versions.

        Args:
            row: the result of [`to_dict`].
            product, reactants: the molecules of the step.

        Raises:
            KeyError, TypeError, ValueError: `row` is something else.
        """
        findings = tuple(Finding(**finding) for finding in row["findings"])
        if unknown := [finding.effect for finding in findings if finding.effect not in get_args(Effect)]:
            raise ValueError(f"effect must be one of {', '.join(get_args(Effect))}, got {unknown[0]!r}")
        return cls(
            product,
            reactants,
            precedents=row["precedents"],
            examples=tuple(Example(**example) for example in row["examples"]),
            reaction_class=row["class"],
            name=row["name"],
            findings=findings,
            support=row["support"],
            reagents=tuple(ReagentSet(**compounds) for compounds in row["reagent_sets"]),
            usual_reagents=row["reagents"],
        )


def count_detours(steps: Sequence[JudgedStep]) -> int:
    """Return the number of steps of a route that a chemist would avoid: unproductive ones, those that rank lower, and
    those that join three or more molecules by a transformation without a name, most of which are two reactions without
    isolation of what is between them. An ester that is made from the acid of another ester counts as one.

    Args:
        steps: the steps of a route.
    """
    acids = {step.product for step in steps if step.name in _ESTER_CLEAVAGES}
    detours = 0
    for step in steps:
        is_swap = step.name in _ESTER_FORMATIONS and not acids.isdisjoint(step.reactants)
        is_hidden = step.name is None and len(step.reactants) > 2
        detours += step.is_unproductive + step.is_misplaced + is_swap + is_hidden
    return detours

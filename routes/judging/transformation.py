"""Recorded transformations: templates that reactions share, with what is known of these reactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

# The numbers of examples and of sets of reagents of a transformation.
EXAMPLES, REAGENT_SETS = 3, 8

# The classes of USPTO-50K (Schneider et al. 2016, doi 10.1021/acs.jcim.6b00564).
CLASSES = {
    1: "heteroatom alkylation and arylation",
    2: "acylation",
    3: "C-C bond formation",
    4: "heterocycle formation",
    5: "protection",
    6: "deprotection",
    7: "reduction",
    8: "oxidation",
    9: "functional group interconversion",
    10: "functional group addition",
}


class Example(NamedTuple):
    """A recorded reaction.

    Args:
        smiles: its reaction SMILES.
        source: the number of its patent or its id in the data set, or None if it has none.
    """

    smiles: str
    source: str | None


class ReagentSet(NamedTuple):
    """Compounds that were recorded together and give no atom to the product.

    Args:
        smiles: their canonical SMILES, separated by spaces.
        num_reactions: the number of reactions with just these.
    """

    smiles: str
    num_reactions: int


def most_common_sets(counts: Mapping[str, int]) -> tuple[ReagentSet, ...]:
    """Return the most common sets of reagents, after the empty set, which has the number of all reactions: that in
    `counts`, or else their sum.
    """
    total = counts.get("", 0) or sum(counts.values())
    sets = Counter({smiles: count for smiles, count in counts.items() if smiles}).most_common(REAGENT_SETS)
    return tuple(map(ReagentSet._make, [("", total), *sets])) if total else ()


@dataclass(frozen=True, slots=True)
class Transformation:
    """A template that recorded reactions share: the atoms and bonds that change, with their neighbours.

    Args:
        smarts: the template as reaction SMARTS, from the product to the reactants.
        count: the number of recorded reactions that share it.
        reaction_class: the most common of the ten classes of USPTO-50K among them, or None if no class was recorded.
        examples: a few of the reactions.
        name: its common name, such as "amide coupling", or None. It describes the kind of reaction that the structures
            show, not whether the reaction works or with which reagents.
        core: the part of the template that [`Library.related`] compares: the atoms that change, the neighbours of
            those that are heteroatoms, and the heteroatoms of functional groups. None if it is unknown.
        reagents: the most common sets of reagents that were recorded with these reactions. The first is empty, and has
            the number of reactions whose reagents were recorded.
        textbook: the name of the reaction whose examples in textbooks share it, such as "Biltz synthesis". `count` and
            `examples` are then these. None for recorded reactions.
    """

    smarts: str
    count: int
    reaction_class: int | None = None
    examples: tuple[Example, ...] = ()
    name: str | None = None
    core: str | None = None
    reagents: tuple[ReagentSet, ...] = ()
    textbook: str | None = None

    @property
    def kind(self) -> str:
        """The name, or the template if it has none."""
        return self.name or self.smarts

    def plus(self, other: Transformation) -> Transformation:
        """Return the transformation with the reactions of another one. Its own examples and facts come first."""
        reagents = Counter[str]()
        for smiles, count in (*self.reagents, *other.reagents):
            reagents[smiles] += count
        return replace(
            self,
            count=self.count + other.count,
            reaction_class=self.reaction_class or other.reaction_class,
            examples=(*self.examples, *other.examples)[:EXAMPLES],
            name=self.name or other.name,
            core=self.core or other.core,
            reagents=most_common_sets(reagents),
        )


# A transformation with its difference of atoms, as returned by `library.difference`.
Row = tuple[str, Transformation]

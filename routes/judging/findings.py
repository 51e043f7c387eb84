"""What statistics of the recorded reactions say of a step whose transformation is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...common.words import counted
from ..chemistry.finding import Finding
from ..chemistry.orientation import position_counts, positions
from ..chemistry.reactivity import racemisation
from .library import Library, Match, RareFeatures
from .templates import num_other_products


def findings(match: Match, product: str, reactants: str, library: Library) -> Iterator[Finding]:
    """Yield what else is found of a step that no rule refuses.

    Args:
        match: the transformation and the step, perhaps without stereochemistry.
        product: canonical SMILES of the product.
        reactants: canonical SMILES of the reactants without reagents, as [`joined`] returns them.
        library: the recorded transformations.
    """
    transformation, step = match
    if isomers := num_other_products(transformation.smarts, product, reactants):
        yield Finding(f"the same transformation also makes {counted(isomers, 'other product')} here")
    places = sorted(set(positions(step.substitutions)))
    for kind, place, count, total in _rare(position_counts(), places):
        yield Finding(f"{_number(count)} of {total:,} recorded substitutions of {kind} took {place}", "ranks lower")
    names = library.rare_groups.get(transformation.kind, ())
    groups = ((transformation.kind, name) for name in names if step.stays(name))
    for _, group, count, total in _rare(library.rare_groups, groups):
        has, article = "has" if count < 2 else "have", "an" if group[0] in "aeioN" else "a"
        yield Finding(
            f"{_number(count)} of {total:,} recorded reactions of this kind {has} {article} {group} elsewhere"
        )
    for reason in racemisation(transformation.name, step):
        yield Finding(reason)


def _rare(table: RareFeatures, features: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, int, int]]:
    """Yield the features of a step that hardly any recorded reaction of the same kind has, with the number of those
    that have it, and of those that were examined.
    """
    for kind, feature in features:
        counts = table.get(kind, {}).get(feature)
        if counts is not None:
            yield kind, feature, *counts


def _number(count: int) -> str:
    return f"{count:,}" if count else "none"

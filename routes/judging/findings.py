"""What else is to be known of a step whose transformation is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from ...common.words import counted
from ..chemistry.finding import Finding
from ..chemistry.reactivity import racemisation
from .library import Match
from .templates import joins_alike, num_other_products


def findings(match: Match, product: str, reactants: str) -> Iterator[Finding]:
    """Yield what else is found of a step that nothing refuses.

    Args:
        match: the transformation and the step, perhaps without stereochemistry.
        product: canonical SMILES of the product.
        reactants: canonical SMILES of the reactants without reagents, as [`joined`] returns them.
    """
    if match.num_sites > 1:
        yield Finding(f"the transformation takes place at {match.num_sites} sites at once")
    if isomers := num_other_products(match.transformation.smarts, product, reactants):
        yield Finding(f"the same transformation also makes {counted(isomers, 'other product')} here")
    if joins_alike(match.transformation.smarts, reactants):
        yield Finding("each of the two reactants also reacts with itself: expect three products", "ranks lower")
    for reason in racemisation(match.transformation.name, match.step):
        yield Finding(reason)

"""The ranks of correct routes among predicted ones, and the share of targets with a correct route."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...common.statistics import Estimate, wilson_interval
from ..tree import Route
from .comparison import truncated


def first_rank(ranked: Sequence[Route | None], is_right: Callable[[Route], bool]) -> int | None:
    """
    Return the 1-based rank of the first correct prediction, or None if no prediction is correct.

    A prediction that equals an earlier one, apart from the order of children, takes no rank. A `None` stands for text
    that is not a route, and takes a rank.

    Args:
        ranked (`Sequence[Route | None]`):
            The predictions, best first.
        is_right (`Callable[[Route], bool]`):
            Is called with each distinct canonical prediction until it returns True.

    Returns:
        `int` or `None`: the rank.
    """
    seen: set[Route] = set()
    rank = 0
    for prediction in ranked:
        key = None if prediction is None else prediction.canonical()
        if key is not None:
            if key in seen:
                continue
            seen.add(key)
        rank += 1
        if key is not None and is_right(key):
            return rank
    return None


def exact_rank(ranked: Sequence[Route | None], reference: Route) -> int | None:
    """Return the rank of the reference itself, counted as in [`first_rank`]. The order of children is ignored."""
    wanted = reference.canonical()
    return first_rank(ranked, lambda route: route == wanted)


def prefix_rank(ranked: Sequence[Route | None], reference: Route, depth: int) -> int | None:
    """Return the rank of the first prediction with the same last `depth` reactions before the target as the reference.

    Both routes are cut off at that depth and must then be equal, as in RetroCast's prefix reconstruction. A depth of 1
    compares only the last reaction. If the reference is less deep, the prediction must equal the whole reference down
    to that depth.
    """
    wanted = truncated(reference, depth).canonical()
    return first_rank(ranked, lambda route: truncated(route, depth).canonical() == wanted)


def share(found: Sequence[bool]) -> Estimate:
    """Return the share of true values, with its 95 % Wilson interval."""
    successes, n = sum(map(bool, found)), len(found)
    return Estimate(successes / n, *wilson_interval(successes, n), n)

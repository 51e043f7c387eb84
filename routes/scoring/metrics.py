"""Ranks of right routes among predicted ones, and the share of targets that have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...common.statistics import Estimate, wilson_interval
from ..tree import Route
from .comparison import truncated


def reciprocal_rank(rank: int | None) -> float:
    """1 / rank, and 0 for what was not found; its mean over targets is the mean reciprocal rank."""
    return 0.0 if rank is None else 1 / rank


def first_rank(ranked: Sequence[Route | None], is_right: Callable[[Route], bool]) -> int | None:
    """1-based rank of the first prediction that is right, None where none is.

    A prediction that repeats an earlier one, in whatever order of children, takes no rank; a `None`, the mark for text that
    is no route, takes one.

    Args:
        ranked: predictions, best first.
        is_right: called with each distinct prediction until it says yes.
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
    """Rank of the reference itself, as [`first_rank`] counts; the order of children is ignored."""
    wanted = reference.canonical()
    return first_rank(ranked, lambda route: route == wanted)


def prefix_rank(ranked: Sequence[Route | None], reference: Route, depth: int) -> int | None:
    """Rank of the first prediction that agrees with the reference down to `depth` reactions before the target.

    Both are cut off there and must be equal then, as in RetroCast's prefix reconstruction; depth 1 asks for the last
    reaction. A reference that is not as deep must be met as a whole, down to that depth.
    """
    wanted = truncated(reference, depth).canonical()
    return first_rank(ranked, lambda route: truncated(route, depth).canonical() == wanted)


def top_k_exact(
    predictions: Sequence[Sequence[Route | None]], references: Sequence[Route], ks: Sequence[int] = (1, 5)
) -> dict[int, Estimate]:
    """Share of targets whose reference route is among the first k predictions.

    Routes are compared without regard to the order of the children. A prediction that repeats an earlier one is removed
    before ranking, so it takes no rank; a `None`, the mark for text that is no route, keeps its rank and is never right.
    SMILES are compared as text: canonicalise both sides with the same program first.

    Args:
        predictions: for each target, its predictions, best first.
        references: for each target, the one route that counts as right.
        ks: the ranks to report.

    Returns:
        For each k the share with its 95 % Wilson interval.

    Raises:
        ValueError: the two lists differ in length or are empty, or a k is not positive.
    """
    if len(predictions) != len(references) or not references:
        raise ValueError(
            f"expected as many lists of predictions as references and at least one, "
            f"got {len(predictions)} and {len(references)}"
        )
    if any(k < 1 for k in ks):
        raise ValueError(f"every k must be at least 1, got {list(ks)}")
    ranks = [exact_rank(ranked, reference) for ranked, reference in zip(predictions, references, strict=True)]
    n = len(ranks)
    result = {}
    for k in ks:
        successes = sum(rank is not None and rank <= k for rank in ranks)
        result[k] = Estimate(successes / n, *wilson_interval(successes, n), n)
    return result

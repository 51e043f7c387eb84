"""How often the reference route is among the first k predictions, with an interval that says how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .tree import Route


@dataclass(frozen=True)
class Proportion:
    """A measured share of `n` trials and its confidence interval.

    Args:
        value: successes / n.
        low: lower end of the interval.
        high: upper end of the interval.
        n: number of trials.
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}] (n={self.n})"


def wilson_interval(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Score interval of a proportion, E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212, doi 10.2307/2276774.

    Unlike value ± z·sqrt(p(1-p)/n) it stays within [0, 1] and keeps its coverage near 0 and 1 and for small n.

    Args:
        successes: number of successes, 0 to `n`.
        n: number of trials, at least 1.
        z: normal quantile; 1.96 gives a 95 % interval.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: `n` is not positive or `successes` is not within 0 and `n`.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got successes={successes}, n={n}")
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At 0 and n successes the exact ends are 0 and 1; the sums above miss them by a rounding error.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def top_k_exact(
    predictions: Sequence[Sequence[Route | None]], references: Sequence[Route], ks: Sequence[int] = (1, 5)
) -> dict[int, Proportion]:
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
    ranks = [_rank(ranked, reference) for ranked, reference in zip(predictions, references, strict=True)]
    n = len(ranks)
    result = {}
    for k in ks:
        successes = sum(rank is not None and rank <= k for rank in ranks)
        result[k] = Proportion(successes / n, *wilson_interval(successes, n), n)
    return result


def _rank(ranked: Sequence[Route | None], reference: Route) -> int | None:
    """1-based rank of the reference among the distinct predictions, `None` when it is not there."""
    wanted = reference.canonical()
    seen: set[Route] = set()
    rank = 0
    for prediction in ranked:
        key = None if prediction is None else prediction.canonical()
        if key is not None:
            if key in seen:
                continue
            seen.add(key)
        rank += 1
        if key == wanted:
            return rank
    return None

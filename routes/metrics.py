"""How good predicted routes are, and how sure that is: ranks, shares, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .comparison import truncated
from .tree import Route

# Elements of one block of resamples: 32 MB of counts, however many targets there are.
_BLOCK = 4_000_000


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


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` targets and its 95 % bootstrap interval; all NaN (None in JSON) where there are no targets."""

    value: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return {name: None if number != number else number for name, number in vars(self).items()}


def bootstrap_interval(
    values: Sequence[float] | np.ndarray,
    statistic: Callable[..., Any] = np.mean,
    *,
    n: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval: B. Efron, Ann. Statist. 7 (1979) 1-26, doi 10.1214/aos/1176344552.

    It has no width where all values are the same, e.g. a share of 0 or 1, however few they are: `wilson_interval` has.

    Args:
        values: one number for each target.
        statistic: called with samples of shape (resamples, values) and `axis=1`.
        n: resamples.
        seed: seed of the draws; the same gives the same interval.
        level: share of the resamples within the interval.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: there are no values, or `n` or `level` makes no sense.
    """
    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or not len(sample) or n < 1 or not 0 < level < 1:
        raise ValueError(
            f"expected a list of at least one value, n >= 1 and 0 < level < 1, got shape {sample.shape}, n={n}, level={level}"
        )
    results = np.concatenate([statistic(sample[drawn], axis=1) for drawn in _draws(len(sample), n, seed)])
    low, high = np.quantile(results, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap_means(table: np.ndarray, *, n: int = 10_000, seed: int = 0) -> list[Estimate]:
    """The mean of each column with the interval that `bootstrap_interval` has for it, for all columns at once.

    Args:
        table: of shape (targets, metrics); a NaN says that a metric is not defined for a target, which then is left out.
        n, seed: as in `bootstrap_interval`. All columns are resampled together.
    """
    known = ~np.isnan(table)
    filled, counts = np.where(known, table, 0.0), known.sum(axis=0)
    blocks = []
    with np.errstate(invalid="ignore"):  # 0 / 0: no target of a resample has the metric
        value = filled.sum(axis=0) / counts
        for drawn in _draws(len(table), n, seed) if len(table) else ():
            # how often each target is drawn: sums over a resample are then products of matrices
            rows = len(drawn)
            places = drawn + np.arange(rows)[:, None] * len(table)
            times = np.bincount(places.ravel(), minlength=places.size).reshape(rows, -1).astype(float)
            blocks.append((times @ filled) / (times @ known))
    means = np.concatenate(blocks) if blocks else np.full((1, table.shape[1]), np.nan)
    estimates = []
    for column, (mean, count) in enumerate(zip(value.tolist(), counts.tolist(), strict=True)):
        resampled = means[:, column][~np.isnan(means[:, column])]
        low, high = np.quantile(resampled, [0.025, 0.975]).tolist() if len(resampled) else (math.nan, math.nan)
        estimates.append(Estimate(mean, low, high, count))
    return estimates


def _draws(size: int, n: int, seed: int) -> Any:
    """Indices of `n` resamples, of shape (resamples, size), in blocks that fit the memory."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // size)
    for start in range(0, n, block):
        yield rng.integers(size, size=(min(block, n - start), size))


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
    ranks = [exact_rank(ranked, reference) for ranked, reference in zip(predictions, references, strict=True)]
    n = len(ranks)
    result = {}
    for k in ks:
        successes = sum(rank is not None and rank <= k for rank in ranks)
        result[k] = Proportion(successes / n, *wilson_interval(successes, n), n)
    return result

"""How sure a measured figure is: intervals of shares and of means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Elements of one block of resamples: 32 MB of counts, however many targets there are.
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A share or a mean over `n` trials and its 95 % interval; all NaN (None in JSON) where there are no trials."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}] (n={self.n})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return {name: None if number != number else number for name, number in vars(self).items()}


def wilson_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Score interval of a proportion, E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212, doi 10.2307/2276774.

    Unlike value ± z·sqrt(p(1-p)/n) it stays within [0, 1] and keeps its coverage near 0 and 1 and for small n.

    Args:
        successes: number of successes, 0 to `n`.
        n: number of trials, at least 1.
        level: of confidence.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: `n` is not positive or `successes` is not within 0 and `n`.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got successes={successes}, n={n}")
    try:
        from scipy.stats import binomtest
    except ImportError as error:
        raise ImportError("Intervals of shares need SciPy: pip install weftformer[chem] (or [train]).") from error
    found = binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


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

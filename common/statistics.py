"""Confidence intervals of shares and of means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

# Elements of one block of resamples: 32 MB of counts, for any number of targets.
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A share or a mean over `n` trials, with its 95 % interval. All are NaN (None in JSON) if there are no trials.

    Args:
        value: the share or the mean.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with None instead of NaN, which JSON does not have."""
        return {name: None if number != number else number for name, number in vars(self).items()}


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, doi 10.2307/2276774).

    Unlike p ± z·sqrt(p(1-p)/n), it stays within [0, 1], and has the right coverage near 0 and 1 and for small n.

    Args:
        successes: number of successes, 0 to `n`.
        n: number of trials, at least 1.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: `n` is not positive, or `successes` is not between 0 and `n`.
        ImportError: SciPy is not installed.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got successes={successes}, n={n}")
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError("Intervals need SciPy: pip install weftformer[chem] (or [train]).") from error
    interval = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def bootstrap_means(table: np.ndarray, *, n: int = 10_000, seed: int = 0) -> list[Estimate]:
    """Return the mean of each column with its 95 % bootstrap percentile interval (B. Efron, Ann. Statist. 7, 1979, doi
    10.1214/aos/1176344552), for all columns at once.

    A target may lack a metric. If all values are equal, as for a share of 0 or 1, the interval has no width, even for
    few values: use [`of_shares`] for means of shares.

    Args:
        table: values of shape (targets, metrics). A NaN means that a metric is not defined for a target, which is then
            left out of the mean.
        n: number of resamples, which all columns share.
        seed: seed of the random numbers.

    Returns:
        An estimate for each column.
    """
    is_defined = ~np.isnan(table)
    filled, counts = np.where(is_defined, table, 0.0), is_defined.sum(axis=0)
    rng, blocks = np.random.default_rng(seed), []
    block = max(1, _BLOCK // max(1, len(table)))
    with np.errstate(invalid="ignore"):  # 0 / 0: no target of a resample has the metric
        value = filled.sum(axis=0) / counts
        for start in range(0, n if len(table) else 0, block):
            rows = min(block, n - start)
            drawn = rng.integers(len(table), size=(rows, len(table)))
            # count how often each target is drawn, so that one matrix product sums over all resamples of the block
            indices = drawn + np.arange(rows)[:, None] * len(table)
            times = np.bincount(indices.ravel(), minlength=indices.size).reshape(rows, -1).astype(float)
            blocks.append((times @ filled) / (times @ is_defined))
    means = np.concatenate(blocks) if blocks else np.full((1, table.shape[1]), np.nan)
    estimates = []
    for column, (mean, count) in enumerate(zip(value.tolist(), counts.tolist(), strict=True)):
        resampled = means[:, column][~np.isnan(means[:, column])]
        low, high = np.quantile(resampled, [0.025, 0.975]).tolist() if len(resampled) else (math.nan, math.nan)
        estimates.append(Estimate(mean, low, high, count))
    return estimates


def of_shares(estimate: Estimate) -> Estimate:
    """Return the estimate of a mean of shares with an interval that has a width.

    A mean of 0 (or 1) of values between 0 and 1 means that all of them are 0 (or 1). Then all resamples agree, and the
    bootstrap interval has no width, however few values there are. It is replaced by Wilson's interval for 0 of n (or n
    of n).

    Args:
        estimate: the mean of values between 0 and 1, with any interval.
    """
    if estimate.n and estimate.value in (0.0, 1.0):
        return Estimate(estimate.value, *wilson_interval(round(estimate.value * estimate.n), estimate.n), estimate.n)
    return estimate

"""Confidence intervals of shares."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist


@dataclass(frozen=True)
class Estimate:
    """A share of `n` trials, with its 95% interval.

    Args:
        value: the share.
        low: lower end of the interval.
        high: upper end of the interval.
        n: number of trials.
    """

    value: float
    low: float
    high: float
    n: int


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95% score interval of a proportion (Wilson, J. Am. Stat. Assoc. 22, 1927, doi 10.2307/2276774).

    Unlike p ± z·sqrt(p(1-p)/n), it stays within [0, 1], and has the right coverage near 0 and 1 and for small n.

    Args:
        successes: number of successes, 0 to `n`.
        n: number of trials, at least 1.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: `n` is not positive, or `successes` is not between 0 and `n`.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got successes={successes}, n={n}")
    z = NormalDist().inv_cdf(0.975)
    center = (2 * successes + z**2) / (2 * (n + z**2))
    width = z * sqrt(z**2 + 4 * successes * (1 - successes / n)) / (2 * (n + z**2))
    return (center - width if successes else 0.0), (center + width if successes < n else 1.0)

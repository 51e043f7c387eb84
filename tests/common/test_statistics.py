import numpy as np
import pytest

from weftformer.common import statistics
from weftformer.common.statistics import Estimate, bootstrap_means, of_shares, wilson_interval


def test_wilson_interval_against_published_values():
    # R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-5)
    assert wilson_interval(7, 7)[1] == 1.0
    for successes, n in ((0, 0), (3, 2), (-1, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, n)


def test_bootstrap_means_are_the_plain_loop(monkeypatch):
    monkeypatch.setattr(statistics, "_BLOCK", 50)  # seven resamples a block: the last one is not full
    table = np.random.default_rng(2).integers(0, 5, size=(7, 3)).astype(float)
    rng = np.random.default_rng(3)
    means = []
    while len(means) < 100:
        means += [table[row].mean(axis=0) for row in rng.integers(7, size=(min(7, 100 - len(means)), 7))]
    ends = np.quantile(means, [0.025, 0.975], axis=0).T
    for column, low_and_high, estimate in zip(table.T, ends, bootstrap_means(table, n=100, seed=3), strict=True):
        assert (estimate.low, estimate.high) == pytest.approx(tuple(low_and_high))
        assert estimate.value == pytest.approx(column.mean()) and estimate.n == 7


def test_bootstrap_means_leave_out_what_is_not_defined():
    table = np.array([[1.0, np.nan, np.nan], [0.0, 1.0, np.nan], [1.0, 1.0, np.nan]])
    all_known, some, none = bootstrap_means(table, n=200)
    assert all_known.value == pytest.approx(2 / 3) and all_known.n == 3
    assert some == Estimate(1.0, 1.0, 1.0, 2)
    assert none.n == 0 and none.to_dict() == {"value": None, "low": None, "high": None, "n": 0}
    assert [estimate.n for estimate in bootstrap_means(table[:0])] == [0, 0, 0]


def test_a_mean_of_shares_that_all_agree_has_wilsons_interval():
    nothing, everything, some = (of_shares(one) for one in bootstrap_means(np.array([[0.0, 1.0, 0.5]] * 12), n=50))
    assert nothing == Estimate(0.0, *wilson_interval(0, 12), 12) and nothing.high > 0.2
    assert everything == Estimate(1.0, *wilson_interval(12, 12), 12) and everything.low < 0.8
    assert some == Estimate(0.5, 0.5, 0.5, 12)  # no count
    assert of_shares(bootstrap_means(np.full((2, 1), np.nan))[0]).n == 0

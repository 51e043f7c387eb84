import numpy as np
import pytest

from weftformer.routes import metrics
from weftformer.routes.metrics import (
    Estimate,
    Proportion,
    bootstrap_interval,
    bootstrap_means,
    first_rank,
    prefix_rank,
    reciprocal_rank,
    top_k_exact,
    wilson_interval,
)
from weftformer.routes.tree import Route

A = Route("CCO", (Route("CC"), Route("O")))
A_TURNED = Route("CCO", (Route("O"), Route("CC")))
B = Route("CCO", (Route("C"), Route("CO")))
C = Route("CCO", (Route("CCC"),))


def test_wilson_interval_against_published_values():
    # R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-5)


def test_wilson_interval_ends_are_exact():
    assert wilson_interval(0, 7)[0] == 0.0
    assert wilson_interval(7, 7)[1] == 1.0
    low, high = wilson_interval(30, 100, z=1.0)
    assert (low, high) == pytest.approx((0.2563, 0.3477), abs=1e-4)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_interval_refuses_nonsense(successes, n):
    with pytest.raises(ValueError, match="successes"):
        wilson_interval(successes, n)


def test_order_of_children_is_ignored():
    assert top_k_exact([[A_TURNED]], [A])[1].value == 1.0


def test_ranks():
    result = top_k_exact([[A], [B, A], [C, B, A], [C]], [A, A, A, A], ks=(1, 2, 3))
    assert {k: proportion.value for k, proportion in result.items()} == {1: 0.25, 2: 0.5, 3: 0.75}
    assert result[1] == Proportion(0.25, *wilson_interval(1, 4), 4)


def test_duplicates_take_no_rank():
    repeated = [B, B, Route("CCO", (Route("CO"), Route("C"))), A]
    assert top_k_exact([repeated], [A], ks=(1, 2))[1].value == 0.0
    assert top_k_exact([repeated], [A], ks=(1, 2))[2].value == 1.0


def test_unreadable_predictions_keep_their_rank():
    assert top_k_exact([[None, None, A]], [A], ks=(2, 3)) == {
        2: top_k_exact([[]], [A])[1],
        3: top_k_exact([[A]], [A])[1],
    }


def test_no_prediction_is_wrong():
    assert top_k_exact([[], [None]], [A, A])[5].value == 0.0


def test_text():
    assert str(top_k_exact([[A]] * 3 + [[B]], [A] * 4)[1]) == "75.0% [30.1%, 95.4%] (n=4)"


@pytest.mark.parametrize(
    ("predictions", "references", "ks"), [([], [], (1,)), ([[A]], [A, B], (1,)), ([[A]], [A], (0,))]
)
def test_wrong_arguments(predictions, references, ks):
    with pytest.raises(ValueError, match=r"expected as many|at least 1"):
        top_k_exact(predictions, references, ks)


def test_first_rank_asks_for_distinct_routes_only():
    asked = []
    assert first_rank([None, A, A_TURNED, B, C], lambda route: asked.append(route) or route == C) == 4
    assert asked == [A.canonical(), B.canonical(), C]
    assert first_rank([A, None], lambda route: False) is None


def test_prefix_rank():
    reference = Route("CCO", (Route("CC", (Route("C"), Route("CO"))), Route("O")))
    turned = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C")))))
    longer = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C", (Route("N"),))))))
    assert [prefix_rank([C, None, B, A], reference, depth) for depth in (0, 1, 2, 3)] == [1, 4, None, None]
    assert [prefix_rank([C, longer, turned], reference, depth) for depth in (1, 2, 3)] == [2, 2, 3]


def test_reciprocal_rank():
    assert [reciprocal_rank(rank) for rank in (1, 4, None)] == [1.0, 0.25, 0.0]


def test_bootstrap_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=400)
    half = 1.96 * values.std() / 20
    low, high = bootstrap_interval(values)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)
    inner = bootstrap_interval(values, level=0.5)
    assert low < inner[0] < inner[1] < high


def test_bootstrap_interval_of_a_share_is_near_wilson():
    values = [1.0] * 120 + [0.0] * 80
    assert bootstrap_interval(values) == pytest.approx(wilson_interval(120, 200), abs=0.01)


def test_bootstrap_interval_is_the_plain_loop(monkeypatch):
    values = np.random.default_rng(2).integers(0, 5, size=7).astype(float)
    monkeypatch.setattr(metrics, "_BLOCK", 50)  # seven resamples a block: the last one is not full
    rng = np.random.default_rng(3)
    medians = []
    while len(medians) < 100:
        medians += [np.median(values[row]) for row in rng.integers(7, size=(min(7, 100 - len(medians)), 7))]
    expected = np.quantile(medians, [0.025, 0.975])
    assert bootstrap_interval(values, np.median, n=100, seed=3) == pytest.approx(tuple(expected))


def test_bootstrap_means_are_the_intervals_of_each_column():
    table = np.random.default_rng(4).integers(0, 2, size=(30, 3)).astype(float)
    for column, estimate in zip(table.T, bootstrap_means(table, n=500, seed=5), strict=True):
        assert (estimate.low, estimate.high) == pytest.approx(bootstrap_interval(column, n=500, seed=5))
        assert estimate.value == pytest.approx(column.mean()) and estimate.n == 30


def test_bootstrap_means_leave_out_what_is_not_defined():
    table = np.array([[1.0, np.nan, np.nan], [0.0, 1.0, np.nan], [1.0, 1.0, np.nan]])
    all_known, some, none = bootstrap_means(table, n=200)
    assert all_known.value == pytest.approx(2 / 3) and all_known.n == 3
    assert some == Estimate(1.0, 1.0, 1.0, 2)
    assert none.n == 0 and none.to_dict() == {"value": None, "low": None, "high": None, "n": 0}
    assert [estimate.n for estimate in bootstrap_means(table[:0])] == [0, 0, 0]


@pytest.mark.parametrize(("values", "settings"), [([], {}), ([[1.0]], {}), ([1.0], {"n": 0}), ([1.0], {"level": 1.0})])
def test_bootstrap_interval_refuses_nonsense(values, settings):
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval(values, **settings)

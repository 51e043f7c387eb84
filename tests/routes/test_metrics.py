import pytest

from weft.routes.metrics import Proportion, top_k_exact, wilson_interval
from weft.routes.tree import Route

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

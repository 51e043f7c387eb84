import pytest

from weftformer.common.statistics import Estimate, wilson_interval
from weftformer.routes.scoring.metrics import prefix_rank, top_k_exact
from weftformer.routes.tree import Route

A = Route("CCO", (Route("CC"), Route("O")))
A_TURNED = Route("CCO", (Route("O"), Route("CC")))
B = Route("CCO", (Route("C"), Route("CO")))
C = Route("CCO", (Route("CCC"),))


def test_ranks():
    # a text that is no route takes a rank, and a route that repeats another takes none
    result = top_k_exact([[A], [B, B, A], [C, None, A], [C]], [A, A, A, A], ks=(1, 2, 3))
    assert {k: proportion.value for k, proportion in result.items()} == {1: 0.25, 2: 0.5, 3: 0.75}
    assert result[1] == Estimate(0.25, *wilson_interval(1, 4), 4)


@pytest.mark.parametrize(
    ("predictions", "references", "ks"), [([], [], (1,)), ([[A]], [A, B], (1,)), ([[A]], [A], (0,))]
)
def test_wrong_arguments(predictions, references, ks):
    with pytest.raises(ValueError, match=r"expected as many|at least 1"):
        top_k_exact(predictions, references, ks)


def test_prefix_rank():
    reference = Route("CCO", (Route("CC", (Route("C"), Route("CO"))), Route("O")))
    turned = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C")))))
    longer = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C", (Route("N"),))))))
    assert [prefix_rank([C, None, B, A], reference, depth) for depth in (0, 1, 2, 3)] == [1, 4, None, None]
    assert [prefix_rank([C, longer, turned], reference, depth) for depth in (1, 2, 3)] == [2, 2, 3]

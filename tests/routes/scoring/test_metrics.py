from weftformer.routes.scoring.metrics import exact_rank, prefix_rank
from weftformer.routes.tree import Route

A = Route("CCO", (Route("CC"), Route("O")))
A_TURNED = Route("CCO", (Route("O"), Route("CC")))
B = Route("CCO", (Route("C"), Route("CO")))
C = Route("CCO", (Route("CCC"),))


def test_exact_rank():
    # a text that is no route takes a rank, and a route that repeats another takes none
    found = [A], [B, B, A], [C, None, A], [C], [A_TURNED]
    assert [exact_rank(ranked, A) for ranked in found] == [1, 2, 3, None, 1]


def test_prefix_rank():
    reference = Route("CCO", (Route("CC", (Route("C"), Route("CO"))), Route("O")))
    turned = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C")))))
    longer = Route("CCO", (Route("O"), Route("CC", (Route("CO"), Route("C", (Route("N"),))))))
    assert [prefix_rank([C, None, B, A], reference, depth) for depth in (0, 1, 2, 3)] == [1, 4, None, None]
    assert [prefix_rank([C, longer, turned], reference, depth) for depth in (1, 2, 3)] == [2, 2, 3]

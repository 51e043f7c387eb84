from weftformer.routes.drawing.layout import Box, nodes, tidy_tree
from weftformer.routes.tree import Route


def places(boxes: list[Box]) -> list[tuple[float, float]]:
    return [(box.x, box.y) for box in boxes]


def test_a_reaction():
    # the children are 40 and 20 high and 10 apart: 70 in all, their middles at 20 and 60; the middle of both is the
    # parent's
    tree = nodes(Route("C", (Route("C"), Route("N", (Route("O"),)))))
    boxes = tidy_tree([(30, 20), (50, 40), (10, 20), (5, 5)], tree, gaps=[7, 9], row_gap=10, margin=0)
    assert places(boxes) == [(0, 30), (37, 0), (37, 50), (96, 57.5)]
    assert (boxes[1].right, boxes[1].bottom, boxes[1].middle) == (87, 40, 20)

import itertools
import random

import pytest

from weftformer.routes import Route
from weftformer.routes.drawing.layout import Layout, ladder, nodes, tidy_tree


def places(layout: Layout) -> list[tuple[float, float]]:
    return [(box.x, box.y) for box in layout.boxes]


def random_tree(seed: int, count: int) -> tuple[list[tuple[float, float]], list[int | None]]:
    """Siblings in order, parents before children."""
    rng = random.Random(seed)
    route = [Route("C")]
    for _ in range(count - 1):
        route.append(
            Route("C", tuple(route.pop(rng.randrange(len(route))) for _ in range(rng.randint(0, len(route)))))
        )
    tree = nodes(Route("C", tuple(route)))
    return [(rng.uniform(10, 90), rng.uniform(10, 90)) for _ in tree], [parent for _, parent in tree]


def test_a_reaction():
    # the children are 40 and 20 high and 10 apart: 70 in all, their middles at 20 and 60
    layout = tidy_tree([(30, 20), (50, 40), (10, 20)], [None, 0, 0], column_gap=7, row_gap=10)
    assert places(layout) == [(0, 30), (37, 0), (37, 50)]
    assert (layout.width, layout.height) == (87, 70)
    assert [box.parent for box in layout.boxes] == [None, 0, 0]
    assert [box.depth for box in layout.boxes] == [0, 1, 1] and layout.boxes[0].children == (1, 2)
    assert (layout.boxes[1].right, layout.boxes[1].bottom, layout.boxes[1].middle) == (87, 40, 20)


def test_subtrees_follow_their_outlines():
    # a leaf stands in the bend beside the wide subtree above it, not below all of it
    sizes = [(10.0, 10.0)] * 6
    layout = tidy_tree(sizes, [None, 0, 1, 1, 1, 0], column_gap=5, row_gap=2)
    assert [box.middle for box in layout.boxes] == [23.0, 17.0, 5.0, 17.0, 29.0, 29.0]
    assert layout.height == 34


def test_slack_is_shared_evenly():
    # the middle leaf has room between two bushes
    parents = [None, 0, 1, 1, 1, 0, 0, 6, 6, 6]
    layout = tidy_tree([(10.0, 10.0)] * 10, parents, row_gap=2)
    first, middle, last = (layout.boxes[i].middle for i in (1, 5, 6))
    assert middle - first == last - middle == 18 == layout.boxes[0].middle - first


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_the_rules_hold_for_any_tree(seed):
    sizes, parents = random_tree(seed, 2 + seed)
    layout = tidy_tree(sizes, parents, column_gap=9, row_gap=6)
    boxes = layout.boxes
    assert [(box.width, box.height) for box in boxes] == sizes and [box.parent for box in boxes] == parents
    for a, b in itertools.combinations(boxes, 2):
        if a.depth == b.depth:  # in the order given, with the gap
            assert a.bottom + 6 <= b.y + 1e-6
        else:
            left, right = sorted((a, b), key=lambda box: box.depth)
            assert left.right + 9 <= right.x + 1e-6
    for index, box in enumerate(boxes):
        assert box.children == tuple(i for i, parent in enumerate(parents) if parent == index)
        if box.children:
            outer = [boxes[box.children[0]].middle, boxes[box.children[-1]].middle]
            assert box.middle == pytest.approx(sum(outer) / 2)
    assert min(box.x for box in boxes) == 0 and min(box.y for box in boxes) == pytest.approx(0)
    assert max(box.right for box in boxes) == layout.width
    assert max(box.bottom for box in boxes) == pytest.approx(layout.height)


def test_the_mirrored_tree_has_the_mirrored_picture():
    def mirrored(route):
        return Route(route.smiles, tuple(mirrored(child) for child in reversed(route.children)))

    def middles(route):
        layout = tidy_tree([(10, 10 * len(node.smiles)) for node, _ in nodes(route)], [p for _, p in nodes(route)])
        return sorted((box.depth, round(layout.height - box.middle, 6)) for box in layout.boxes), layout

    bush = Route("C", (Route("CCC"), Route("C"), Route("CC")))
    route = Route("C", (bush, Route("C"), Route("CCCC"), Route("C", (bush, Route("C")))))
    turned, _ = middles(route)
    _, layout = middles(mirrored(route))
    assert sorted((box.depth, round(box.middle, 6)) for box in layout.boxes) == turned


def test_a_long_chain_needs_no_recursion():
    layout = tidy_tree([(1.0, 1.0)] * 3000, [None, *range(2999)], column_gap=1)
    assert layout.boxes[-1].x == 2 * 2999 and layout.height == 1


@pytest.mark.parametrize("parents", [[], [None, None], [0], [None, 1], [None, 2, 0], [None, -1]])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(ValueError, match=r"expected as many|parents\[\d\] is"):
        tidy_tree([(1, 1)] * len(parents), parents)


def test_each_column_has_its_own_gap():
    layout = tidy_tree([(30, 20), (50, 20), (10, 20)], [None, 0, 1], column_gap=[7, 9])
    assert [box.x for box in layout.boxes] == [0, 37, 96]


def test_a_ladder():
    # the second child goes on, and its sibling has room beside it; its own children do not fit side by side
    sizes = [(50, 20), (10, 30), (60, 25), (70, 10), (80, 10)]
    layout = ladder(sizes, [None, 0, 0, 2, 2], gaps=[5, 7], max_width=90, indent=12, space=4)
    assert places(layout) == [(0, 0), (64, 25), (0, 25), (12, 62), (12, 76)]
    assert (layout.width, layout.height) == (92, 86)
    assert [box.parent for box in layout.boxes] == [None, 0, 0, 2, 2] and layout.boxes[2].children == (3, 4)
    assert [box.depth for box in layout.boxes] == [0, 1, 1, 2, 2]


def test_a_ladder_stands_on_its_left_edge():
    layout = ladder([(50, 20), (40, 30), (90, 25), (70, 10)], [None, 0, 0, 2], gaps=[5, 7], max_width=90, indent=12)
    # no room beside it: the sibling comes before it
    assert places(layout) == [(0, 0), (12, 25), (0, 71), (0, 103)]
    assert [box.x for box in ladder([(50, 20), (95, 30)], [None, 0], gaps=[5], max_width=90, indent=12).boxes] == [
        0,
        12,
    ]


def test_a_ladder_has_one_side():
    with pytest.raises(ValueError, match="more than one has children"):
        ladder([(1, 1)] * 5, [None, 0, 0, 1, 2], gaps=[1, 1], max_width=9, indent=1)

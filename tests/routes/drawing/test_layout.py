import itertools
import random

import pytest

from weftformer.routes import Route
from weftformer.routes.drawing.layout import Box, nodes, tidy_tree


def places(boxes: list[Box]) -> list[tuple[float, float]]:
    return [(box.x, box.y) for box in boxes]


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
    # the children are 40 and 20 high and 10 apart: 70 in all, their middles at 20 and 60; the middle of both is the parent's
    boxes = tidy_tree([(30, 20), (50, 40), (10, 20), (5, 5)], [None, 0, 0, 2], gaps=[7, 9], row_gap=10)
    assert places(boxes) == [(0, 30), (37, 0), (37, 50), (96, 57.5)]
    assert (boxes[1].right, boxes[1].bottom, boxes[1].middle) == (87, 40, 20)


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_the_rules_hold_for_any_tree(seed):
    sizes, parents = random_tree(seed, 2 + seed)
    boxes = tidy_tree(sizes, parents, gaps=[9] * len(sizes), row_gap=6)
    assert [(box.width, box.height) for box in boxes] == sizes
    depths = []
    for parent in parents:
        depths.append(0 if parent is None else depths[parent] + 1)
    for i, j in itertools.combinations(range(len(boxes)), 2):
        if depths[i] == depths[j]:  # in the order given, with the gap
            assert boxes[i].bottom + 6 <= boxes[j].y + 1e-6
        else:
            left, right = sorted((i, j), key=depths.__getitem__)
            assert boxes[left].right + 9 <= boxes[right].x + 1e-6
    for index, box in enumerate(boxes):
        if below := [boxes[i] for i, parent in enumerate(parents) if parent == index]:
            assert box.middle == pytest.approx((below[0].middle + below[-1].middle) / 2)
    assert min(box.x for box in boxes) == 0 and min(box.y for box in boxes) == pytest.approx(0)

"""The layout of a route as a tidy tree: the target is on the left, and its reactants are to its right.

Each reaction away from the target is a column. The tree grows from left to right because structures are wider than
high, and because a route has more steps in a row than molecules side by side. So the picture is flat, and several
pictures fit on one screen. The arrows of the reactions point left to the target, as in most retrosynthesis programs.

A product is at the middle of its reactants, and each box is as high as the boxes above it in its column allow
(Wetherell and Shannon, "Tidy drawings of trees", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from ..tree import Route


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture.

    Args:
        x: the left edge.
        y: the upper edge.
        width: the width.
        height: the height.
    """

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The vertical middle of the box."""
        return self.y + self.height / 2


class Node(NamedTuple):
    """A molecule in the tree of a route. Indices count the molecules depth first.

    Args:
        route: the route to the molecule.
        place: its index.
        parent: the index of its product, None for the target.
        depth: the number of reactions from it to the target.
        children: the indices of its reactants.
        step: the number of the reaction that makes it, in the order of `Route.steps`, 0 for a starting material.
    """

    route: Route
    place: int
    parent: int | None
    depth: int
    children: list[int]
    step: int = 0


def nodes(route: Route) -> list[Node]:
    """Return the molecules of a route, depth first."""
    tree: list[Node] = []
    steps = count(1)

    def add(route: Route, parent: int | None, depth: int) -> int:
        index = len(tree)
        tree.append(Node(route, index, parent, depth, []))
        tree[index].children.extend(add(child, index, depth + 1) for child in route.children)
        if route.children:
            tree[index] = tree[index]._replace(step=next(steps))
        return index

    add(route, None, 0)
    return tree


def tidy_tree(
    sizes: Sequence[tuple[float, float]], tree: Sequence[Node], *, gaps: Sequence[float], row_gap: float, margin: float
) -> list[Box]:
    """Place boxes of given sizes as a tree that grows to the right. Siblings are placed from top to bottom.

    Args:
        sizes: the width and height of each box.
        tree: the molecules in the boxes.
        gaps: for each column but the last, the space between its widest box and the next column.
        row_gap: the smallest space between two boxes of a column.
        margin: the space to the left and above.

    Returns:
        The boxes in their given order, without overlaps.
    """
    middles = _middles([height for _, height in sizes], tree, row_gap)
    top = min(middle - height / 2 for middle, (_, height) in zip(middles, sizes, strict=True))
    columns = [0.0]
    for depth, gap in enumerate(gaps):
        widest = max(width for (width, _), node in zip(sizes, tree, strict=True) if node.depth == depth)
        columns.append(columns[-1] + widest + gap)
    return [
        Box(columns[node.depth] + margin, middle - height / 2 - top + margin, width, height)
        for (width, height), node, middle in zip(sizes, tree, middles, strict=True)
    ]


def _middles(heights: Sequence[float], tree: Sequence[Node], gap: float) -> list[float]:
    """Return the vertical middle of every box."""
    middles = [0.0] * len(heights)
    bottoms: dict[int, float] = {}  # the lower edge of the boxes placed so far, by column

    def put(index: int, middle: float) -> None:
        column = tree[index].depth
        middles[index] = middle
        bottoms[column] = max(bottoms.get(column, -gap), middle + heights[index] / 2)

    def push(index: int, down: float) -> None:
        put(index, middles[index] + down)
        for child in tree[index].children:
            push(child, down)

    def place(index: int) -> None:
        for child in tree[index].children:
            place(child)
        highest = bottoms.get(tree[index].depth, -gap) + gap + heights[index] / 2
        middle = highest
        if below := tree[index].children:
            middle = (middles[below[0]] + middles[below[-1]]) / 2
            if middle < highest:  # there is no space beside its reactants
                for child in below:
                    push(child, highest - middle)
                middle = highest
        put(index, middle)

    place(0)
    return middles

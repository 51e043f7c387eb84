"""The layout of a route as a tidy tree: the target is on the left, and its reactants are to its right.

Each reaction away from the target is a column. The tree grows from left to right because structures are wider than
high, and because a route has more steps in a row than molecules side by side. So the picture is flat, and several
pictures fit on one screen. The arrows of the reactions point left to the target, as in most retrosynthesis programs.

A product is at the middle of its reactants, and each box is as high as the boxes above it in its column allow
(Wetherell and Shannon, "Tidy drawings of trees", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..tree import Route


@dataclass(frozen=True)
class Box:
    """
    A rectangle of a picture.

    Args:
        x (`float`):
            The left edge.
        y (`float`):
            The upper edge.
        width (`float`):
            The width.
        height (`float`):
            The height.
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

    def moved(self, x: float, y: float) -> Box:
        """Return the box moved to the right and down."""
        return replace(self, x=self.x + x, y=self.y + y)


def nodes(route: Route) -> list[tuple[Route, int | None]]:
    """Return the molecules of a route, depth first, each with the index of its product (None for the target)."""
    found: list[tuple[Route, int | None]] = []

    def add(node: Route, parent: int | None) -> None:
        found.append((node, parent))
        index = len(found) - 1
        for child in node.children:
            add(child, index)

    add(route, None)
    return found


def children_of(parents: Sequence[int | None]) -> list[list[int]]:
    """Return the indices of the children of each box, given the index of each box's parent."""
    children: list[list[int]] = [[] for _ in parents]
    for index, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(index)
    return children


def tidy_tree(
    sizes: Sequence[tuple[float, float]],
    parents: Sequence[int | None],
    *,
    gaps: Sequence[float],
    row_gap: float = 16.0,
) -> list[Box]:
    """
    Place boxes of given sizes as a tree that grows to the right.

    Args:
        sizes (`Sequence[tuple[float, float]]`):
            The width and height of each box.
        parents (`Sequence[int | None]`):
            The index of each box's parent, None for the first box. A parent comes before its children. Siblings are
            placed from top to bottom in their given order.
        gaps (`Sequence[float]`):
            For each column but the last, the space between its widest box and the next column.
        row_gap (`float`, *optional*, defaults to 16.0):
            The smallest space between two boxes of a column.

    Returns:
        `list[Box]`: the boxes in their given order, without overlaps. The upper left corner of all of them is (0, 0).
    """
    depths = list[int]()
    for parent in parents:
        depths.append(0 if parent is None else depths[parent] + 1)
    middles = _middles([height for _, height in sizes], children_of(parents), row_gap)
    top = min(middle - height / 2 for middle, (_, height) in zip(middles, sizes, strict=True))
    columns = [0.0]
    for depth in range(max(depths)):
        widest = max(width for (width, _), own in zip(sizes, depths, strict=True) if own == depth)
        columns.append(columns[-1] + widest + gaps[depth])
    return [
        Box(columns[depths[i]], middles[i] - height / 2 - top, width, height)
        for i, (width, height) in enumerate(sizes)
    ]


def _middles(heights: Sequence[float], children: Sequence[Sequence[int]], gap: float) -> list[float]:
    """Return the vertical middle of every box."""
    middles = [0.0] * len(heights)
    bottoms: dict[int, float] = {}  # the lower edge of the boxes placed so far, by column

    def put(node: int, column: int, middle: float) -> None:
        middles[node] = middle
        bottoms[column] = max(bottoms.get(column, -gap), middle + heights[node] / 2)

    def push(node: int, column: int, down: float) -> None:
        put(node, column, middles[node] + down)
        for child in children[node]:
            push(child, column + 1, down)

    def place(node: int, column: int) -> None:
        for child in children[node]:
            place(child, column + 1)
        highest = bottoms.get(column, -gap) + gap + heights[node] / 2
        middle = highest
        if below := children[node]:
            middle = (middles[below[0]] + middles[below[-1]]) / 2
            if middle < highest:  # there is no room beside its reactants
                for child in below:
                    push(child, column + 1, highest - middle)
                middle = highest
        put(node, column, middle)

    place(0, 0)
    return middles

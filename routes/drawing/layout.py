"""The layout of a route as a tidy tree: the target is on the left, and its reactants are to its right.

Each reaction away from the target is a column. The tree grows from left to right because structures are wider than
high, and because a route has more steps in a row than molecules side by side. So the picture is flat, and several
pictures fit on one screen. The arrows of the reactions point left to the target, as in most retrosynthesis programs.

The rules are those of Reingold and Tilford, "Tidier drawings of trees" (1981), for boxes of any size. Nothing
overlaps. A parent is at the middle of its children. Subtrees are as close as their outlines allow. A mirrored tree has
the mirrored picture. A subtree between two larger ones is not pushed towards one of them.
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
        `list[Box]`: the boxes in their given order, as close to one another as the rules allow. The upper left corner
        of all of them is (0, 0).
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
    """Return the vertical middle of every box. The middle of the first box is 0."""
    # the upper and lower edge of each subtree in each of its columns, relative to the middle of its root
    outlines: list[list[tuple[float, float]]] = [[] for _ in heights]
    shifts = [0.0] * len(heights)  # relative to the middle of the parent
    for node in reversed(range(len(heights))):  # children first, without recursion
        below = children[node]
        places = _pack([outlines[child] for child in below], gap)
        outline = [(-heights[node] / 2, heights[node] / 2)]
        for child, place in zip(below, places, strict=True):
            shifts[child] = place
            for column, (upper, lower) in enumerate(outlines[child], 1):
                upper, lower = upper + shifts[child], lower + shifts[child]
                if column == len(outline):
                    outline.append((upper, lower))
                else:  # a later child does not always extend the outline: it may fit beside a longer one
                    outline[column] = (min(outline[column][0], upper), max(outline[column][1], lower))
            outlines[child] = []
        outlines[node] = outline
    middles = [0.0] * len(heights)
    for node, below in enumerate(children):
        for child in below:
            middles[child] = middles[node] + shifts[child]
    return middles


def _pack(outlines: Sequence[list[tuple[float, float]]], gap: float) -> list[float]:
    """Return the places of sibling subtrees: as close as their outlines allow, with equal shares of the free space."""
    count = len(outlines)
    apart = {
        (i, j): max(upper[1] + gap - lower[0] for upper, lower in zip(outlines[i], outlines[j], strict=False))
        for j in range(count)
        for i in range(j)
    }
    down, up = [0.0] * count, [0.0] * count
    for j in range(1, count):  # place each as high as possible
        down[j] = max(down[i] + apart[i, j] for i in range(j))
    for i in reversed(range(count - 1)):  # place each as low as possible
        up[i] = min(up[j] - apart[i, j] for j in range(i + 1, count))
    # Both keep all distances, and so does their mean. The mean of the mirrored tree is mirrored too, and its first and
    # last place are equally far from 0, which is the middle of the parent.
    return [(low + high) / 2 for low, high in zip(down, up, strict=True)]

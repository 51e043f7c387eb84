"""Where the molecules of a route stand in its picture: a tidy tree, target on the left, what it is made from to its right.

Every step back from the target is a column. Left to right reads best on a wide screen: structures are wider than high, and
a route has more steps in a row than molecules side by side, so that its picture is flat and several fit on one screen. The
arrows of the reactions then point to the left, to the target, as in most retrosynthesis programs.

The rules are those of Reingold and Tilford, "Tidier drawings of trees" (1981), for boxes of any size: nothing overlaps, a
parent stands at the middle of its children, subtrees are as close as their outlines allow, a mirrored tree has the mirrored
picture, and a subtree that stands between two larger ones is not pushed to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tree import Route


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture: its upper left corner and its size; `depth` columns stand to the left of its own.

    `parent` is the index of the box that it leads to, None for the target; `children` are those it is made from.
    """

    x: float
    y: float
    width: float
    height: float
    depth: int
    parent: int | None
    children: tuple[int, ...]

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        """Half its height down."""
        return self.y + self.height / 2


@dataclass(frozen=True)
class Layout:
    """Boxes in the order they were given in, and the size of all of them together; the upper left corner is (0, 0)."""

    boxes: tuple[Box, ...]
    width: float
    height: float


def nodes(route: Route) -> list[tuple[Route, int | None]]:
    """The molecules of a route, depth first, each with the index of the one it leads to (None for the target)."""
    found: list[tuple[Route, int | None]] = []
    waiting: list[tuple[Route, int | None]] = [(route, None)]
    while waiting:
        node, parent = waiting.pop()
        waiting += [(child, len(found)) for child in reversed(node.children)]
        found.append((node, parent))
    return found


def tidy_tree(
    sizes: Sequence[tuple[float, float]],
    parents: Sequence[int | None],
    *,
    column_gap: float = 64.0,
    row_gap: float = 16.0,
) -> Layout:
    """Place boxes of given sizes as a tree that grows to the right.

    Args:
        sizes: width and height of each box.
        parents: index of the box that each hangs on, None for the first; a parent stands before its children, and
            siblings stand from top to bottom in the order they are given in.
        column_gap: between the widest box of a column and the next column.
        row_gap: the least space between two boxes of a column.

    Returns:
        The boxes, as close to one another as the rules allow.

    Raises:
        ValueError: there is no box, or `parents` does not describe one tree in that order.
    """
    if not sizes or len(sizes) != len(parents):
        raise ValueError(f"expected as many sizes as parents and at least one, got {len(sizes)} and {len(parents)}")
    children: list[list[int]] = [[] for _ in sizes]
    depths = [0] * len(sizes)
    for index, parent in enumerate(parents):
        if (parent is None) != (index == 0) or (parent is not None and not 0 <= parent < index):
            raise ValueError(f"parents[{index}] is {parent}: only the first box has none, the others an earlier box")
        if parent is not None:
            children[parent].append(index)
            depths[index] = depths[parent] + 1

    middles = _middles([height for _, height in sizes], children, row_gap)
    top = min(middle - height / 2 for middle, (_, height) in zip(middles, sizes, strict=True))
    columns = [0.0]
    for depth in range(max(depths)):
        widest = max(width for (width, _), own in zip(sizes, depths, strict=True) if own == depth)
        columns.append(columns[-1] + widest + column_gap)
    boxes = tuple(
        Box(
            columns[depths[i]], middles[i] - height / 2 - top, width, height, depths[i], parents[i], tuple(children[i])
        )
        for i, (width, height) in enumerate(sizes)
    )
    return Layout(boxes, max(box.right for box in boxes), max(box.bottom for box in boxes))


def _middles(heights: Sequence[float], children: Sequence[Sequence[int]], gap: float) -> list[float]:
    """The vertical middle of every box, that of the first at 0."""
    # upper and lower edge of each subtree in every column from its root on, seen from the middle of that root
    outlines: list[list[tuple[float, float]]] = [[] for _ in heights]
    shifts = [0.0] * len(heights)  # from the middle of the parent
    for node in reversed(range(len(heights))):  # children first, without recursion
        below = children[node]
        places = _pack([outlines[child] for child in below], gap)
        # the outermost children are as far from their parent as one another
        centre = (places[0] + places[-1]) / 2 if below else 0.0
        outline = [(-heights[node] / 2, heights[node] / 2)]
        for child, place in zip(below, places, strict=True):
            shifts[child] = place - centre
            for column, (upper, lower) in enumerate(outlines[child], 1):
                upper, lower = upper + shifts[child], lower + shifts[child]
                if column == len(outline):
                    outline.append((upper, lower))
                else:  # not always the last child: a short one may stand inside the bend of a larger one
                    outline[column] = (min(outline[column][0], upper), max(outline[column][1], lower))
            outlines[child] = []
        outlines[node] = outline
    middles = [0.0] * len(heights)
    for node, below in enumerate(children):
        for child in below:
            middles[child] = middles[node] + shifts[child]
    return middles


def _pack(outlines: Sequence[list[tuple[float, float]]], gap: float) -> list[float]:
    """Where sibling subtrees stand: as close as their outlines allow, slack shared evenly."""
    count = len(outlines)
    apart = {
        (i, j): max(upper[1] + gap - lower[0] for upper, lower in zip(outlines[i], outlines[j], strict=False))
        for j in range(count)
        for i in range(j)
    }
    down, up = [0.0] * count, [0.0] * count
    for j in range(1, count):  # each as high as it can be
        down[j] = max(down[i] + apart[i, j] for i in range(j))
    for i in reversed(range(count - 1)):  # each as low as it can be
        up[i] = min(up[j] - apart[i, j] for j in range(i + 1, count))
    # Both keep all distances, so does their mean; and it is the same seen from below.
    return [(low + high) / 2 for low, high in zip(down, up, strict=True)]

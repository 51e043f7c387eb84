"""The layout of a route as a tidy tree: the target is on the left, and its reactants are to its right.

(For narrow screens, `ladder` has the target at the top and its reactants below it.)

Each reaction away from the target is a column. The tree grows from left to right because structures are wider than
high, and because a route has more steps in a row than molecules side by side. So the picture is flat, and several
pictures fit on one screen. The arrows of the reactions point left to the target, as in most retrosynthesis programs.

The rules are those of Reingold and Tilford, "Tidier drawings of trees" (1981), for boxes of any size. Nothing
overlaps. A parent is at the middle of its children. Subtrees are as close as their outlines allow. A mirrored tree has
the mirrored picture. A subtree between two larger ones is not pushed to one of them.
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
        depth (`int`):
            The number of columns to the left of the box's column.
        parent (`int`, *optional*):
            The index of the box of the product, or None for the target.
        children (`tuple[int, ...]`):
            The indices of the boxes of the reactants.
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
        """The vertical middle of the box."""
        return self.y + self.height / 2

    @property
    def centre(self) -> float:
        """The horizontal middle of the box."""
        return self.x + self.width / 2

    def moved(self, x: float, y: float) -> Box:
        """Return the box moved to the right and down."""
        return replace(self, x=self.x + x, y=self.y + y)


@dataclass(frozen=True)
class Layout:
    """Boxes in their given order, and the size of all boxes together. The upper left corner is (0, 0)."""

    boxes: tuple[Box, ...]
    width: float
    height: float


def nodes(route: Route) -> list[tuple[Route, int | None]]:
    """Return the molecules of a route, depth first, each with the index of its product (None for the target)."""
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
    column_gap: float | Sequence[float] = 64.0,
    row_gap: float = 16.0,
) -> Layout:
    """
    Place boxes of given sizes as a tree that grows to the right.

    Args:
        sizes (`Sequence[tuple[float, float]]`):
            The width and height of each box.
        parents (`Sequence[int | None]`):
            The index of each box's parent, None for the first box. A parent comes before its children. Siblings are
            placed from top to bottom in their given order.
        column_gap (`float` or `Sequence[float]`, *optional*, defaults to 64.0):
            The space between the widest box of a column and the next column, one for all columns or one for each
            column but the last.
        row_gap (`float`, *optional*, defaults to 16.0):
            The smallest space between two boxes of a column.

    Returns:
        [`Layout`]: the boxes, as close to one another as the rules allow.

    Raises:
        ValueError: there is no box, or `parents` is not a tree in that order.
    """
    if not sizes or len(sizes) != len(parents):
        raise ValueError(f"expected as many sizes as parents and at least one, got {len(sizes)} and {len(parents)}")
    children: list[list[int]] = [[] for _ in sizes]
    depths = [0] * len(sizes)
    for index, parent in enumerate(parents):
        if (parent is None) != (index == 0) or (parent is not None and not 0 <= parent < index):
            raise ValueError(
                f"parents[{index}] is {parent}: the first box must have no parent, and each other box an earlier one"
            )
        if parent is not None:
            children[parent].append(index)
            depths[index] = depths[parent] + 1

    middles = _middles([height for _, height in sizes], children, row_gap)
    top = min(middle - height / 2 for middle, (_, height) in zip(middles, sizes, strict=True))
    columns = [0.0]
    for depth in range(max(depths)):
        widest = max(width for (width, _), own in zip(sizes, depths, strict=True) if own == depth)
        columns.append(columns[-1] + widest + (column_gap[depth] if isinstance(column_gap, Sequence) else column_gap))
    boxes = tuple(
        Box(
            columns[depths[i]], middles[i] - height / 2 - top, width, height, depths[i], parents[i], tuple(children[i])
        )
        for i, (width, height) in enumerate(sizes)
    )
    return Layout(boxes, max(box.right for box in boxes), max(box.bottom for box in boxes))


def ladder(
    sizes: Sequence[tuple[float, float]],
    parents: Sequence[int | None],
    *,
    gaps: Sequence[float],
    max_width: float,
    indent: float,
    space: float = 16.0,
) -> Layout:
    """
    Place boxes from top to bottom, for narrow screens. Of the children of a box, at most one has children.

    The box with children stands at the left edge below its parent, so the picture does not grow to the side with each
    step. Its siblings stand to its right if there is room. Otherwise each of them has a line of its own above it,
    indented.

    Args:
        sizes (`Sequence[tuple[float, float]]`):
            As for `tidy_tree`.
        parents (`Sequence[int | None]`):
            As for `tidy_tree`.
        gaps (`Sequence[float]`):
            For each depth but the last, the space below the parent.
        max_width (`float`):
            The width in which siblings stand side by side. A single box can be wider.
        indent (`float`):
            The left edge of siblings that have a line of their own.
        space (`float`, *optional*, defaults to 16.0):
            The space between siblings.

    Returns:
        [`Layout`]: the boxes in their given order.

    Raises:
        ValueError: two siblings have children.
    """
    children: list[list[int]] = [[] for _ in sizes]
    for index, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(index)
    boxes: dict[int, Box] = {}

    def place(index: int, x: float, y: float, depth: int) -> Box:
        boxes[index] = Box(x, y, *sizes[index], depth, parents[index], tuple(children[index]))
        return boxes[index]

    parent, bottom = 0, place(0, 0.0, 0.0, 0).bottom
    for depth, gap in enumerate(gaps, 1):
        *others, last = sorted(children[parent], key=lambda index: bool(children[index]))
        if any(children[index] for index in others):
            raise ValueError(f"{len(children[parent])} boxes with the parent {parent}: more than one has children")
        top, right = bottom + gap, 0.0
        if sum(sizes[index][0] + space for index in (*others, last)) - space <= max_width:
            for index in (last, *others):
                box = place(index, right, top, depth)
                bottom, right = max(bottom, box.bottom), box.right + space
        else:
            for index in others:
                top = place(index, indent, top, depth).bottom + space
            bottom = place(last, 0.0 if children[last] else indent, top, depth).bottom
        parent = last
    placed = tuple(boxes[index] for index in range(len(sizes)))
    return Layout(placed, max(box.right for box in placed), max(box.bottom for box in placed))


def _middles(heights: Sequence[float], children: Sequence[Sequence[int]], gap: float) -> list[float]:
    """Return the vertical middle of every box. The middle of the first box is 0."""
    # the upper and lower edge of each subtree in each of its columns, relative to the middle of its root
    outlines: list[list[tuple[float, float]]] = [[] for _ in heights]
    shifts = [0.0] * len(heights)  # relative to the middle of the parent
    for node in reversed(range(len(heights))):  # children first, without recursion
        below = children[node]
        places = _pack([outlines[child] for child in below], gap)
        # the first and the last child are equally far from their parent
        centre = (places[0] + places[-1]) / 2 if below else 0.0
        outline = [(-heights[node] / 2, heights[node] / 2)]
        for child, place in zip(below, places, strict=True):
            shifts[child] = place - centre
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
    # Both keep all distances, and so does their mean. The mean of the mirrored tree is mirrored too.
    return [(low + high) / 2 for low, high in zip(down, up, strict=True)]

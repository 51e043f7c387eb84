"""The contents and the arrangement of a route's picture, independent of SVG and PNG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..files.formats import reaction_smiles
from ..molecules import canonical_or_given
from ..reaction_names import route_name
from ..tree import Route
from .depiction import TEXT_HEIGHT, Depiction, depict_route
from .layout import Box, children_of, ladder, nodes, tidy_tree

MARGIN, PADDING, RADIUS = 20.0, 12.0, 9.0
COLUMN_GAP, ROW_GAP = 70.0, 16.0
LABEL_SIZE, LABEL_HEIGHT, MARK_SIZE = 11.0, 19.0, 9.0
# The reader's font is unknown: the width of a character in a wide font, which is reserved, and in a usual font.
_WIDE_CHARACTER, _CHARACTER = 6.1, 5.4
_MARK_GAP = 5.0
# The sizes of an arrow, which goes from the line that joins the reactants to a point near the product.
JOINT, TIP, HEAD, HEAD_WIDTH = 20.0, 4.0, 9.0, 8.0
# The name of a reaction: characters per line, the height of a line, and its distance from an arrow that points up and from
# other lines.
_NAME_COLUMNS, LINE_HEIGHT, SIDE, _NAME_MARGIN = 15, 13.0, 9.0, 5.0
# The space between two rows of a folded picture.
FOLD_GAP = 30.0
# In a picture that goes down: the distance of the arrows from the left edge, the width of a phone, up to which
# reactants stand side by side, and the margin.
SPINE, _NARROW, _NARROW_MARGIN = 28.0, 380.0, 8.0
LINE, LINE_WIDTH, PANEL, PANEL_EDGE, QUIET = "#64748b", 1.6, "#ffffff", "#e2e8f0", "#64748b"

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Look:
    """The colours of a card.

    `mark` contains the strokes of a sign in a square of `MARK_SIZE`, so that readers do not depend on colours alone.
    """

    fill: str
    edge: str
    edge_width: float
    ink: str
    label: str
    mark: tuple[Points, ...] = ()
    dash: tuple[float, float] | None = None


LOOKS = {
    "target": Look("#ffffff", "#334155", 1.8, "#334155", "target"),
    "intermediate": Look("#ffffff", "#dbe1e9", 1.2, "#475569", ""),
    "joined": Look(
        "#ffffff", "#5b4bb5", 1.8, "#463a94", "joined here",
        (((0.0, 4.5), (2.8, 1.7), (5.6, 4.5), (2.8, 7.3), (0.0, 4.5)), ((3.4, 4.5), (6.2, 1.7), (9.0, 4.5), (6.2, 7.3), (3.4, 4.5))),
        (1.5, 3.5),
    ),
    "in-stock": Look("#e8f6ed", "#2f9e5b", 1.5, "#17693a", "in stock", (((0.5, 5.0), (3.3, 8.0), (8.5, 1.5)),)),
    "missing": Look(
        "#fdecec", "#d64545", 1.5, "#a11f1f", "not in stock", (((1, 1), (8, 8)), ((1, 8), (8, 1))), (6.0, 4.0)
    ),
    "unknown": Look(
        "#f1f4f8", "#8a97a8", 1.5, "#475569", "starting material", (((4.5, 0.5), (8.5, 4.5), (4.5, 8.5), (0.5, 4.5), (4.5, 0.5)),)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Card:
    """A molecule in its frame. `kind` is a key of `LOOKS`, and `label` is the text under the molecule."""

    box: Box
    depiction: Depiction
    kind: str
    label: str

    @property
    def smiles(self) -> str:
        return self.depiction.smiles

    @property
    def look(self) -> Look:
        return LOOKS[self.kind]

    @property
    def corner(self) -> tuple[float, float]:
        """The upper left corner of the molecule."""
        room = self.box.height - (LABEL_HEIGHT if self.label else 0.0)
        return (
            self.box.x + (self.box.width - self.depiction.width) / 2,
            self.box.y + (room - self.depiction.height) / 2 + (PADDING / 4 if self.label else 0.0),
        )

    @property
    def label_place(self) -> tuple[float, float]:
        """A point on the base line of the label: the middle of the label, or its beginning if it has a mark."""
        x = self.box.x + self.box.width / 2
        if self.look.mark:
            x -= (_CHARACTER * len(self.label) - MARK_SIZE - _MARK_GAP) / 2
        return x, self.box.bottom - PADDING + 3.0

    @property
    def mark(self) -> list[Points]:
        """The strokes of the mark to the left of the label."""
        x, y = self.label_place
        left, top = x - MARK_SIZE - _MARK_GAP, y - MARK_SIZE + 0.5
        return [tuple((left + px, top + py) for px, py in stroke) for stroke in self.look.mark]


@dataclass(frozen=True)
class Reaction:
    """An arrow that joins the reactants of one reaction and ends at the product.

    `number` counts the reactions in an order in which they can be run. `lines` is the name of the reaction, if it has
    one, in short lines. `tip` and `joint` are the ends of the arrow. `branches` are the points where the lines from the
    reactants begin, and `corners` those where they turn to the joint. The arrow points left, or up if `is_down`.
    """

    number: int
    smiles: str
    name: str | None
    tip: tuple[float, float]
    joint: tuple[float, float]
    branches: Points
    corners: Points
    is_down: bool = False

    @property
    def lines(self) -> list[str]:
        return name_lines(self.name)

    @property
    def label_places(self) -> list[tuple[float, float]]:
        """A point on the base line of each text: of the number, then of each line of the name.

        It is the middle of the text. If `is_down`, it is the beginning.
        """
        (x, y), count = self.tip, 1 + len(self.lines)
        if self.is_down:
            return [(x + SIDE, y + HEAD + LINE_HEIGHT * (row + 0.8)) for row in range(count)]
        middle = (x + HEAD + self.joint[0]) / 2
        return [(middle, y - 6), *((middle, y + LINE_HEIGHT * (row + 1.1)) for row in range(count - 1))]


@dataclass(frozen=True)
class Picture:
    """The cards and the reactions, in an order in which they can be run. Sizes are in pixels at scale 1.

    The cards are those of one row after the other, depth first in each row. A molecule that ends one row and begins
    another has two cards.
    """

    width: float
    height: float
    cards: tuple[Card, ...]
    reactions: tuple[Reaction, ...]
    title: str
    description: str


@dataclass(frozen=True)
class Contents:
    """
    What a picture of a route shows, wherever it stands.

    Args:
        route (`Route`):
            The route.
        tree (`list[tuple[Route, int | None]]`):
            The molecules, depth first, each with the index of its product.
        depictions (`list[Depiction]`):
            The drawing of each molecule.
        kinds (`list[str]`):
            The kind of each molecule, a key of `LOOKS`.
        steps (`dict[int, tuple[int, str | None]]`):
            The number and the name of the reaction that makes a molecule, by the index of the molecule.
    """

    route: Route
    tree: list[tuple[Route, int | None]]
    depictions: list[Depiction]
    kinds: list[str]
    steps: dict[int, tuple[int, str | None]]

    @property
    def children(self) -> list[list[int]]:
        """The indices of the reactants of each molecule."""
        return children_of([parent for _, parent in self.tree])


def contents(route: Route, missing: Iterable[str] | None = None, joined_at: Iterable[str] = ()) -> Contents:
    """
    Draw the molecules of a route, and find out what can be bought and what the reactions are called.

    Args:
        route ([`Route`]):
            The route.
        missing (`Iterable[str]`, *optional*):
            The starting materials that cannot be bought, as in `Candidate.missing`. All others then can.
        joined_at (`Iterable[str]`, *optional*):
            The molecules to which a route of their own was found and joined, as in `Candidate.joined_at`.

    Returns:
        [`Contents`]: the contents.
    """
    absent = None if missing is None else {canonical_or_given(smiles) for smiles in missing}
    joints = {canonical_or_given(smiles) for smiles in joined_at}
    tree = nodes(route)
    kinds = []
    for node, parent in tree:
        if node.children:
            is_joint = bool(joints) and canonical_or_given(node.smiles) in joints
            kinds.append("target" if parent is None else "joined" if is_joint else "intermediate")
        elif absent is None:
            kinds.append("unknown")
        else:
            kinds.append("missing" if canonical_or_given(node.smiles) in absent else "in-stock")
    order = _made(children_of([parent for _, parent in tree]))
    steps = {index: (number, route_name(tree[index][0])) for number, index in enumerate(order, 1)}
    return Contents(route, tree, depict_route(route), kinds, steps)


def arranged(shown: Contents, *, max_width: float | None = None, down: bool = False) -> Picture:
    """
    Arrange the contents of a picture.

    Args:
        shown ([`Contents`]):
            The contents.
        max_width (`float`, *optional*):
            The width at which the picture is folded, as a text is broken into lines: a molecule that is made beyond it
            ends its row, and stands at the beginning of another row too. A row has at least one reaction, so it can be
            wider. Defaults to one row.
        down (`bool`, *optional*, defaults to `False`):
            Whether reactants stand below their product instead of to its right, for narrow screens. Then `max_width`
            has no effect, and where two reactants of a reaction are made, one of them is made in a part of its own.

    Returns:
        [`Picture`]: the picture.
    """
    margin = _NARROW_MARGIN if down else MARGIN
    rows = _chains(shown) if down else _folded(shown, math.inf if max_width is None else max_width - 2 * MARGIN)
    number_of = {row[0]: number for number, row in enumerate(rows, 1)}
    cards: list[Card] = []
    reactions: list[Reaction] = []
    top = margin
    for row in rows:
        found = _row(shown, row, number_of, down)
        cards += [replace(card, box=card.box.moved(margin, top)) for card in found]
        boxes = {index: card.box for index, card in zip(row, cards[-len(row) :], strict=True)}
        reactions += _reactions(shown, row, boxes, down)
        top = max(card.box.bottom for card in cards) + FOLD_GAP
    reactions.sort(key=lambda reaction: reaction.number)
    right = max(card.box.right for card in cards)
    if down:  # the labels stand to the right of the arrows
        right = max([right, *(_label_end(reaction) for reaction in reactions)])
    return Picture(
        right + margin,
        max(card.box.bottom for card in cards) + margin,
        tuple(cards),
        tuple(reactions),
        _title(shown.route),
        _description(shown),
    )


def name_lines(name: str | None) -> list[str]:
    """Return the name of a reaction in lines that fit beside an arrow."""
    return textwrap.wrap(name, _NAME_COLUMNS) if name else []


def _label_end(reaction: Reaction) -> float:
    longest = max(len(line) for line in [f"step {reaction.number}", *reaction.lines])
    return reaction.label_places[0][0] + _WIDE_CHARACTER * longest


def _folded(shown: Contents, width: float) -> list[list[int]]:
    """Return the molecules of each row. A row begins with a molecule that another row ends with, or with the target."""
    children = shown.children
    longest = {"joined": f"{LOOKS['joined'].label}, made in row 2"}
    widths = [_size(shown, index, longest.get(kind, "made in row 2"))[0] for index, kind in enumerate(shown.kinds)]

    def rows(width: float) -> list[list[int]]:
        found, beginnings = [], [0]
        for beginning in beginnings:
            row, column, total = [beginning], [beginning], widths[beginning]
            while below := [child for index in column for child in children[index]]:
                total += _gap(shown, column, False) + max(widths[index] for index in below)
                if total > width and len(row) > 1:
                    beginnings += [index for index in column if children[index]]
                    break
                row += below
                column = below
            found.append(sorted(row))
        return found

    # rows of about the same length, instead of full rows and a short one
    best = rows(width)
    narrower = width
    while len(best) > 1 and len(closer := rows(narrower := narrower - 20.0)) == len(best) and narrower > 0:
        best = closer
    return best


def _chains(shown: Contents) -> list[list[int]]:
    """Return the molecules of each part, in which at most one reactant of each reaction is made: the longest branch."""
    children = shown.children
    heights = [node.depth for node, _ in shown.tree]
    found, beginnings = [], [0]
    for index in beginnings:
        part = [index]
        while below := children[index]:
            part += below
            index, *others = sorted(below, key=lambda child: -heights[child])
            beginnings += [child for child in others if children[child]]
        found.append(sorted(part))
    return found


def _gap(shown: Contents, column: Iterable[int], down: bool) -> float:
    """Return the space between a column and the next one, which has room for the names of the reactions."""
    steps = [shown.steps[index] for index in column if index in shown.steps]
    labels = [[f"step {number}", *name_lines(name)] for number, name in steps]
    arrow = TIP + HEAD + JOINT + _NAME_MARGIN
    if down:
        return arrow + LINE_HEIGHT * max(map(len, labels), default=0)
    return max(COLUMN_GAP, arrow + _WIDE_CHARACTER * max((len(line) for label in labels for line in label), default=0))


def _row(shown: Contents, row: list[int], number_of: dict[int, int], down: bool) -> list[Card]:
    """Return the cards of one row. The upper left corner of all of them is (0, 0)."""
    place = {index: number for number, index in enumerate(row)}
    parents = [None if index == row[0] else place[shown.tree[index][1] or 0] for index in row]
    labels = [_label(shown, index, index == row[0], number_of, down) for index in row]
    sizes = [_size(shown, index, label) for index, label in zip(row, labels, strict=True)]
    columns = [[0]]  # places in `row`
    while below := [number for number, parent in enumerate(parents) if parent in columns[-1]]:
        columns.append(below)
    made = {parent for parent in parents if parent is not None}
    gaps = [_gap(shown, [row[number] for number in made.intersection(column)], down) for column in columns[:-1]]
    if down:
        boxes = ladder(sizes, parents, gaps=gaps, max_width=_NARROW, indent=SPINE + JOINT)
    else:
        boxes = tidy_tree(sizes, parents, gaps=gaps, row_gap=ROW_GAP)
    return [
        Card(box, shown.depictions[index], shown.kinds[index], label)
        for box, index, label in zip(boxes, row, labels, strict=True)
    ]


def _label(shown: Contents, index: int, is_first: bool, number_of: dict[int, int], down: bool) -> str:
    kind = shown.kinds[index]
    words = ["target" if index == 0 else "", "" if kind == "target" else LOOKS[kind].label]
    if index in number_of and index > 0:
        part = f"{'part' if down else 'row'} {number_of[index]}"
        words.append(part if is_first else f"made in {part}")
    words.append("" if shown.depictions[index].molecule else "not drawn")
    return ", ".join(filter(None, words))


def _size(shown: Contents, index: int, label: str) -> tuple[float, float]:
    drawn = shown.depictions[index]
    mark = MARK_SIZE + _MARK_GAP if LOOKS[shown.kinds[index]].mark else 0.0
    width = max(drawn.width, _WIDE_CHARACTER * len(label) + mark) + 2 * PADDING
    height = max(drawn.height, TEXT_HEIGHT) + 2 * PADDING + (LABEL_HEIGHT if label else 0.0)
    return width, height


def _reactions(shown: Contents, row: list[int], boxes: dict[int, Box], down: bool) -> Iterator[Reaction]:
    children = shown.children
    for index in row:
        reactants = [boxes[child] for child in children[index] if child in boxes]
        if not reactants:  # a starting material, or made in another row
            continue
        box, (number, name) = boxes[index], shown.steps[index]
        if down:
            tip, joint, ways = _ways_down(box, reactants)
        else:
            tip, joint = (box.right + TIP, box.middle), (reactants[0].x - JOINT, box.middle)
            ways = [((reactant.x, reactant.middle), (joint[0], reactant.middle)) for reactant in reactants]
        branches, corners = zip(*ways, strict=True)
        yield Reaction(number, reaction_smiles(shown.tree[index][0]), name, tip, joint, branches, corners, down)


def _made(children: list[list[int]], index: int = 0) -> list[int]:
    """Return the indices of the molecules that are made, each after those of its reactants, as in `formats.made`."""
    if not children[index]:
        return []
    return [*(made for child in children[index] for made in _made(children, child)), index]


def _title(route: Route) -> str:
    count = route.num_reactions
    return f"{route.smiles} in {count} reaction{'' if count == 1 else 's'}" if count else route.smiles


def _ways_down(product: Box, reactants: list[Box]) -> tuple[tuple[float, float], tuple[float, float], list[Points]]:
    """Return the tip and the joint of an arrow that points up, and the beginning and the corner of each branch."""
    spine, top = product.x + SPINE, min(reactant.y for reactant in reactants)
    is_stacked = len({reactant.y for reactant in reactants}) != 1
    tip, joint = (spine, product.bottom + TIP), (spine, top - JOINT)
    ways: list[Points] = []
    for reactant in reactants:
        if reactant.x == product.x:  # straight up
            ways.append(((spine, reactant.y), joint))
        elif is_stacked or len(reactants) == 1:  # on a line of its own: from its left edge
            ways.append(((reactant.x, reactant.middle), (spine, reactant.middle)))
        else:  # from its upper edge
            ways.append(((reactant.centre, reactant.y), (reactant.centre, joint[1])))
    return tip, joint, ways


def _description(shown: Contents) -> str:
    """Describe the whole route in words, for screen readers."""
    lines = []
    for i, (number, name) in shown.steps.items():
        node = shown.tree[i][0]
        step = f"Step {number}, {name}" if name else f"Step {number}"
        lines.append(f"{step}: {' and '.join(child.smiles for child in node.children)} give {node.smiles}.")
    leaves = {
        node.smiles: LOOKS[kind].label
        for (node, _), kind in zip(shown.tree, shown.kinds, strict=True)
        if not node.children
    }
    lines += [f"{smiles}: {label}." for smiles, label in leaves.items()]
    joints = dict.fromkeys(
        node.smiles for (node, _), kind in zip(shown.tree, shown.kinds, strict=True) if kind == "joined"
    )
    lines += [f"{smiles}: {LOOKS['joined'].label}, with a route of its own." for smiles in joints]
    return " ".join(lines)

"""Positions in the picture of a route, independent of SVG and PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...common.words import counted
from ..chemistry.molecules import canonical_or_given
from ..judging import JudgedStep, judge_route
from ..tree import Route
from .depiction import TEXT_HEIGHT, Depiction, depict_route
from .layout import Box, Node, nodes, tidy_tree

MARGIN, PADDING, RADIUS = 20.0, 12.0, 9.0
COLUMN_GAP, ROW_GAP = 70.0, 16.0
LABEL_SIZE, LABEL_HEIGHT, MARK_SIZE = 11.0, 19.0, 9.0
# The reader's font is unknown: the width of a character in a wide font, which is reserved, and in a usual font.
_WIDE_CHARACTER, _CHARACTER = 6.1, 5.4
_MARK_GAP = 5.0
# The sizes of an arrow, which goes from the line that joins the reactants to a point near the product.
JOINT, TIP, HEAD = 20.0, 4.0, 9.0
# The name of a reaction: characters per line, the height of a line, and its distance from other lines.
_NAME_COLUMNS, LINE_HEIGHT, _NAME_MARGIN = 15, 13.0, 22.0

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
    dash: tuple[float, ...] = ()


LOOKS = {
    "target": Look("#ffffff", "#334155", 1.8, "#334155", "target"),
    "intermediate": Look("#ffffff", "#dbe1e9", 1.2, "#475569", ""),
    "in-stock": Look("#e8f6ed", "#2f9e5b", 1.5, "#17693a", "sold", (((0.5, 5.0), (3.3, 8.0), (8.5, 1.5)),)),
    "common": Look("#e9f1fd", "#4a7fc9", 1.5, "#1f4f94", "widely used", (((1.0, 4.5), (8.0, 4.5)),)),
    "missing": Look(
        "#fdecec", "#d64545", 1.5, "#a11f1f", "not in stock", (((1, 1), (8, 8)), ((1, 8), (8, 1))), (6.0, 4.0)
    ),
    "unknown": Look(
        "#f1f4f8", "#8a97a8", 1.5, "#475569", "starting material",
        (((4.5, 0.5), (8.5, 4.5), (4.5, 8.5), (0.5, 4.5), (4.5, 0.5)),),
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
        height = self.box.height - (LABEL_HEIGHT if self.label else 0.0)
        return (
            self.box.x + (self.box.width - self.depiction.width) / 2,
            self.box.y + (height - self.depiction.height) / 2 + (PADDING / 4 if self.label else 0.0),
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
        x, y = x - MARK_SIZE - _MARK_GAP, y - MARK_SIZE + 0.5
        return [tuple((x + right, y + down) for right, down in stroke) for stroke in self.look.mark]


@dataclass(frozen=True)
class DrawnReaction:
    """An arrow that joins the reactants of one reaction and points left to the product.

    `number` counts the reactions in an order in which they can be run, and `name` is the common name or the class.
    `tip` and `joint` are the ends of the arrow. `branches` are the points where the lines from the reactants begin.
    """

    number: int
    smiles: str
    name: str | None
    tip: tuple[float, float]
    joint: tuple[float, float]
    branches: Points

    @property
    def lines(self) -> list[str]:
        """The name of the reaction, if it has one, in short lines."""
        return _name_lines(self.name)

    @property
    def label_places(self) -> list[tuple[float, float]]:
        """The middle of the base line of each text: of the number, then of each line of the name."""
        y, middle = self.tip[1], (self.tip[0] + HEAD + self.joint[0]) / 2
        return [(middle, y - 6), *((middle, y + LINE_HEIGHT * (row + 1.1)) for row in range(len(self.lines)))]


@dataclass(frozen=True)
class Picture:
    """The cards, depth first, and the reactions, in an order of running them. Sizes are in pixels at scale 1."""

    width: float
    height: float
    cards: tuple[Card, ...]
    reactions: tuple[DrawnReaction, ...]
    title: str
    description: str


def route_picture(
    route: Route,
    missing: Iterable[str] | None = None,
    steps: Sequence[JudgedStep] | None = None,
    common: Iterable[str] = (),
) -> Picture:
    """Draw the molecules of a route, and arrange them with their reactions.

    Args:
        route: the route.
        missing: the starting materials that are not purchasable, as in `Candidate.missing`. All others then are.
        steps: its judged reactions, whose titles the arrows get, as in `Candidate.steps` (default: by the
            included library).
        common: the others that are not known to be sold, as in `Candidate.common`.

    Returns:
        The picture.
    """
    tree, depictions = nodes(route), depict_route(route)
    kinds = _kinds(tree, missing, common)
    labels = [_label(index, kind, depictions[index]) for index, kind in enumerate(kinds)]
    sizes = [_size(*parts) for parts in zip(depictions, kinds, labels, strict=True)]
    in_order = sorted((node for node in tree if node.step), key=lambda node: node.step)
    titles = [step.title for step in (judge_route(route) if steps is None else steps)] or [None] * route.num_reactions
    products = list(zip(in_order, titles, strict=True))
    gaps = [_gap([pair for pair in products if pair[0].depth == depth]) for depth in range(route.depth)]
    boxes = tidy_tree(sizes, tree, gaps=gaps, row_gap=ROW_GAP, margin=MARGIN)
    reactions = []
    for node, name in products:
        product, reactants = boxes[node.place], [boxes[child] for child in node.children]
        tip, joint = (product.right + TIP, product.middle), (reactants[0].x - JOINT, product.middle)
        branches = tuple((reactant.x, reactant.middle) for reactant in reactants)
        reactions.append(DrawnReaction(node.step, node.route.last_reaction, name, tip, joint, branches))
    return Picture(
        max(box.right for box in boxes) + MARGIN,
        max(box.bottom for box in boxes) + MARGIN,
        tuple(Card(*parts) for parts in zip(boxes, depictions, kinds, labels, strict=True)),
        tuple(reactions),
        f"{route.smiles} in {counted(len(products), 'reaction')}" if products else route.smiles,
        _description(tree, kinds, products),
    )


def _kinds(tree: list[Node], missing: Iterable[str] | None, common: Iterable[str]) -> list[str]:
    """Return the kind of each molecule, a key of `LOOKS`."""
    stock = dict.fromkeys(map(canonical_or_given, common), "common")
    stock |= dict.fromkeys(map(canonical_or_given, missing or ()), "missing")

    def kind(node: Node) -> str:
        if node.children:
            return "intermediate" if node.depth else "target"
        return "unknown" if missing is None else stock.get(canonical_or_given(node.route.smiles), "in-stock")

    return list(map(kind, tree))


def _name_lines(name: str | None) -> list[str]:
    """Return the name of a reaction in lines that fit beside an arrow."""
    return textwrap.wrap(name, _NAME_COLUMNS) if name else []


def _gap(products: Iterable[tuple[Node, str | None]]) -> float:
    """Return the space between a column and the next one, in which the names of the reactions fit."""
    lines = [line for node, name in products for line in (f"step {node.step}", *_name_lines(name))]
    return max(COLUMN_GAP, TIP + HEAD + JOINT + _NAME_MARGIN + _WIDE_CHARACTER * max(map(len, lines), default=0))


def _label(index: int, kind: str, depiction: Depiction) -> str:
    words = ["target" if index == 0 else "", "" if kind == "target" else LOOKS[kind].label]
    return ", ".join(filter(None, [*words, "" if depiction.molecule else "not drawn"]))


def _size(depiction: Depiction, kind: str, label: str) -> tuple[float, float]:
    mark = MARK_SIZE + _MARK_GAP if LOOKS[kind].mark else 0.0
    width = max(depiction.width, _WIDE_CHARACTER * len(label) + mark) + 2 * PADDING
    return width, max(depiction.height, TEXT_HEIGHT) + 2 * PADDING + (LABEL_HEIGHT if label else 0.0)


def _description(tree: list[Node], kinds: Sequence[str], products: Iterable[tuple[Node, str | None]]) -> str:
    """Describe the whole route in words, for screen readers."""
    lines = []
    for node, name in products:
        step = f"Step {node.step}, {name}" if name else f"Step {node.step}"
        reactants = " and ".join(child.smiles for child in node.route.children)
        lines.append(f"{step}: {reactants} give {node.route.smiles}.")
    leaves = {node.route.smiles: LOOKS[kind].label for node, kind in zip(tree, kinds, strict=True) if not node.step}
    lines += [f"{smiles}: {label}." for smiles, label in leaves.items()]
    return " ".join(lines)

"""The contents and the arrangement of a route's picture, independent of SVG and PNG."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from ..files.formats import reaction_smiles
from ..molecules import canonical_smiles
from ..tree import Route
from .depiction import TEXT_HEIGHT, Depiction, depict_route
from .layout import Box, nodes, tidy_tree

MARGIN, PADDING, RADIUS = 20.0, 12.0, 9.0
COLUMN_GAP, ROW_GAP = 70.0, 16.0
LABEL_SIZE, LABEL_HEIGHT, MARK_SIZE = 11.0, 19.0, 9.0
# The reader's font is unknown: the width of a character in a wide font, which is reserved, and in a usual font.
_WIDE_CHARACTER, _CHARACTER = 6.1, 5.4
_MARK_GAP = 5.0
# The sizes of an arrow, which goes from the line that joins the reactants to a point near the product.
JOINT, TIP, HEAD, HEAD_WIDTH = 20.0, 4.0, 9.0, 8.0
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

    `number` counts the reactions in an order in which they can be run. `tip` and `joint` are the ends of the arrow.
    `branches` are the points where the lines from the reactants begin.
    """

    number: int
    smiles: str
    tip: tuple[float, float]
    joint: tuple[float, float]
    branches: Points

    def bend(self, branch: tuple[float, float]) -> float:
        """Return the radius of the corner between a reactant and the arrow."""
        return min(RADIUS, abs(branch[1] - self.joint[1]))


@dataclass(frozen=True)
class Picture:
    """The cards, depth first, and the reactions, in an order in which they can be run. Sizes are in pixels at scale 1."""

    width: float
    height: float
    cards: tuple[Card, ...]
    reactions: tuple[Reaction, ...]
    title: str
    description: str


def picture(route: Route, missing: Iterable[str] | None = None, stock: Container[str] | None = None) -> Picture:
    """
    Arrange a route.

    Args:
        route ([`Route`]):
            The route.
        missing (`Iterable[str]`, *optional*):
            The starting materials that cannot be bought, as in `Candidate.missing`. All others then can.
        stock (`Container[str]`, *optional*):
            The molecules that can be bought, as an alternative to `missing`.

    Returns:
        [`Picture`]: the picture.

    Raises:
        ValueError: both `missing` and `stock` are given.
    """
    if missing is not None and stock is not None:
        raise ValueError("give `missing` or `stock`, not both: each of them says which molecules can be bought")
    absent = None if missing is None else {_name(smiles) for smiles in missing}
    tree = nodes(route)
    kinds = []
    for node, parent in tree:
        if node.children:
            kinds.append("target" if parent is None else "intermediate")
        elif absent is None and stock is None:
            kinds.append("unknown")
        else:
            found = node.smiles in stock if stock is not None else _name(node.smiles) not in (absent or ())
            kinds.append("in-stock" if found else "missing")
    depictions = depict_route(route)
    labels = [
        ", ".join(filter(None, ["target" if not i else "", LOOKS[kind].label if i or kind != "target" else "",
                                "" if drawn.molecule else "not drawn"]))
        for i, (kind, drawn) in enumerate(zip(kinds, depictions, strict=True))
    ]  # fmt: skip
    layout = tidy_tree(
        [_size(drawn, label, kind) for drawn, label, kind in zip(depictions, labels, kinds, strict=True)],
        [parent for _, parent in tree],
        column_gap=COLUMN_GAP,
        row_gap=ROW_GAP,
    )
    boxes = [_moved(box) for box in layout.boxes]
    return Picture(
        layout.width + 2 * MARGIN,
        layout.height + 2 * MARGIN,
        tuple(Card(*parts) for parts in zip(boxes, depictions, kinds, labels, strict=True)),
        tuple(_reactions(boxes, tree)),
        _title(route),
        _description(route, kinds, tree),
    )


def _name(smiles: str) -> str:
    try:
        return canonical_smiles(smiles)
    except ValueError:
        return smiles


def _size(drawn: Depiction, label: str, kind: str) -> tuple[float, float]:
    mark = MARK_SIZE + _MARK_GAP if LOOKS[kind].mark else 0.0
    width = max(drawn.width, _WIDE_CHARACTER * len(label) + mark) + 2 * PADDING
    height = max(drawn.height, TEXT_HEIGHT) + 2 * PADDING + (LABEL_HEIGHT if label else 0.0)
    return width, height


def _moved(box: Box) -> Box:
    return Box(box.x + MARGIN, box.y + MARGIN, box.width, box.height, box.depth, box.parent, box.children)


def _reactions(boxes: list[Box], tree: list[tuple[Route, int | None]]) -> list[Reaction]:
    found = []
    for number, index in enumerate(_steps(tree), 1):
        box, reactants = boxes[index], [boxes[child] for child in boxes[index].children]
        joint = reactants[0].x - JOINT, box.middle
        branches = tuple((reactant.x, reactant.middle) for reactant in reactants)
        found.append(Reaction(number, reaction_smiles(tree[index][0]), (box.right + TIP, box.middle), joint, branches))
    return found


def _steps(tree: list[tuple[Route, int | None]]) -> list[int]:
    """Return the indices of the molecules that are made, each after those of its reactants, as in `formats.reactions`."""
    last = list(range(len(tree)))  # the last index in each subtree
    for index in reversed(range(1, len(tree))):
        parent = tree[index][1]
        assert parent is not None
        last[parent] = max(last[parent], last[index])
    return sorted((i for i, (node, _) in enumerate(tree) if node.children), key=lambda i: (last[i], -i))


def _title(route: Route) -> str:
    count = route.num_reactions
    return f"{route.smiles} in {count} reaction{'' if count == 1 else 's'}" if count else route.smiles


def _description(route: Route, kinds: list[str], tree: list[tuple[Route, int | None]]) -> str:
    """Describe the whole route in words, for screen readers."""
    lines = [
        f"Step {number}: {' and '.join(child.smiles for child in tree[i][0].children)} give {tree[i][0].smiles}."
        for number, i in enumerate(_steps(tree), 1)
    ]
    leaves = {node.smiles: LOOKS[kind].label for (node, _), kind in zip(tree, kinds, strict=True) if not node.children}
    lines += [f"{smiles}: {label}." for smiles, label in leaves.items()]
    return " ".join(lines)

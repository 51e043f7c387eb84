"""The picture of a route as pixels."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from PIL import Image, ImageColor, ImageDraw, ImageFont
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

from .depiction import INK, TEXT_HEIGHT
from .picture import (
    HEAD,
    HEAD_WIDTH,
    LABEL_SIZE,
    LINE,
    LINE_WIDTH,
    PANEL,
    PANEL_EDGE,
    QUIET,
    RADIUS,
    Card,
    Picture,
    Reaction,
)

# Cairo draws no longer image.
MAX_SIDE = 32_000
_CIRCLE = [math.tau * step / 12 for step in range(12)]
_Path = Sequence[tuple[float, float]]


def paint(drawn: Picture, scale: float) -> bytes:
    """A PNG; lines and molecules by RDKit's canvas, which smooths them, letters by Pillow, which brings a font.

    Args:
        scale: pixels per pixel of the picture.
    """
    canvas = _Canvas(drawn.width, drawn.height, scale)
    panel = _rounded(0.5, 0.5, drawn.width - 1, drawn.height - 1, 14.0)
    canvas.shape(panel, PANEL)
    canvas.outline(panel, PANEL_EDGE, 1.0)
    for reaction in drawn.reactions:
        _reaction(canvas, reaction)
    for card in drawn.cards:
        box, look = card.box, card.look
        outline = _rounded(box.x, box.y, box.width, box.height, RADIUS)
        canvas.shape(outline, look.fill)
        if look.dash is None:
            canvas.outline(outline, look.edge, look.edge_width)
        else:
            for piece in _dashed([*outline, outline[0]], look.dash):
                canvas.line(piece, look.edge, look.edge_width)
        for stroke in card.mark:
            canvas.line(stroke, look.ink, 1.8)
    image = canvas.image()
    for card in drawn.cards:
        _letters(image, card, scale)
    for reaction in drawn.reactions:
        middle = (reaction.tip[0] + HEAD + reaction.joint[0]) / 2
        _text(image, (middle, reaction.tip[1] - 6), f"step {reaction.number}", QUIET, 10.0, scale)
    file = io.BytesIO()
    image.save(file, "PNG", dpi=(96 * scale, 96 * scale))
    return file.getvalue()


class _Canvas:
    """Lines and filled shapes in the coordinates of the picture."""

    def __init__(self, width: float, height: float, scale: float):
        self._cairo = rdMolDraw2D.MolDraw2DCairo(math.ceil(width * scale), math.ceil(height * scale))
        options: Any = self._cairo.drawOptions()
        options.scaleBondWidth = False
        options.setBackgroundColour((1.0, 1.0, 1.0, 0.0))
        self._cairo.ClearDrawing()
        self._scale = scale

    def shape(self, corners: _Path, colour: str) -> None:
        self._colour(colour, 0.1)
        self._cairo.SetFillPolys(True)
        self._cairo.DrawPolygon(self._points(corners), rawCoords=True)

    def outline(self, corners: _Path, colour: str, width: float) -> None:
        self._colour(colour, width)
        self._cairo.SetFillPolys(False)
        self._cairo.DrawPolygon(self._points([*corners, *corners[:2]]), rawCoords=True)

    def line(self, points: _Path, colour: str, width: float) -> None:
        self._colour(colour, width)
        for start, end in itertools.pairwise(self._points(points)):
            self._cairo.DrawLine(start, end, rawCoords=True)
        for x, y in points[1:-1]:  # RDKit ends a line flat, which leaves a notch at every bend
            dot = [(x + width / 2 * math.cos(a), y + width / 2 * math.sin(a)) for a in _CIRCLE]
            self.shape(dot, colour)

    def image(self) -> Image.Image:
        self._cairo.FinishDrawing()
        return Image.open(io.BytesIO(self._cairo.GetDrawingText())).convert("RGBA")

    def _colour(self, colour: str, width: float) -> None:
        red, green, blue = ImageColor.getrgb(colour)[:3]
        self._cairo.SetColour((red / 255, green / 255, blue / 255))
        self._cairo.SetLineWidth(width * self._scale)

    def _points(self, points: _Path) -> list[Point2D]:
        return [Point2D(x * self._scale, y * self._scale) for x, y in points]


def _reaction(canvas: _Canvas, reaction: Reaction) -> None:
    (tip, middle), (joint, _) = reaction.tip, reaction.joint
    for x, y in reaction.branches:
        radius = reaction.bend((x, y))
        turn = math.copysign(radius, middle - y)
        corner = _curve((joint + radius, y), (joint, y), (joint, y + turn))
        canvas.line([(x, y), *corner, (joint, middle)], LINE, LINE_WIDTH)
    canvas.line([(joint, middle), (tip + HEAD - 2, middle)], LINE, LINE_WIDTH)
    half = HEAD_WIDTH / 2
    canvas.shape(
        [(tip, middle), (tip + HEAD, middle - half), (tip + HEAD - 2, middle), (tip + HEAD, middle + half)], LINE
    )


def _letters(image: Image.Image, card: Card, scale: float) -> None:
    """The molecule of a card, or its text, and its label."""
    (x, y), drawn = card.corner, card.depiction
    if drawn.molecule is not None:
        image.alpha_composite(drawn.image(scale), (round(x * scale), round(y * scale)))
    for row, line in enumerate(drawn.lines):
        place = card.box.x + card.box.width / 2, y + TEXT_HEIGHT * (row + 0.75)
        _text(image, place, line, INK, LABEL_SIZE, scale)
    if card.label:
        anchor = "ls" if card.mark else "ms"
        _text(image, card.label_place, card.label, card.look.ink, LABEL_SIZE, scale, anchor)


def _text(
    image: Image.Image,
    place: tuple[float, float],
    text: str,
    colour: str,
    size: float,
    scale: float,
    anchor: str = "ms",
) -> None:
    # Pillow's own font, so that a picture is the same on every machine
    font = ImageFont.load_default(size * scale)
    ImageDraw.Draw(image).text((place[0] * scale, place[1] * scale), text, fill=colour, font=font, anchor=anchor)


def _curve(
    start: tuple[float, float], bend: tuple[float, float], end: tuple[float, float]
) -> list[tuple[float, float]]:
    """A quadratic Bézier curve in eight straight pieces."""
    found = []
    for step in range(9):
        t = step / 8
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        found.append((a * start[0] + b * bend[0] + c * end[0], a * start[1] + b * bend[1] + c * end[1]))
    return found


def _rounded(x: float, y: float, width: float, height: float, radius: float) -> list[tuple[float, float]]:
    right, bottom = x + width, y + height
    return [
        *_curve((x, y + radius), (x, y), (x + radius, y)),
        *_curve((right - radius, y), (right, y), (right, y + radius)),
        *_curve((right, bottom - radius), (right, bottom), (right - radius, bottom)),
        *_curve((x + radius, bottom), (x, bottom), (x, bottom - radius)),
    ]


def _dashed(points: _Path, dash: tuple[float, float]) -> Iterable[list[tuple[float, float]]]:
    """The drawn pieces of a line that is drawn for `dash[0]` and left out for `dash[1]`."""
    left, on, piece = dash[0], True, [points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length, done = math.hypot(x1 - x0, y1 - y0), 0.0
        while length - done > left:
            done += left
            here = (x0 + (x1 - x0) * done / length, y0 + (y1 - y0) * done / length)
            if on:
                yield [*piece, here]
            on, piece = not on, [here]
            left = dash[0] if on else dash[1]
        left -= length - done
        piece = [*piece, (x1, y1)] if on else piece
    if on:
        yield piece

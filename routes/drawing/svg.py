"""Pictures of routes: SVG, PNG, and a file of either."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Container, Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import resvg_py
from PIL import Image, ImageFont

from ...common.whole_files import whole_file
from ..tree import Route
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
    picture,
)

# Every system has some font of these names; a file with a font inside would be many times as large.
_SANS, _MONO = "system-ui, 'Helvetica Neue', Arial, sans-serif", "ui-monospace, Menlo, Consolas, monospace"
# Many a viewer opens no longer image.
MAX_SIDE = 32_000


def route_svg(
    route: Route,
    *,
    missing: Iterable[str] | None = None,
    stock: Container[str] | None = None,
    interactive: bool = False,
    shared: dict[str, str] | None = None,
) -> str:
    """Draw a route as SVG: the target on the left, what it is made from to its right, an arrow for each reaction.

    Starting materials are green with a check mark where they can be bought, red and dashed with a cross where they cannot,
    and grey where nothing is known. The picture holds no `id`, script, font or address, so that any number of them can
    stand in one page, and brings its own white ground.

    Args:
        route: what to draw; a molecule that RDKit cannot read is shown as its text.
        missing: the starting materials that cannot be bought, as in `Candidate.missing`; all others then can.
        stock: what can be bought, in place of `missing`.
        interactive: for a page with scripts: molecules can be reached with the keyboard and carry `data-smiles`.
        shared: molecules that the page holds once for all its pictures, by their drawing; new ones are added.

    Returns:
        A `<svg>` element.

    Raises:
        ValueError: both `missing` and `stock` are given.
    """
    return _svg(picture(route, missing, stock), interactive, shared)


def route_png(
    route: Route,
    *,
    missing: Iterable[str] | None = None,
    stock: Container[str] | None = None,
    scale: float = 2.0,
) -> bytes:
    """The picture of `route_svg` as PNG.

    Args:
        route, missing, stock: as for `route_svg`.
        scale: pixels per pixel of the SVG; the file says so too, so that it is as large in a document whatever it is.

    Raises:
        ValueError: as `route_svg`, or `scale` makes an image of no pixel, or too large a one.
    """
    drawn = picture(route, missing, stock)
    least, most = 1 / min(drawn.width, drawn.height), MAX_SIDE / max(drawn.width, drawn.height)
    if not least <= scale <= most:
        raise ValueError(
            f"scale must be above 0, for a picture of this size at least {least:.2g} and at most {most:.2f}: got {scale}"
        )
    # Pillow's own font, so that a picture is the same on every machine, and has its letters on one without fonts
    font = ImageFont.load_default(LABEL_SIZE)
    assert isinstance(font, ImageFont.FreeTypeFont)
    family, _ = font.getname()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "font.ttf"
        file.write_bytes(font.font_bytes)
        pixels = resvg_py.svg_to_bytes(
            _svg(drawn), zoom=scale, skip_system_fonts=True, font_files=[str(file)],
            sans_serif_family=family, monospace_family=family,
        )  # fmt: skip
    written = io.BytesIO()
    Image.open(io.BytesIO(pixels)).save(written, "PNG", dpi=(96 * scale, 96 * scale))
    return written.getvalue()


def save_picture(
    route: Route,
    path: str | os.PathLike[str],
    *,
    missing: Iterable[str] | None = None,
    stock: Container[str] | None = None,
    scale: float = 2.0,
) -> None:
    """Write the picture of a route, atomically: readers see the old file or the whole new one.

    Args:
        route, missing, stock: as for `route_svg`.
        path: a file that ends in `.svg` or `.png`; its folder must exist.
        scale: as for `route_png`; an SVG has none.

    Raises:
        ValueError: the name ends otherwise, or as the two functions. OSError: the file cannot be written.
    """
    path = Path(path)
    check_picture(path)
    if path.suffix.lower() == ".svg":
        svg = route_svg(route, missing=missing, stock=stock)
        data = f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'.encode()
    else:
        data = route_png(route, missing=missing, stock=stock, scale=scale)
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def check_picture(path: Path) -> None:
    """Refuse a name that `save_picture` cannot write to.

    Raises:
        ValueError: the name does not end in .svg or .png.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise ValueError(f"{path} ends in {path.suffix!r}: a picture is written as .svg or .png")


def _svg(drawn: Picture, interactive: bool = False, shared: dict[str, str] | None = None) -> str:
    width, height = _number(drawn.width), _number(drawn.height)
    # without scripts one image with a title; with them a group, since what is in an image cannot be reached
    frame = 'role="group"' if interactive else 'role="img" style="max-width:100%;height:auto"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="weft-route" {frame} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f"<title>{escape(drawn.title)}</title><desc>{escape(drawn.description)}</desc>",
        f'<rect x="0.5" y="0.5" width="{_number(drawn.width - 1)}" height="{_number(drawn.height - 1)}" rx="14" '
        f'fill="{PANEL}" stroke="{PANEL_EDGE}"/>',
        *(_reaction(reaction) for reaction in drawn.reactions),
        *(_card(card, interactive, shared) for card in drawn.cards),
        "</svg>",
    ]
    return "\n".join(parts)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _reaction(reaction: Reaction) -> str:
    (tip, y), (joint, _) = reaction.tip, reaction.joint
    lines = "".join(_branch(reaction, branch) for branch in reaction.branches)
    shaft = f"M{_number(joint)} {_number(y)}H{_number(tip + HEAD - 2)}"
    head = f"M{_number(tip)} {_number(y)}l{HEAD:g} {-HEAD_WIDTH / 2:g}l-2 {HEAD_WIDTH / 2:g}l2 {HEAD_WIDTH / 2:g}Z"
    return (
        f'<g class="reaction"><title>Step {reaction.number}: {escape(reaction.smiles)}</title>'
        f'<path d="{lines}{shaft}" fill="none" stroke="{LINE}" stroke-width="{LINE_WIDTH}"/>'
        f'<path d="{head}" fill="{LINE}"/>'
        + _text((tip + HEAD + joint) / 2, y - 6, f"step {reaction.number}", QUIET, 10.0)
        + "</g>"
    )


def _branch(reaction: Reaction, branch: tuple[float, float]) -> str:
    (x, y), (joint, middle) = branch, reaction.joint
    radius = reaction.bend(branch)
    if radius < 0.05:
        return f"M{_number(x)} {_number(middle)}H{_number(joint)}"
    turn = radius if middle > y else -radius
    return (
        f"M{_number(x)} {_number(y)}H{_number(joint + radius)}"
        f"Q{_number(joint)} {_number(y)} {_number(joint)} {_number(y + turn)}V{_number(middle)}"
    )


def _card(card: Card, interactive: bool, shared: dict[str, str] | None) -> str:
    look, box = card.look, card.box
    dash = f' stroke-dasharray="{look.dash[0]:g} {look.dash[1]:g}"' if look.dash else ""
    spoken = f"{card.smiles}, {card.label}" if card.label else card.smiles
    keys = ""
    if interactive:
        keys = f' role="button" tabindex="0" aria-label={quoteattr(f"Copy SMILES {spoken}")}'
        keys += f" data-smiles={quoteattr(card.smiles)}"
    parts = [
        f'<g class="molecule {card.kind}"{keys}><title>{escape(spoken)}</title>',
        f'<rect class="card" x="{_number(box.x)}" y="{_number(box.y)}" width="{_number(box.width)}" '
        f'height="{_number(box.height)}" rx="{RADIUS:g}" fill="{look.fill}" stroke="{look.edge}" '
        f'stroke-width="{look.edge_width:g}"{dash}/>',
        _molecule(card, shared),
    ]
    if card.label:
        parts.append(
            _text(*card.label_place, card.label, look.ink, LABEL_SIZE, anchor="start" if card.mark else "middle")
        )
        strokes = "".join("M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in stroke) for stroke in card.mark)
        if strokes:
            parts.append(
                f'<path class="mark" d="{strokes}" fill="none" stroke="{look.ink}" stroke-width="1.8" '
                'stroke-linecap="round" stroke-linejoin="round"/>'
            )
    return "".join([*parts, "</g>"])


def _molecule(card: Card, shared: dict[str, str] | None) -> str:
    (x, y), drawn = card.corner, card.depiction
    if drawn.molecule is None:
        rows = (y + TEXT_HEIGHT * (row + 0.75) for row in range(len(drawn.lines)))
        middle = card.box.x + card.box.width / 2
        lines = zip(rows, drawn.lines, strict=True)
        return "".join(_text(middle, row, line, INK, LABEL_SIZE, font=_MONO) for row, line in lines)
    body = drawn.svg()
    place = f'transform="translate({_number(x)} {_number(y)})"'
    if shared is None:
        return f'<g class="drawing" {place} fill="none" stroke-linecap="round" stroke-linejoin="round">{body}</g>'
    name = shared.setdefault(body, f"m{len(shared)}")
    return f'<use class="drawing" href="#{name}" {place}/>'


def _text(x: float, y: float, text: str, ink: str, size: float, *, font: str = _SANS, anchor: str = "middle") -> str:
    return (
        f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}" font-family="{font}" font-size="{size:g}" '
        f'fill="{ink}">{escape(text)}</text>'
    )

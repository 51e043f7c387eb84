"""Pictures of routes as SVG, as PNG, and as files."""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import resvg_py
from PIL import Image, ImageFont

from ...common.atomic import atomic_write
from ..judging import JudgedStep
from ..tree import Route
from .depiction import INK, LINE_WIDTH, TEXT_HEIGHT
from .picture import HEAD, LABEL_SIZE, RADIUS, Card, DrawnReaction, Picture, route_picture

# Every system has one of these fonts. A file with an embedded font would be many times as large.
_SANS, _MONO = "system-ui, 'Helvetica Neue', Arial, sans-serif", "ui-monospace, Menlo, Consolas, monospace"
LINE, PANEL, PANEL_EDGE = "#64748b", "#ffffff", "#e2e8f0"
_ROUND = {"stroke_linecap": "round", "stroke_linejoin": "round"}
# The width of the head of an arrow.
HEAD_WIDTH = 8.0
# Many viewers cannot open longer images, and Pillow warns about images with more pixels.
MAX_SIDE, MAX_PIXELS = 32_000, 80_000_000


def route_svg(
    route: Route,
    *,
    missing: Iterable[str] | None = None,
    steps: Sequence[JudgedStep] | None = None,
    common: Iterable[str] = (),
) -> str:
    """Draw a route as SVG: the target on the left, its reactants to the right, and an arrow for each reaction, with
    its common name, or else its class, if a recorded reaction has the same transformation.

    Starting materials that are sold are green with a check mark, and those that are common are blue with a line.
    Others are red with a cross and a dashed frame. They are grey without `missing`. The picture has a white
    background. It contains no `id`, script, font or address, so one page can contain any number of pictures.

    Args:
        route: the route. A molecule that RDKit cannot read is shown as text.
        missing: the starting materials that are not purchasable, as in `Candidate.missing` and from
            `Stock.missing(route)`. All others then are.
        steps: its judged reactions, whose titles the arrows get, as in `Candidate.steps` (default: by the
            included library).
        common: the others that are not known to be sold, as in `Candidate.common`.

    Returns:
        A `<svg>` element.
    """
    return picture_svg(route_picture(route, missing, steps, common))


def route_png(
    route: Route,
    *,
    missing: Iterable[str] | None = None,
    steps: Sequence[JudgedStep] | None = None,
    common: Iterable[str] = (),
) -> bytes:
    """Draw the picture of `route_svg` as PNG, with two pixels per SVG pixel, or fewer if the image would be too large.

    The file stores its resolution, so the picture has the size of the SVG in a document.

    Args:
        route: as for `route_svg`.
        missing: as for `route_svg`.
        steps: as for `route_svg`.
        common: as for `route_svg`.

    Returns:
        The contents of a PNG file.
    """
    picture = route_picture(route, missing, steps, common)
    width, height = picture.width, picture.height
    scale = min(2.0, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))
    # Pillow's own font, so that a picture is the same on every machine, even on one without fonts
    font = ImageFont.load_default(LABEL_SIZE)
    assert isinstance(font, ImageFont.FreeTypeFont)
    family, _ = font.getname()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "font.ttf"
        file.write_bytes(font.font_bytes)
        pixels = resvg_py.svg_to_bytes(
            picture_svg(picture), zoom=scale, skip_system_fonts=True, font_files=[str(file)],
            sans_serif_family=family, monospace_family=family,
        )  # fmt: skip
    png = io.BytesIO()
    Image.open(io.BytesIO(pixels)).save(png, "PNG", dpi=(96 * scale, 96 * scale))
    return png.getvalue()


def save_picture(
    route: Route,
    path: str | os.PathLike[str],
    *,
    missing: Iterable[str] | None = None,
    steps: Sequence[JudgedStep] | None = None,
    common: Iterable[str] = (),
) -> None:
    """Write the picture of a route atomically: readers see the old file or the complete new one.

    Args:
        route: as for `route_svg`.
        path: a file name that ends in `.svg` or `.png`. Its folder must exist.
        missing: as for `route_svg`.
        steps: as for `route_svg`.
        common: as for `route_svg`.

    Raises:
        ValueError: the name has another ending.
        OSError: the file cannot be written.
    """
    path = Path(path)
    check_picture(path)
    if path.suffix.lower() == ".svg":
        svg = route_svg(route, missing=missing, steps=steps, common=common)
        data = f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'.encode()
    else:
        data = route_png(route, missing=missing, steps=steps, common=common)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def check_picture(path: Path) -> None:
    """Check that `save_picture` can write to a file of this name.

    Raises:
        ValueError: the name does not end in .svg or .png.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise ValueError(f"{path} ends in {path.suffix!r}: the name of a picture must end in .svg or .png")


def picture_svg(picture: Picture, action: str | None = None, shared: dict[str, str] | None = None) -> str:
    """Write a picture as a `<svg>` element.

    Args:
        picture: the picture.
        action: what a click on a molecule does, in words, in a picture for a page with scripts. The keyboard can then
            reach the molecules, which carry `data-smiles`.
        shared: the names of drawings of molecules that the page contains once for all pictures, by their SVG. New ones
            are added.

    Returns:
        The element.
    """
    width, height = picture.width, picture.height
    size = {"width": _number(width), "height": _number(height)}
    # Without scripts, the picture is one image with a title. With scripts it is a group, because assistive programs
    # cannot reach the parts of an image.
    frame = {"role": "group"} if action else {"role": "img", "style": "max-width:100%;height:auto"}
    frame |= size | {"viewBox": f"0 0 {size['width']} {size['height']}"}
    parts = [
        _tag("title", escape(picture.title)) + _tag("desc", escape(picture.description)),
        _tag("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=14, fill=PANEL, stroke=PANEL_EDGE),
        *map(_reaction, picture.reactions),
        *(_card(card, action, shared) for card in picture.cards),
    ]
    content = "".join(f"\n{part}" for part in parts) + "\n"
    return _tag("svg", content, xmlns="http://www.w3.org/2000/svg", class_="weft-route", **frame)


def _tag(name: str, content: str | None = None, **attributes: str | float | None) -> str:
    """Return an element. Underscores in the names of attributes stand for hyphens, and None for no attribute."""
    start = f"<{name}"
    for key, value in attributes.items():
        if value is not None:
            text = quoteattr(value if isinstance(value, str) else _number(value))
            start += f" {key.rstrip('_').replace('_', '-')}={text}"
    return f"{start}/>" if content is None else f"{start}>{content}</{name}>"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _line(*points: tuple[float, float]) -> str:
    """Return the path through some points."""
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _reaction(reaction: DrawnReaction) -> str:
    (x, y), (turn, _) = reaction.tip, reaction.joint
    wing, notch = HEAD_WIDTH / 2, (x + HEAD - 2, y)
    branches = "".join(_branch(branch, reaction.joint) for branch in reaction.branches)
    head = _line((x, y), (x + HEAD, y - wing), notch, (x + HEAD, y + wing)) + "Z"
    name = f", {reaction.name}" if reaction.name else ""
    labels = zip(reaction.label_places, [f"step {reaction.number}", *reaction.lines], strict=True)
    parts = [
        _tag("title", escape(f"Step {reaction.number}{name}: {reaction.smiles}")),
        _tag("path", d=branches + _line((turn, y), notch), fill="none", stroke=LINE, stroke_width=LINE_WIDTH),
        _tag("path", d=head, fill=LINE),
        *(_text(place, text, INK if row else LINE) for row, (place, text) in enumerate(labels)),
    ]
    return _tag("g", "".join(parts), class_="reaction")


def _branch(branch: tuple[float, float], joint: tuple[float, float]) -> str:
    """Return the line from a reactant to the joint above or below it, with a round corner."""
    (x, y), (turn, end) = branch, joint
    radius = min(RADIUS, x - turn, abs(end - y))
    if radius < 0.05:
        return _line(branch, joint)
    after = y + math.copysign(radius, end - y)
    corner = f"Q{_number(turn)} {_number(y)} {_number(turn)} {_number(after)}"
    return f"{_line(branch, (turn + radius, y))}{corner}L{_number(turn)} {_number(end)}"


def _card(card: Card, action: str | None, shared: dict[str, str] | None) -> str:
    look, box = card.look, card.box
    title = f"{card.smiles}, {card.label}" if card.label else card.smiles
    keys = {"role": "button", "tabindex": "0", "aria_label": f"{action} {title}", "data_smiles": card.smiles}
    parts = [
        _tag("title", escape(title)),
        _tag(
            "rect", class_="card", x=box.x, y=box.y, width=box.width, height=box.height, rx=RADIUS, fill=look.fill,
            stroke=look.edge, stroke_width=look.edge_width, stroke_dasharray=" ".join(map(_number, look.dash)) or None,
        ),
        _molecule(card, shared),
    ]  # fmt: skip
    if card.label:
        parts.append(_text(card.label_place, card.label, look.ink, anchor="start" if card.mark else "middle"))
    if card.label and card.mark:
        strokes = "".join(_line(*stroke) for stroke in card.mark)
        parts.append(_tag("path", class_="mark", d=strokes, fill="none", stroke=look.ink, stroke_width=1.8, **_ROUND))
    return _tag("g", "".join(parts), class_=f"molecule {card.kind}", **(keys if action else {}))


def _molecule(card: Card, shared: dict[str, str] | None) -> str:
    (x, y), depiction = card.corner, card.depiction
    if depiction.molecule is None:
        middle = card.box.x + card.box.width / 2
        rows = ((y + TEXT_HEIGHT * (row + 0.75), line) for row, line in enumerate(depiction.lines))
        return "".join(_text((middle, base), line, INK, font=_MONO) for base, line in rows)
    place = f"translate({_number(x)} {_number(y)})"
    if shared is None:
        return _tag("g", depiction.svg(), class_="drawing", transform=place, fill="none", **_ROUND)
    name = shared.setdefault(depiction.svg(), f"m{len(shared)}")
    return _tag("use", class_="drawing", href=f"#{name}", transform=place)


def _text(place: tuple[float, float], text: str, ink: str, *, font: str = _SANS, anchor: str = "middle") -> str:
    x, y = place
    return _tag("text", escape(text), x=x, y=y, text_anchor=anchor, font_family=font, font_size=LABEL_SIZE, fill=ink)

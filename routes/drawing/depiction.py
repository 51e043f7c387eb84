"""Drawings of molecules by RDKit. Each reactant has the orientation of its product, and all bonds have one length."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor, rdFMCS
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

from ..chemistry.matching import bounded_search, ends_in_time
from ..tree import Route
from .layout import nodes

# The length of a bond and the size of its letters, in pixels at scale 1. RDKit's bonds have the length 1.5.
BOND_LENGTH = 27.0
FONT_SIZE = 13
LINE_WIDTH = 1.6
# RDKit rounds the size of a canvas and shrinks the drawing to fit. So bonds keep one length only on a canvas of small
# pixels.
_FINE = 16.0
# Larger molecules are written as text: their drawings would be unreadable, and RDKit needs seconds for each.
MAX_ATOMS = 250
# Time limit of the search for the common part of a product and a reactant.
SEARCH_SECONDS = 1
# The text in place of a molecule: characters per line, number of lines, and the size of a character in pixels.
_TEXT_COLUMNS, _TEXT_LINES = 26, 5
TEXT_WIDTH, TEXT_HEIGHT = 6.7, 15.0

INK = "#1f2937"
# Colours by atomic number, dark enough for white and for the pale backgrounds of the starting materials. RDKit's own
# green and yellow are too light.
_PALETTE = {
    -1: (0.12, 0.16, 0.22), 6: (0.12, 0.16, 0.22), 7: (0.11, 0.31, 0.78), 8: (0.76, 0.12, 0.12), 9: (0.05, 0.45, 0.43),
    15: (0.70, 0.33, 0.04), 16: (0.54, 0.40, 0.00), 17: (0.05, 0.45, 0.25), 35: (0.55, 0.22, 0.10),
    53: (0.42, 0.13, 0.66),
}  # fmt: skip
_DEFAULTS = {
    "fill-rule": "evenodd", "fill-opacity": "1", "stroke-linecap": "butt", "stroke-linejoin": "miter",
    "stroke-opacity": "1", "opacity": "1.0",
}  # fmt: skip


@dataclass(frozen=True)
class Depiction:
    """A drawn molecule without a background.

    Args:
        smiles: the SMILES.
        molecule: the molecule with two-dimensional coordinates (x to the right, y up). None if RDKit cannot read or
            draw it.
        lines: the lines of text that replace the drawing if `molecule` is None.
        width: the width in pixels at scale 1.
        height: the height in pixels at scale 1.
        raw: the SVG that RDKit wrote.
    """

    smiles: str
    molecule: Chem.Mol | None
    lines: tuple[str, ...]
    width: float
    height: float
    raw: str = field(default="", repr=False)

    def svg(self) -> str:
        """Return the SVG elements without a `<svg>` around them, with the upper left corner at (0, 0).

        Lines and letters of the same colour are joined into one path, so the result is a fifth as long as RDKit's. It
        is empty if the molecule is shown as text.
        """
        return "" if self.molecule is None else _compact(self.raw)


def depict(smiles: str) -> Depiction:
    """Draw one molecule. A molecule that RDKit cannot read becomes text."""
    return depict_route(Route(smiles))[0]


def depict_route(route: Route) -> list[Depiction]:
    """Draw the molecules of a route, depth first. Each reactant stands as in its product."""
    molecules: list[Chem.Mol | None] = []
    for node in nodes(route):
        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(node.route.smiles)
        is_small = molecule is not None and 0 < molecule.GetNumAtoms() <= MAX_ATOMS
        product = None if node.parent is None else molecules[node.parent]
        molecules.append(_placed(molecule, product) if is_small else None)
    return [_depiction(smiles, molecule) for smiles, molecule in zip(route.molecules(), molecules, strict=True)]


@functools.lru_cache(maxsize=4096)
def _common_part(product: str, reactant: str) -> Chem.Mol | None:
    """Return the common part of two molecules, with whole rings only: a part of a ring fits on no other ring."""
    pair = [Chem.MolFromSmiles(product), Chem.MolFromSmiles(reactant)]
    if pair[0] is None or pair[1] is None or not ends_in_time(*pair):
        return None
    common = rdFMCS.FindMCS(pair, timeout=SEARCH_SECONDS, ringMatchesRingOnly=True, completeRingsOnly=True)
    return common.queryMol if common.numAtoms >= 2 else None


def _placed(molecule: Chem.Mol, product: Chem.Mol | None) -> Chem.Mol | None:
    """Return a molecule with coordinates: those of its product for the part that they share. None if RDKit fails."""
    core = None if product is None else _common_part(Chem.MolToSmiles(product), Chem.MolToSmiles(molecule))
    if product is not None and core is not None:
        settings: Any = rdDepictor.ConstrainedDepictionParams()
        settings.forceRDKit = settings.useRingTemplates = True
        with contextlib.suppress(RuntimeError, ValueError), rdBase.BlockLogs():
            search = bounded_search(maxMatches=1)
            matches = (side.GetSubstructMatch(core, search) for side in (product, molecule))
            pairs = list(zip(*matches, strict=False))
            rdDepictor.GenerateDepictionMatching2DStructure(molecule, product, pairs, -1, settings)
            if not _is_distorted(molecule):
                return molecule
    try:
        rdDepictor.Compute2DCoords(molecule, forceRDKit=True, useRingTemplates=True)
        rdDepictor.StraightenDepiction(molecule)
    except (RuntimeError, ValueError):
        return None
    return molecule


def _is_distorted(molecule: Chem.Mol) -> bool:
    """Return whether the coordinates of a product do not suit a molecule.

    The length of a bond is far from 1.5, two atoms are nearly at the same point, or a double bond is drawn E but is Z
    or vice versa, for which the common part does not account.
    """
    points = molecule.GetConformer().GetPositions()[:, :2]
    lengths = [math.dist(points[b.GetBeginAtomIdx()], points[b.GetEndAtomIdx()]) for b in molecule.GetBonds()]
    if any(not 1.0 < length < 2.0 for length in lengths):
        return True
    if any(math.dist(a, b) < 0.5 for a, b in itertools.combinations(points, 2)):
        return True
    copy = Chem.MolFromMolBlock(Chem.MolToMolBlock(molecule))  # it has only the coordinates
    return copy is None or Chem.MolToSmiles(copy) != Chem.MolToSmiles(molecule)


def _depiction(smiles: str, molecule: Chem.Mol | None) -> Depiction:
    if molecule is not None:
        canvas = rdMolDraw2D.MolDraw2DSVG(-1, -1)
        with contextlib.suppress(RuntimeError, ValueError):  # a molecule that cannot be drawn is shown as text
            _draw(canvas, molecule, _FINE)
            size = canvas.Width() / _FINE, canvas.Height() / _FINE
            return Depiction(smiles, molecule, (), *size, canvas.GetDrawingText())
    lines = textwrap.wrap(smiles, _TEXT_COLUMNS, break_on_hyphens=False)
    if len(lines) > _TEXT_LINES:
        lines = [*lines[: _TEXT_LINES - 1], lines[_TEXT_LINES - 1][:-1] + "…"]
    width = TEXT_WIDTH * max(len(line) for line in lines)
    return Depiction(smiles, None, tuple(lines), width, TEXT_HEIGHT * len(lines))


def _draw(canvas: Any, molecule: Chem.Mol, scale: float) -> None:
    options = canvas.drawOptions()
    options.clearBackground = False
    options.scalingFactor = scale * BOND_LENGTH / 1.5
    options.fixedFontSize = round(scale * FONT_SIZE)
    options.bondLineWidth, options.scaleBondWidth = LINE_WIDTH * scale, False
    options.padding = 0.04  # without it, the outermost lines lose half their width
    options.setAtomPalette(_PALETTE)
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
    _draw_serifs(canvas, molecule, options.fixedFontSize)
    canvas.FinishDrawing()


def _draw_serifs(canvas: Any, molecule: Chem.Mol, font_size: float) -> None:
    """Draw the serifs of the letter I, which looks like a bond in all of RDKit's fonts."""
    canvas.SetColour(_PALETTE[53])
    for atom in molecule.GetAtoms():
        if atom.GetAtomicNum() == 53:
            place = canvas.GetDrawCoords(atom.GetIdx())
            for height in (-0.36 * font_size, 0.36 * font_size):
                ends = (Point2D(place.x + side * font_size, place.y + height) for side in (-0.2, 0.2))
                canvas.DrawLine(*ends, rawCoords=True)


@functools.lru_cache(maxsize=1024)  # the routes of a page share molecules
def _compact(text: str) -> str:
    """Return RDKit's SVG without its frame, its classes and its default attributes. Paths of one look are joined."""
    paths: dict[str, list[str]] = {}
    others = []
    for element in ElementTree.fromstring(text[text.index("<svg") :]):
        attributes = {name: value for name, value in element.attrib.items() if name not in ("class", "style", "d")}
        style = dict(part.split(":") for part in element.get("style", "").split(";") if part)
        attributes |= {name: value.removesuffix("px") for name, value in style.items() if _DEFAULTS.get(name) != value}
        for name in attributes.keys() & {"stroke-width", "cx", "cy", "rx", "ry"}:
            attributes[name] = _coarse(attributes[name])
        look = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
        if "d" in element.attrib:
            # the group around all elements is not filled
            paths.setdefault(look.replace(' fill="none"', ""), []).append(_compact_path(element.attrib["d"]))
        else:
            others.append(f"<{element.tag.rpartition('}')[2]}{look}/>")
    return "".join([*(f'<path{look} d="{"".join(parts)}"/>' for look, parts in paths.items()), *others])


def _compact_path(path: str) -> str:
    path = re.sub(r"-?\d+(\.\d+)?", lambda number: _coarse(number[0]), re.sub(r"[\s,]+", " ", path))
    return re.sub(r" ?([A-Z]) ?", r"\1", path.strip())


def _coarse(number: str) -> str:
    """Convert a length on the fine canvas to pixels at scale 1."""
    return f"{round(float(number) / _FINE, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0 removes the minus sign of a zero

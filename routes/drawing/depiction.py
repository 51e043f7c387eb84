"""Drawings of molecules by RDKit. Each reactant has the orientation of its product, and all bonds have one length."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import textwrap
import time
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor, rdFMCS
from rdkit.Chem.Draw import rdMolDraw2D

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
# Time limits of the search for the common part of a product and a reactant: for one pair, and for all pairs of a
# route.
SEARCH_SECONDS = 1
ROUTE_SEARCH_SECONDS = 5.0
# The number of ways to place the common part on the product that are compared.
_MAX_MATCHES = 256
# Whether the two neighbours that define the geometry of a double bond are on the same side.
_GEOMETRIES = {
    Chem.BondStereo.STEREOZ: True, Chem.BondStereo.STEREOCIS: True,
    Chem.BondStereo.STEREOE: False, Chem.BondStereo.STEREOTRANS: False,
}  # fmt: skip
# The text in place of a molecule: characters per line, number of lines, and the size of a character in pixels.
_TEXT_COLUMNS, _TEXT_LINES = 26, 5
TEXT_WIDTH, TEXT_HEIGHT = 6.7, 15.0

INK = "#1f2937"
# Colours by atomic number, dark enough for white and for the pale backgrounds of the starting materials. RDKit's own
# green and yellow are too light.
_PALETTE = {
    -1: (0.12, 0.16, 0.22), 6: (0.12, 0.16, 0.22), 7: (0.11, 0.31, 0.78), 8: (0.76, 0.12, 0.12), 9: (0.05, 0.45, 0.43),
    15: (0.70, 0.33, 0.04), 16: (0.54, 0.40, 0.00), 17: (0.05, 0.45, 0.25), 35: (0.55, 0.22, 0.10), 53: (0.42, 0.13, 0.66),
}  # fmt: skip
_DEFAULTS = {
    "fill-rule": "evenodd", "fill-opacity": "1", "stroke-linecap": "butt", "stroke-linejoin": "miter",
    "stroke-opacity": "1", "opacity": "1.0",
}  # fmt: skip


@dataclass(frozen=True)
class Depiction:
    """
    A drawn molecule without a background.

    Args:
        smiles (`str`):
            The SMILES.
        molecule (`Chem.Mol`, *optional*):
            The molecule with two-dimensional coordinates (x to the right, y up). None if RDKit cannot read or draw it.
        lines (`tuple[str, ...]`):
            The lines of text that replace the drawing if `molecule` is None.
        width (`float`):
            The width in pixels at scale 1.
        height (`float`):
            The height in pixels at scale 1.
        raw (`str`, *optional*, defaults to `""`):
            The SVG that RDKit wrote.
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
        if self.molecule is None:
            return ""
        return _compact(self.raw)


def depict(smiles: str) -> Depiction:
    """Draw one molecule. A molecule that RDKit cannot read becomes text."""
    return depict_route(Route(smiles))[0]


def depict_route(route: Route) -> list[Depiction]:
    """Draw the molecules of a route, depth first. Each reactant is oriented as in its product.

    The larger reactants of a product are placed first. A smaller reactant avoids their atoms, so that two reactants do
    not take the same place.
    """
    tree = nodes(route)
    molecules = [_read(node.smiles) for node, _ in tree]
    until = time.monotonic() + ROUTE_SEARCH_SECONDS
    _place(molecules, 0, None, [])
    for index in range(len(tree)):
        product, taken = molecules[index], set[int]()
        reactants = [i for i, (_, parent) in enumerate(tree) if parent == index]
        for i in sorted(reactants, key=lambda i: -_num_atoms(molecules[i])):
            reactant, pairs = molecules[i], list[tuple[int, int]]()
            if product is not None and reactant is not None and time.monotonic() < until:
                pairs = _shared_atoms(product, reactant, taken)
                taken.update(theirs for theirs, _ in pairs)
            _place(molecules, i, product, pairs)
    return [_depiction(node.smiles, molecule) for (node, _), molecule in zip(tree, molecules, strict=True)]


def _num_atoms(molecule: Chem.Mol | None) -> int:
    return 0 if molecule is None else molecule.GetNumAtoms()


def _read(smiles: str) -> Chem.Mol | None:
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    return molecule if 0 < _num_atoms(molecule) <= MAX_ATOMS else None


def _shared_atoms(product: Chem.Mol, reactant: Chem.Mol, taken: set[int]) -> list[tuple[int, int]]:
    """Return the pairs (atom of the product, atom of the reactant) of the largest common part. There may be none.

    The common part can be placed on the product in several ways. The chosen way avoids the atoms of other reactants,
    and prefers atoms with the same number of neighbours in product and reactant.
    """
    core = _common_part(Chem.MolToSmiles(product), Chem.MolToSmiles(reactant))
    if core is None:
        return []
    theirs = product.GetSubstructMatches(core, uniquify=False, maxMatches=_MAX_MATCHES)
    ours = reactant.GetSubstructMatch(core)
    if not theirs or not ours:
        return []
    degrees = [reactant.GetAtomWithIdx(i).GetTotalDegree() for i in ours]

    def strangeness(match: Any) -> tuple[int, int]:
        there = (product.GetAtomWithIdx(i).GetTotalDegree() for i in match)
        return len(taken.intersection(match)), sum(abs(a - b) for a, b in zip(there, degrees, strict=True))

    return list(zip(min(theirs, key=strangeness), ours, strict=True))


@functools.lru_cache(maxsize=4096)
def _common_part(product: str, reactant: str) -> Chem.Mol | None:
    """Return the common part of two molecules, with whole rings only. A part of a ring does not fit on another ring."""
    pair = [Chem.MolFromSmiles(product), Chem.MolFromSmiles(reactant)]
    if pair[0] is None or pair[1] is None:
        return None
    found = rdFMCS.FindMCS(pair, timeout=SEARCH_SECONDS, ringMatchesRingOnly=True, completeRingsOnly=True)
    return found.queryMol if found.numAtoms >= 2 else None


def _place(
    molecules: list[Chem.Mol | None], index: int, product: Chem.Mol | None, pairs: list[tuple[int, int]]
) -> None:
    """Give a molecule coordinates: those of the product for the shared atoms. Replace it by None if RDKit fails."""
    molecule = molecules[index]
    if molecule is None:
        return
    if product is not None and pairs:
        settings: Any = rdDepictor.ConstrainedDepictionParams()
        settings.forceRDKit = settings.useRingTemplates = True
        # The first attempt keeps the coordinates of the product. If they do not suit the molecule, the second attempt
        # draws the molecule on its own and turns it.
        for align_only in (False, True):
            settings.alignOnly = align_only
            with contextlib.suppress(RuntimeError, ValueError), rdBase.BlockLogs():
                rdDepictor.GenerateDepictionMatching2DStructure(molecule, product, pairs, -1, settings)
                if not _is_twisted(molecule) and (align_only or not _is_squeezed(molecule)):
                    return
    try:
        rdDepictor.Compute2DCoords(molecule, forceRDKit=True, useRingTemplates=True)
        rdDepictor.StraightenDepiction(molecule)
    except (RuntimeError, ValueError):
        molecules[index] = None


def _is_squeezed(molecule: Chem.Mol) -> bool:
    """Return whether the length of a bond is far from 1.5, or two atoms are nearly at the same point."""
    points = molecule.GetConformer().GetPositions()[:, :2]
    lengths = [math.dist(points[b.GetBeginAtomIdx()], points[b.GetEndAtomIdx()]) for b in molecule.GetBonds()]
    if any(not 1.0 < length < 2.0 for length in lengths):
        return True
    return any(math.dist(a, b) < 0.5 for a, b in itertools.combinations(points, 2))


def _is_twisted(molecule: Chem.Mol) -> bool:
    """Return whether a double bond is drawn E but is Z, or vice versa. The common part does not account for that."""
    points = molecule.GetConformer().GetPositions()[:, :2]
    for bond in molecule.GetBonds():
        neighbours = list(bond.GetStereoAtoms())
        if bond.GetStereo() not in _GEOMETRIES or len(neighbours) != 2:
            continue
        begin, end = points[bond.GetBeginAtomIdx()], points[bond.GetEndAtomIdx()]
        along, ways = end - begin, [points[neighbour] - begin for neighbour in neighbours]
        # the two neighbours are on the same side of the bond if the cross products have the same sign
        first, second = (along[0] * way[1] - along[1] * way[0] for way in ways)
        if (first * second > 0) != _GEOMETRIES[bond.GetStereo()]:
            return True
    return False


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
    canvas.FinishDrawing()


@functools.lru_cache(maxsize=1024)  # the routes of a page share molecules
def _compact(text: str) -> str:
    """Return RDKit's SVG without its frame, its classes and its default attributes."""
    pieces: list[tuple[str, dict[str, str]]] = []
    for element in ElementTree.fromstring(text[text.index("<svg") :]):
        attributes = {name: value for name, value in element.attrib.items() if name not in ("class", "style")}
        for declaration in filter(None, element.get("style", "").split(";")):
            name, value = declaration.split(":")
            if _DEFAULTS.get(name) != value.strip():
                attributes[name.strip()] = value.strip().removesuffix("px")
        for key in ("stroke-width", "cx", "cy", "rx", "ry"):
            if key in attributes:
                attributes[key] = _coarse(attributes[key])
        name = element.tag.rpartition("}")[2]
        if "d" in attributes:
            attributes["d"] = _compact_path(attributes["d"])
            if attributes.get("fill") == "none":
                del attributes["fill"]  # the group around all elements has this attribute
            # join letters and lines of the same look into one path
            alike = {**attributes, "d": ""}
            same = next((items for known, items in pieces if known == name and {**items, "d": ""} == alike), None)
            if same is not None:
                same["d"] += attributes["d"]
                continue
        pieces.append((name, attributes))
    written = ("".join(f" {key}={quoteattr(value)}" for key, value in items.items()) for _, items in pieces)
    return "".join(f"<{name}{items}/>" for (name, _), items in zip(pieces, written, strict=True))


def _compact_path(path: str) -> str:
    path = re.sub(r"-?\d+(\.\d+)?", lambda number: _coarse(number[0]), re.sub(r"[\s,]+", " ", path))
    return re.sub(r" ?([A-Z]) ?", r"\1", path.strip())


def _coarse(number: str) -> str:
    """Convert a length on the fine canvas to pixels at scale 1."""
    return f"{round(float(number) / _FINE, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0 removes the minus sign of a zero

"""Figures that matplotlib draws. They are checked before the work and written whole, and the same data give the same file."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".svg", ".png", ".pdf")


def check_figure(file: str | os.PathLike, argument: str) -> None:
    """Check that a figure can be drawn into a file. Call it before the work that the figure shows.

    Args:
        file: the file.
        argument: the name of the argument that gives it.

    Raises:
        ValueError: matplotlib is not installed, the file is of another kind, or its folder does not exist.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"{argument} needs matplotlib: pip install weftformer[benchmark].")
    if Path(file).suffix.lower() not in _ENDINGS:
        raise ValueError(f"{argument} {file}: the name must end in .svg, .png or .pdf.")
    if not Path(file).parent.is_dir():
        raise ValueError(f"{argument} {file}: there is no folder {Path(file).parent}.")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a width and height in inches."""
    from matplotlib.figure import Figure  # no pyplot: no window, whatever backend is set

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, file: str | os.PathLike) -> None:
    """Write a figure, whole or not at all.

    Args:
        figure: the figure.
        file: the file, .svg, .png or .pdf.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context

    # a fixed salt and no date, so that the same data give the same file
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(Path(file).suffix.lower())
    with rc_context({"svg.hashsalt": "weft"}), atomic_write(file) as temporary:
        figure.savefig(temporary, dpi=160, metadata=metadata)

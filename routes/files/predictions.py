"""What planners found for targets, from the files of any of them: ranked routes, by target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..molecules import canonical_smiles
from ..tree import Route
from .entries import read_entries


def read_predictions(path: Path) -> dict[str, list[Route]]:
    """The routes of a file by their targets, in the order of the file, which is their rank.

    Args:
        path: any form that `read_routes` reads. A target without routes is there where the file names it by its SMILES, as
            rows with `target` or `smiles` do.

    Returns:
        Canonical SMILES of each target, and its routes as the file has them; those of a target that RDKit cannot read are
        left out.

    Raises:
        ValueError: something is no route, or the file is damaged; the message names the file and the place.
    """
    found: dict[str, list[Route]] = {}
    for entry in read_entries(path):
        try:
            routes = entry.routes()
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error
        for target, route in [*((smiles, None) for smiles in _named(entry.content)), *((r.smiles, r) for r in routes)]:
            try:
                group = found.setdefault(canonical_smiles(target), [])
            except ValueError:
                continue  # it is no target of recorded routes
            if route is not None:
                group.append(route)
    return found


def _named(content: Any) -> Iterator[str]:
    """SMILES of targets that a line, or a part of a document, names, with routes or without."""
    if isinstance(content, str) and content.lstrip().startswith('{"'):
        content = json.loads(content)  # it was read before
    if isinstance(content, dict):
        for name in ("target", "smiles"):
            if isinstance(content.get(name), str):
                yield content[name]

"""Reads the tables of chemistry (JSON files) that are beside this module."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from rdkit import Chem


@cache
def table(name: str) -> dict[str, Any]:
    """Return the table of a file."""
    return json.loads(files("weftformer.routes.chemistry").joinpath(name).read_text(encoding="utf-8"))


@cache
def table_patterns(name: str, section: str) -> dict[str, Chem.Mol]:
    """Return the patterns of a section that has SMARTS by name."""
    return {key: Chem.MolFromSmarts(smarts) for key, smarts in table(name)[section].items()}

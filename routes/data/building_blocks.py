"""The embedded list of building blocks: common chemicals that any supplier sells."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rdkit import Chem

_FILE = Path(__file__).parent / "building_blocks.smi"


@cache
def load_building_blocks() -> dict[str, str]:
    """Return the class of each building block by its canonical SMILES, in the order of the file.

    A class is a name in `groups.GROUPS`. Each line of the file has the form `SMILES class`. The dictionary is shared,
    so callers must not change it.

    Returns:
        `dict[str, str]`: canonical SMILES -> class.
    """
    blocks = {}
    for line in _FILE.read_text(encoding="ascii").splitlines():
        smiles, group = line.split()
        # The stored SMILES may not be canonical for the installed version of RDKit.
        blocks[Chem.CanonSmiles(smiles)] = group
    return blocks

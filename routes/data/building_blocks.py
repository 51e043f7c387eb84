"""The embedded list of building blocks, common chemicals that any supplier sells."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rdkit import Chem

_FILE = Path(__file__).parent / "building_blocks.smi"


@cache
def load_building_blocks() -> dict[str, str]:
    """Canonical SMILES of each building block -> its class, a name of `groups.GROUPS`; in the order of the file.

    The file holds `SMILES class` a line. Nobody may change the dictionary, it is shared.
    """
    blocks = {}
    for line in _FILE.read_text(encoding="ascii").splitlines():
        smiles, group = line.split()
        # The stored SMILES may not be canonical for the RDKit at hand.
        blocks[Chem.CanonSmiles(smiles)] = group
    return blocks

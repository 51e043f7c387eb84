"""Reads the molecules of SD files, with their titles and data fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

# The ends of the counts line of a molecule, the fourth line of an SD file.
_COUNTS = ("V2000", "V3000")


class SDRecord(NamedTuple):
    """A record of an SD file.

    Args:
        smiles: the SMILES of its molecule, with an extension if it needs one; empty if RDKit cannot read it.
        title: its first line.
        fields: the first line of each data field, by its name in lower case.
    """

    smiles: str
    title: str
    fields: dict[str, str]


def read_sd_file(lines: Iterable[str]) -> tuple[Iterator[SDRecord] | None, Iterator[str]]:
    """Return the records of a text, or None if it is not an SD file, and its lines from the first."""
    lines = iter(lines)
    ahead = list(itertools.islice(lines, 4))
    whole = itertools.chain(ahead, lines)
    if len(ahead) < 4 or not ahead[3].rstrip().endswith(_COUNTS):
        return None, whole
    return map(_read, _records(whole)), whole


def smiles_of_cell(text: str) -> str:
    """Return the SMILES of a molfile in a cell of a table. Other texts, and molfiles that RDKit cannot read, stay as
    they are.
    """
    lines = text.splitlines()
    for place, line in enumerate(lines[:4]):
        if line.rstrip().endswith(_COUNTS):  # blank lines at the beginning may be missing
            return _read("\n".join([*[""] * (3 - place), *lines, ""])).smiles or text
    return text


def _records(lines: Iterable[str]) -> Iterator[str]:
    record: list[str] = []
    for line in itertools.chain(lines, ["$$$$"]):
        if not line.startswith("$$$$"):
            record.append(line)
        else:
            if any(map(str.strip, record)):
                yield "".join(record)
            record = []


def _read(record: str) -> SDRecord:
    from rdkit import Chem, rdBase

    from .molecules import noted_smiles

    # each record is parsed alone, so that an error in one affects neither its title nor the others
    with rdBase.BlockLogs():
        supplier = cast(Any, Chem).SDMolSupplier()
        supplier.SetData(record)
        molecule = next(iter(supplier), None)
        smiles = "" if molecule is None else noted_smiles(_extended(Chem.RemoveHs(molecule)))
    return SDRecord(smiles, record.partition("\n")[0].strip(), _fields(record.split("\n")))


def _fields(lines: list[str]) -> dict[str, str]:
    """Return the first line of each data field, which follows a line such as `> 25 <NAME>`."""
    fields: dict[str, str] = {}
    for line, text in itertools.pairwise(lines):
        before, _, name = line.rpartition(">")[0].rpartition("<")
        if before.startswith(">") and (name := name.partition(">")[0].strip().lower()):
            fields[name] = text.strip()
    return fields


def _extended(molecule: Any) -> str:
    """Return the SMILES of a molecule, with an extension for relative configurations, axial chirality and polymers."""
    from rdkit import Chem

    names: Any = Chem.CXSmilesFields
    fields = names.CX_ENHANCEDSTEREO | names.CX_BOND_ATROPISOMER | names.CX_POLYMER
    return cast(Any, Chem).MolToCXSmiles(molecule, Chem.SmilesWriteParams(), fields)

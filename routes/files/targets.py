"""Reads the molecules to plan routes for, each with its name, from lists, tables and SD files.

The content of a file decides its form, as for files of routes: an SD file has records that end in `$$$$` or contain a line
`M  END`; a table has a header with a column of SMILES; any other text is a list with a SMILES in front of each line and, if
there is one, a name behind it.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..tables import table_header
from .entries import BROKEN_GZIP

# Names of columns, and of fields of an SD file, in lower case. The first that a file has is taken.
SMILES_COLUMNS = ("smiles", "canonical_smiles", "target_smiles", "target", "mol")
ID_COLUMNS = ("id", "target_id", "compound_id", "identifier", "name", "compound_name", "title", "key")

_SD_FILE = re.compile(r"^(?:\$\$\$\$|M {2}END)\s*$", re.MULTILINE)
_TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class Target:
    """A molecule to plan routes for.

    Args:
        id: its name in the file, or its number where it has none, counted from 1.
        smiles: as the file has it; of an SD file what RDKit writes for the record, empty where RDKit cannot read it.
        problem: why there is no SMILES.
    """

    id: str
    smiles: str
    problem: str | None = None


def read_targets(path: Path, *, smiles_column: str | None = None, id_column: str | None = None) -> list[Target]:
    """Read the targets of a file, gzipped or not.

    Args:
        path: the file.
        smiles_column: the column with the SMILES, for a table (default: the first of `SMILES_COLUMNS` that it has).
        id_column: the column of a table, or the field of an SD file, with the names (default: the first of `ID_COLUMNS`
            in a table, the title in an SD file).

    Raises:
        ValueError: the file has no target, lacks a column, or is no text. The message names the file.
        OSError: the file cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"the file {path} does not exist." if not path.is_dir() else f"{path} is a folder.")
    return targets_in(path.read_bytes(), str(path), smiles_column=smiles_column, id_column=id_column)


def targets_in(
    content: bytes, name: str, *, smiles_column: str | None = None, id_column: str | None = None
) -> list[Target]:
    """Read the targets of a text, such as standard input.

    Args:
        content: the bytes, gzipped or not.
        name: for messages, and for the ending: one of a table has to have a header, unless its first line is a SMILES.
        smiles_column, id_column: as in [`read_targets`].

    Raises:
        ValueError: as in [`read_targets`].
    """
    text = _decoded(content, name)
    if _SD_FILE.search(text):
        found = list(_of_sd_file(text, id_column))
    elif table := _table(text, name, smiles_column):
        found = list(_of_table(*table, name, id_column))
    else:
        found = list(_of_lines(text))
    if not found:
        raise ValueError(f"{name} holds no target.")
    return found


def _decoded(content: bytes, name: str) -> str:
    try:
        if content.startswith(b"\x1f\x8b") or name.endswith(".gz"):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except BROKEN_GZIP as error:
        raise ValueError(f"{name} is no whole gzip file: {error}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no UTF-8 text: {error}.") from error


def _table(text: str, name: str, smiles_column: str | None) -> tuple[list[list[str]], int] | None:
    """The rows of a table with its header, and the column of its SMILES; None for a text that is no table."""
    lines = text.lstrip("\r\n")
    first = lines.partition("\n")[0].rstrip("\r")
    wanted = SMILES_COLUMNS if smiles_column is None else (smiles_column.lower(),)
    if found := table_header(first, wanted):
        delimiter, header = found
        column = next(header.index(one) for one in wanted if one in header)
        try:
            rows = list(csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter))
        except csv.Error as error:
            raise ValueError(
                f"{name} cannot be read as a table, perhaps because a quote is not closed: {error}."
            ) from error
        return [row for row in rows if row], column
    is_table = Path(name.removesuffix(".gz")).suffix in _TABLES
    if smiles_column is not None or (is_table and first and not _is_molecule(_parts(first)[0])):
        what = repr(smiles_column) if smiles_column else "with a name such as 'smiles'"
        raise ValueError(f"{name} has no column {what}: its first line is {first[:200]!r}. --smiles-column names one.")
    return None


def _of_table(rows: list[list[str]], column: int, name: str, id_column: str | None) -> Iterator[Target]:
    header = [name.strip().lower() for name in rows[0]]
    named = next((header.index(one) for one in ID_COLUMNS if one in header and header.index(one) != column), None)
    if id_column is not None:
        if id_column.lower() not in header:
            raise ValueError(f"{name} has no column {id_column!r}: it has {', '.join(rows[0])}.")
        named = header.index(id_column.lower())
    for number, row in enumerate(rows[1:], 1):
        cells = [cell.strip() for cell in row] + [""] * (len(header) - len(row))
        label = "" if named is None else cells[named]
        yield Target(label or str(number), cells[column])


def _of_lines(text: str) -> Iterator[Target]:
    number = 0
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        smiles, label = _parts(line)
        if number == 0 and smiles.lower() in SMILES_COLUMNS:
            continue  # a header
        number += 1
        yield Target(label or str(number), smiles)


def _parts(line: str) -> tuple[str, str]:
    """A SMILES and the name behind it, without the part of an extended SMILES between bars."""
    smiles, *rest = re.split(r"[\s,;]+", line.strip(), maxsplit=1)
    label = re.sub(r"^\|[^|]*\|", "", rest[0] if rest else "")
    return smiles, label.strip().strip('"')


def _of_sd_file(text: str, id_column: str | None) -> Iterator[Target]:
    from rdkit import Chem, rdBase

    # each record by itself: what is wrong with one leaves its title and the others
    records = re.split(r"^\$\$\$\$[^\n]*\n?", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    for number, record in enumerate((record for record in records if record.strip()), 1):
        with rdBase.BlockLogs():
            supplier = cast(Any, Chem).SDMolSupplier()
            supplier.SetData(record)
            molecule = next(iter(supplier), None)
            smiles = "" if molecule is None else Chem.MolToSmiles(Chem.RemoveHs(molecule))
        label = record.partition("\n")[0].strip()
        if id_column is not None:
            found = re.search(rf"^>.*<{re.escape(id_column)}>[^\n]*\n([^\n]*)", record, re.MULTILINE | re.IGNORECASE)
            label = found[1].strip() if found else ""
        label = label or str(number)
        yield Target(label, smiles, None if smiles else f"record {number} is not a molecule that RDKit can read.")


def _is_molecule(smiles: str) -> bool:
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        return bool(smiles) and Chem.MolFromSmiles(smiles) is not None

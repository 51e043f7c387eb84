"""Reads targets and their names from lists, tables and SD files.

The content of a file decides its form, as for files of routes; only Parquet is recognised by the ending of the name.
An SD file has records that end in `$$$$` or contain a line `M  END`. A table has a header with a column of SMILES. Any
other text is a list, with a SMILES at the beginning of each line and optionally a name after it.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ..tables import find_column, table_header
from .lines import BROKEN_GZIP, TooLong, begin, lines

# Names of columns, and of fields of an SD file, in lower case. The first one that a file has is used.
SMILES_COLUMNS = ("smiles", "canonical_smiles", "target_smiles", "target", "mol")
ID_COLUMNS = ("id", "target_id", "compound_id", "identifier", "name", "compound_name", "title", "key")

# The end of a record, the end of a molecule, or the counts line of a molecule.
_SD_FILE = re.compile(rb"^(?:\$\$\$\$|M {2}END|.*V[23]000)\s*$", re.MULTILINE)
_TABLES = (".csv", ".tsv")
# A file with more targets is refused before it fills memory. Planning them would take days.
MOST_TARGETS = 1_000_000
# The longest record of an SD file, in characters.
_LONGEST_RECORD = 1 << 24


@dataclass(frozen=True, slots=True)
class Target:
    """A molecule to plan routes for.

    Args:
        id: its name in the file, or else its number, counted from 1.
        smiles: the SMILES in the file. For an SD file, RDKit's SMILES of the record, empty if RDKit cannot read it.
        problem: the reason for a missing SMILES.
    """

    id: str
    smiles: str
    problem: str | None = None


def read_targets(path: Path, *, smiles_column: str | None = None, id_column: str | None = None) -> list[Target]:
    """Read the targets of a file, gzipped or not.

    Args:
        path: the file.
        smiles_column: the column with the SMILES, for a table (default: the first of `SMILES_COLUMNS` that it has).
        id_column: the column of a table, or the field of an SD file, with the names (default: the first of
            `ID_COLUMNS` in a table, the title in an SD file).

    Raises:
        ValueError: the file has no target or more than `MOST_TARGETS`, lacks a column, or is not text. The message
            names the file.
        OSError: the file cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"the file {path} does not exist." if not path.is_dir() else f"{path} is a folder.")
    with path.open("rb") as file:
        return targets_in(file, str(path), smiles_column=smiles_column, id_column=id_column)


def targets_in(
    file: IO[bytes], name: str, *, smiles_column: str | None = None, id_column: str | None = None
) -> list[Target]:
    """Read the targets of an open file, such as standard input, line by line.

    Args:
        file: the file, gzipped or not.
        name: the name for messages. If its ending is that of a table, the file must have a header, unless its first
            line begins with a SMILES.
        smiles_column, id_column: as in [`read_targets`].

    Raises:
        ValueError: as in [`read_targets`].
    """
    try:
        if name.endswith(".parquet"):
            return _bounded(_of_parquet(file, name, smiles_column, id_column), name)
        head, chunks = begin(file, name)
        texts = (line.decode("utf-8").rstrip("\r") for line in lines(chunks))
        first = head.decode("utf-8", "replace").lstrip("\r\n").partition("\n")[0].rstrip("\r")
        if _SD_FILE.search(head):
            targets = _of_sd_file(texts, id_column)
        elif table := _table(first, name, smiles_column):
            targets = _of_table(texts, *table, name, id_column)
        else:
            targets = _of_lines(texts)
        return _bounded(targets, name)
    except BROKEN_GZIP as error:
        raise ValueError(f"{name} is not a complete gzip file: {error}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error}.") from error
    except TooLong as error:
        raise ValueError(f"{name}: {error}.") from error
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read as a table, perhaps because a quote is not closed: {error}."
        ) from error


def _bounded(targets: Iterable[Target], name: str) -> list[Target]:
    found = list(itertools.islice(targets, MOST_TARGETS + 1))
    if not found:
        raise ValueError(f"{name} contains no target.")
    if len(found) > MOST_TARGETS:
        raise ValueError(f"{name} has more than {MOST_TARGETS:,} targets: split it.")
    return found


def _table(first: str, name: str, smiles_column: str | None) -> tuple[str, int] | None:
    """Return the delimiter of a table and the column of its SMILES, or None for a text that is not a table."""
    wanted = SMILES_COLUMNS if smiles_column is None else (smiles_column,)
    if (found := table_header(first, wanted)) and (column := find_column(found[1], wanted)) is not None:
        return found[0], column
    from ..molecules import read_molecule  # needs RDKit

    is_table = Path(name.removesuffix(".gz")).suffix in _TABLES
    if smiles_column is not None or (is_table and first and read_molecule(_parts(first)[0]) is None):
        what = repr(smiles_column) if smiles_column else "with a name such as 'smiles'"
        raise ValueError(
            f"{name} has no column {what}: its first line is {first[:200]!r}. Use --smiles-column to name the column."
        )
    return None


def _of_table(texts: Iterable[str], delimiter: str, column: int, name: str, id_column: str | None) -> Iterator[Target]:
    rows = (row for row in csv.reader((f"{text}\n" for text in texts), delimiter=delimiter) if row)
    names = next(rows)
    named = find_column([*names[:column], "", *names[column + 1 :]], ID_COLUMNS)
    if id_column is not None and (named := find_column(names, [id_column])) is None:
        raise ValueError(f"{name} has no column {id_column!r}: it has {', '.join(names)}.")
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row] + [""] * (len(names) - len(row))
        label = "" if named is None else cells[named]
        yield Target(label or str(number), cells[column])


def _of_parquet(file: IO[bytes], name: str, smiles_column: str | None, id_column: str | None) -> Iterator[Target]:
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.ParquetFile(file)
    except ArrowInvalid as error:
        raise ValueError(f"{name} is not a parquet file: {error}") from error
    header, chosen = list(table.schema_arrow.names), list[str]()
    for given, usual in ((smiles_column, SMILES_COLUMNS), (id_column, ID_COLUMNS)):
        place = find_column(["" if one in chosen else one for one in header], [given] if given else usual)
        if place is not None:
            chosen.append(header[place])
        elif given or usual is SMILES_COLUMNS:
            raise ValueError(f"{name} has no column {given or 'smiles'!r}: it has {', '.join(header)}.")
    number = 0
    for batch in table.iter_batches(columns=chosen):
        for row in batch.to_pylist():
            number += 1
            smiles, label = row[chosen[0]], row[chosen[1]] if len(chosen) > 1 else None
            yield Target(str(number) if label in (None, "") else str(label), str(smiles or "").strip())


def _of_lines(texts: Iterable[str]) -> Iterator[Target]:
    number = 0
    for line in texts:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        smiles, label = _parts(line)
        if number == 0 and smiles.lower() in SMILES_COLUMNS:
            continue  # a header
        number += 1
        yield Target(label or str(number), smiles)


def _parts(line: str) -> tuple[str, str]:
    """Return the SMILES and the name of a line, without the part of an extended SMILES between bars."""
    smiles, *rest = re.split(r"[\s,;]+", line.strip(), maxsplit=1)
    label = re.sub(r"^\|[^|]*\|", "", rest[0] if rest else "")
    return smiles, label.strip().strip('"')


def _of_sd_file(texts: Iterable[str], id_column: str | None) -> Iterator[Target]:
    from rdkit import Chem, rdBase

    # each record is parsed alone, so that an error in one affects neither its title nor the others
    for number, record in enumerate(_records(texts), 1):
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


def _records(texts: Iterable[str]) -> Iterator[str]:
    """Yield the records of an SD file.

    Raises:
        TooLong: a record is longer than `_LONGEST_RECORD`.
    """
    record, size = list[str](), 0
    for text in itertools.chain(texts, ["$$$$"]):
        if not text.startswith("$$$$"):
            record.append(f"{text}\n")
            size += len(text) + 1  # empty lines take memory too
            if size > _LONGEST_RECORD:
                raise TooLong(f"a record is longer than {_LONGEST_RECORD} characters, so this is not an SD file")
            continue
        if any(map(str.strip, record)):
            yield "".join(record)
        record, size = [], 0

"""Reads targets and their names from lists, tables and SD files.

The content of a file decides its form, as for files of routes; only Parquet is recognised by the ending of the name.
The fourth line of an SD file ends in `V2000` or `V3000`. A table has a header with a column of SMILES. Any other text
is a list, with a SMILES at the beginning of each line and optionally a name after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from ...common.tables import Table, find_column, named_errors, read_table, text_of
from ..chemistry.sd_files import SDRecord, read_sd_file, smiles_of_cell
from ..plans import Plan
from ..tree import SMILES_COLUMNS, smiles_and_name, with_whole_extension

# Names of columns, and of fields of an SD file, in lower case. The first one that a file has is used.
ID_COLUMNS = ("id", "target_id", "compound_id", "identifier", "name", "compound_name", "title", "key")

_TABLES = (".csv", ".tsv")
# A file with more targets is refused before it fills memory. Planning them would take days.
MOST_TARGETS = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """A molecule to plan routes for.

    Args:
        id: its name in the file, or else its number, counted from 1.
        smiles: the SMILES in the file. For an SD file, RDKit's SMILES of the record, empty if RDKit cannot read it. In
            both, a CXSMILES where the plan has a remark about its extension.
        problem: the reason for a missing SMILES.
    """

    id: str
    smiles: str
    problem: str | None = None

    def label(self, plan: Plan) -> Plan:
        """Return a plan of the SMILES with the id of the target, and with the reason for a missing SMILES."""
        return replace(plan, id=self.id, problem=self.problem or plan.problem)

    def row(self, number: int, plan: Plan, options: dict[str, Any], state: str | None = None) -> dict[str, Any]:
        """Return the object of the target in an output of JSON lines.

        Args:
            number: the number of the target in the input, counted from 1.
            plan: its plan.
            options: the options as given by the user.
            state: the outcome (default: that of the plan).
        """
        plan = self.label(plan)
        row = {"number": number, "state": state or plan.state, "id": self.id, "given": self.smiles}
        return row | {"settings": options} | plan.to_dict()


def read_targets(path: Path, *, smiles_column: str | None = None, id_column: str | None = None) -> list[Target]:
    """Read the targets of a file, gzipped or not.

    Args:
        path: the file.
        smiles_column: the column with the SMILES, for a table (default: the first of `SMILES_COLUMNS` that it has).
        id_column: the column of a table, or the field of an SD file, with the names (default: the first of
            `ID_COLUMNS` that it has; in an SD file, the title comes first).

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
    with named_errors(name):
        targets = list(itertools.islice(_targets(file, name, smiles_column, id_column), MOST_TARGETS + 1))
    if not targets:
        raise ValueError(f"{name} contains no target.")
    if len(targets) > MOST_TARGETS:
        raise ValueError(f"{name} has more than {MOST_TARGETS:,} targets: split it.")
    return targets


def _targets(file: IO[bytes], name: str, smiles_column: str | None, id_column: str | None) -> Iterator[Target]:
    columns = SMILES_COLUMNS if smiles_column is None else [smiles_column]
    if name.endswith(".parquet"):
        return _of_table(_parquet(file, name), name, columns, id_column)
    records, whole = read_sd_file(text_of(file, name))
    if records is not None:
        return _of_sd_file(records, id_column)
    table, lines = read_table(whole, columns)
    if table is not None:
        return _of_table(table, name, columns, id_column)
    first = next(lines, "")
    has_table_name = name.removesuffix(".gz").endswith(_TABLES)
    if smiles_column is not None or (has_table_name and not _begins_with_smiles(first)):
        what = repr(smiles_column) if smiles_column else "with a name such as 'smiles'"
        line = first.strip()[:200]
        raise ValueError(f"{name} has no column {what}: its first line is {line!r}. Name it with --smiles-column.")
    return _of_lines(itertools.chain([first], lines))


def _begins_with_smiles(line: str) -> bool:
    from ..chemistry.molecules import read_molecule  # needs RDKit

    return not line or read_molecule(smiles_and_name(line)[0]) is not None


def _of_table(table: Table, name: str, columns: Sequence[str], id_column: str | None) -> Iterator[Target]:
    column = table.column(columns)
    others = ["" if index == column else other for index, other in enumerate(table.header)]
    label = find_column(others, ID_COLUMNS) if id_column is None else table.column([id_column])
    if column is None or (label is None and id_column is not None):
        missing = id_column if column is not None else "smiles" if "smiles" in columns else columns[0]
        raise ValueError(f"{name} has no column {missing!r}: it has {', '.join(table.header)}.")
    for number, row in enumerate(table.rows, 1):
        row = with_whole_extension(row, column)
        yield Target((label is not None and row[label]) or str(number), smiles_of_cell(row[column]))


def _parquet(file: IO[bytes], name: str) -> Table:
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.ParquetFile(file)
    except ArrowInvalid as error:
        raise ValueError(f"{name} is not a parquet file: {error}") from error
    rows = (row.values() for batch in table.iter_batches() for row in batch.to_pylist())
    texts = (["" if cell is None else str(cell).strip() for cell in row] for row in rows)
    return Table(list(table.schema_arrow.names), texts)


def _of_lines(lines: Iterable[str]) -> Iterator[Target]:
    from ..chemistry.molecules import noted_smiles  # needs RDKit

    pairs = (smiles_and_name(line) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    without_header = itertools.dropwhile(lambda pair: pair[0].lower() in SMILES_COLUMNS, pairs)
    for number, (smiles, label) in enumerate(without_header, 1):
        yield Target(label or str(number), noted_smiles(smiles))


def _of_sd_file(records: Iterable[SDRecord], id_column: str | None) -> Iterator[Target]:
    for number, record in enumerate(records, 1):
        labels = [record.title, *(record.fields.get(name, "") for name in ID_COLUMNS)]
        label = next(filter(None, labels), "") if id_column is None else record.fields.get(id_column.lower(), "")
        problem = None if record.smiles else f"record {number} is not a molecule that RDKit can read."
        yield Target(label or str(number), record.smiles, problem)

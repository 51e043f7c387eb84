"""Headers of tables: the names of the columns decide whether a text is a table, and which delimiter separates them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence


def table_header(line: str, known: Iterable[str]) -> tuple[str, list[str]] | None:
    """
    Read the first line of a text as the header of a table.

    Args:
        line (`str`):
            The line.
        known (`Iterable[str]`):
            Names of columns. A header has at least one of them, as [`find_column`] compares them.

    Returns:
        `tuple[str, list[str]]` or None: the delimiter and the names of all columns in lower case, or None for a line that
        is not a header.
    """
    for delimiter in (",", "\t", ";"):
        try:
            header = [name.strip().lower() for name in next(csv.reader([line], delimiter=delimiter), [])]
        except csv.Error:  # a cell is too long for a name, or contains a line break
            continue
        if find_column(header, known) is not None:
            return delimiter, header
    return None


def find_column(header: Sequence[str], names: Iterable[str]) -> int | None:
    """Return the index of the first of the names that a header has, or None.

    Case, spaces and punctuation are ignored: `Canonical SMILES` and `CanonicalSMILES` match `canonical_smiles`.
    """
    keys = [_key(name) for name in header]
    return next((keys.index(key) for key in map(_key, names) if key in keys), None)


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower() or name

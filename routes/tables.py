"""The header of a table: the names of its columns decide whether a text is a table, and what separates the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable


def table_header(line: str, known: Iterable[str]) -> tuple[str, list[str]] | None:
    """
    Read the first line of a text as the header of a table.

    Args:
        line (`str`):
            The line.
        known (`Iterable[str]`):
            Names of columns, in lower case. A header has at least one of them.

    Returns:
        `tuple[str, list[str]]` or None: the delimiter and the names of all columns in lower case, or None for a line that
        is no header.
    """
    for delimiter in (",", "\t", ";"):
        try:
            header = [name.strip().lower() for name in next(csv.reader([line], delimiter=delimiter), [])]
        except csv.Error:  # a cell is longer than any name, or has the end of a line in it
            continue
        if not set(header).isdisjoint(known):
            return delimiter, header
    return None

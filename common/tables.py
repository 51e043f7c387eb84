"""Text files and tables, gzipped or not: the contents decide, not the name."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

# gzip raises these for a truncated file, for a file that is not gzip, and for damaged contents.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def text_of(file: IO[bytes], name: str, errors: str = "strict") -> IO[str]:
    """Return the text of an open file, gzipped or not, without a byte order mark. Any line end becomes `\\n`.

    Args:
        file: the file. It is gzipped if its first bytes say so, or if the name ends in `.gz`.
        name: its name.
        errors: what to do with bytes that are not UTF-8, as in `open`.
    """
    ahead: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
    if ahead.peek(2)[:2] == b"\x1f\x8b" or name.endswith(".gz"):
        ahead = gzip.GzipFile(fileobj=ahead)
    return io.TextIOWrapper(ahead, encoding="utf-8-sig", errors=errors)


@contextmanager
def named_errors(name: Any) -> Iterator[None]:
    """Raise a ValueError with the name of the file that is read if it is damaged, not text, or not a table."""
    try:
        yield
    except BROKEN_GZIP as error:
        raise ValueError(f"{name} is damaged or cut off. Download or copy it again: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error}") from error
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read as a table, perhaps because a quote is not closed: {error}"
        ) from error


@dataclass
class Table:
    """A text of separated columns with a header.

    Args:
        header: the names of the columns.
        rows: the other rows that are not empty, each with a cell for each column, without blanks around them.
    """

    header: list[str]
    rows: Iterator[list[str]]

    def column(self, names: Iterable[str]) -> int | None:
        """Return the index of the first of the names that the header has, as [`find_column`]."""
        return find_column(self.header, names)


def read_table(lines: Iterable[str], known: Sequence[str]) -> tuple[Table | None, Iterator[str]]:
    """Read a text as a table if its first line is a header.

    Args:
        lines: the lines of the text.
        known: names of columns. A header has at least one of them. Commas, tabs or semicolons separate the columns.

    Returns:
        The table, or None, and the lines of a text that is not a table, from the first that is not empty.
    """
    lines = iter(lines)
    first = next((line for line in lines if line.strip()), "")
    whole = itertools.chain([first], lines) if first else iter(())
    for delimiter in (",", "\t", ";"):
        try:
            header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        except csv.Error:  # a cell is too long for a name, or contains a line break
            continue
        if find_column(header, known) is not None:
            return Table(header, _rows(lines, delimiter, len(header))), whole
    return None, whole


def _rows(lines: Iterable[str], delimiter: str, width: int) -> Iterator[list[str]]:
    for row in csv.reader(lines, delimiter=delimiter):
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield cells + [""] * (width - len(cells))


def find_column(header: Sequence[str], names: Iterable[str]) -> int | None:
    """Return the index of the first of the names that a header has, or None.

    Case, spaces and punctuation are ignored: `Canonical SMILES` and `CanonicalSMILES` match `canonical_smiles`.
    """
    keys = [_key(name) for name in header]
    return next((keys.index(key) for key in map(_key, names) if key in keys), None)


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower() or name.lower()

"""Text files and tables, packed or not."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from .packed import BoundedText, unpacked

_logger = logging.getLogger(__name__)

# The number of bytes that decide the encoding of a text.
SAMPLE = 1 << 24


def text_of(file: IO[bytes], name: str, errors: str = "strict") -> IO[str]:
    """Return the text of an open file, packed or not, without a byte order mark. Any line end becomes `\\n`.

    While it is read, it raises a ValueError if a line or the unpacked text is too large (see `packed`).

    Args:
        file: the file.
        name: its name.
        errors: what to do with bytes that are not in the encoding, as in `open`. If it is not "strict", text
            without the mark of UTF-16 is read as UTF-8.
    """
    ahead = unpacked(file, name)
    if errors != "strict":
        is_wide = ahead.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        return BoundedText(ahead, name, encoding="utf-16" if is_wide else "utf-8-sig", errors=errors)
    ahead = io.BufferedReader(ahead, SAMPLE)
    return BoundedText(ahead, name, encoding=encoding_of(ahead.peek(), name))


def encoding_of(sample: bytes, name: str) -> str:
    """Return the encoding of a text, judged by its beginning: UTF-8, UTF-16, or with a warning cp1252 or Latin-1.

    Args:
        sample: the beginning.
        name: the name of the file, for the warning.
    """
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in sample[:2]:  # of an ASCII character; elsewhere it is damage
        return "utf-16-le" if sample[1:2] == b"\0" else "utf-16-be"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(sample)
        except UnicodeDecodeError:
            continue
        break
    else:
        encoding = "latin-1"
    if encoding != "utf-8-sig":
        _logger.warning("%s is not UTF-8 and is read as %s: if letters are wrong, save it as UTF-8.", name, encoding)
    return encoding


@contextmanager
def named_errors(name: Any) -> Iterator[None]:
    """Raise a ValueError with the name of the file that is read if it is not text, or not a table."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text: {error}") from error
    except csv.Error as error:
        raise ValueError(f"{name} cannot be read as a table (is a quote not closed?): {error}") from error


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


def read_table(lines: Iterable[str], names: Sequence[str]) -> tuple[Table | None, Iterator[str]]:
    """Read a text as a table if its first line is a header.

    Args:
        lines: the lines of the text.
        names: names of columns. A header has at least one of them. Commas, tabs or semicolons separate the columns.

    Returns:
        The table, or None, and the lines of a text that is not a table, from the first that is not empty.
    """
    lines = iter(lines)
    first_line = next((line for line in lines if line.strip()), "")
    all_lines = itertools.chain([first_line], lines) if first_line else iter(())
    for delimiter in (",", "\t", ";"):
        try:
            header = [name.strip() for name in next(csv.reader([first_line], delimiter=delimiter), [])]
        except csv.Error:  # a cell is too long for a name, or contains a line break
            continue
        if find_column(header, names) is not None:
            return Table(header, _rows(lines, delimiter, len(header))), all_lines
    return None, all_lines


def _rows(lines: Iterable[str], delimiter: str, width: int) -> Iterator[list[str]]:
    number = 1  # the header is the first line
    try:
        # strict, because a quote that is not closed would swallow the lines after it
        for row in (reader := csv.reader(lines, delimiter=delimiter, strict=True)):
            for line in (line for cell in row if "\n" in cell for line in cell.split("\n")[1:]):
                if line.count(delimiter) >= max(1, width - 1):
                    raise csv.Error(f"the line {line[:80]!r} is in a cell")
            number, cells = reader.line_num + 1, [cell.strip() for cell in row]
            if any(cells):
                yield cells + [""] * (width - len(cells))
    except csv.Error as error:
        raise csv.Error(f"line {number + 1}: {error}") from error


def find_column(header: Sequence[str], names: Iterable[str]) -> int | None:
    """Return the index of the first of the names that a header has, or None.

    Case, spaces and punctuation are ignored: `Canonical SMILES` and `CanonicalSMILES` match `canonical_smiles`.
    """
    keys = [_key(name) for name in header]
    return next((keys.index(key) for key in map(_key, names) if key in keys), None)


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower() or name.lower()

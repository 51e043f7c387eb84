"""The entries of a route file, read one after the other, so that memory does not grow with the file.

A file contains lines, each of which is an entry, one JSON document, or a table with a header. The first bytes decide
which of these it is, and whether the file is gzipped. A name that ends in `.gz` also means gzip.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tables import table_header
from ..tree import Route
from .documents import document_entries, is_container
from .formats import is_plain, routes_in
from .lines import BROKEN_GZIP, HEAD, begin, lines
from .reaction_lines import from_reaction_line

# The beginnings of JSON and of DirectMultiStep's text. No reaction matches them: `[Na+]` and `[nH]` are atoms.
_JSON = re.compile(r'\s*(?:["{]|\[\s*(?:["\[{\]]|null|$))')
# The name of a column of a table.
_COLUMN = re.compile(r"[\w .-]*")
_DMS = re.compile(r"\s*\{\s*'")
# Matches the spaces that Python's `repr` writes and DirectMultiStep leaves out. A SMILES contains no spaces.
_REPR_SPACES = re.compile(r"(?<=[:,]) +(?=['\[{])")


@dataclass(frozen=True, slots=True)
class Entry:
    """
    An entry of a route file.

    Args:
        place (`str`):
            The place of the entry: `line 7`, or the path inside a JSON document, such as `[3][1]`.
        content (`Any`):
            A line, a parsed JSON value, or the `ValueError` with the reason why the entry cannot be read.
        is_line (`bool`, *optional*, defaults to `False`):
            Whether `content` is a line.
    """

    place: str
    content: Any
    is_line: bool = False

    def routes(self) -> list[Route]:
        """Return the routes of the entry. A target without a route gives an empty list.

        Raises:
            ValueError: the entry is not a route. The message begins with the place.
        """
        if isinstance(self.content, ValueError):
            raise ValueError(f"{self.place}: {self.content}")
        if not self.is_line:
            return list(routes_in(self.content, self.place))
        try:
            return _line_routes(self.content)
        except ValueError as error:
            raise ValueError(f"{self.place}: {error}") from error


def read_entries(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """
    Yield the entries of a file as a stream.

    Args:
        path (`Path`):
            The file.
        progress (`Callable[[int], None]`, *optional*):
            A function that is called with the number of bytes that were read since the last call.

    Yields:
        `Entry`: the entries in their order.

    Raises:
        ValueError: the file cannot be read to its end: it is cut off, damaged or not text. The message names
            the file.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as raw:
        place = "line 1"
        try:
            head, chunks = begin(raw, path.name, progress)
            for entry in _entries(head, chunks):
                place = entry.place
                yield entry
                if entry.is_line:
                    # the text that cannot be decoded comes after the last complete line
                    place = f"line {int(entry.place.split()[1]) + 1}"
        except BROKEN_GZIP as error:
            raise ValueError(
                f"{path}, {place}: the file is damaged or cut off here. Download or copy it again: {error}"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error


def _entries(head: bytes, chunks: Iterator[bytes]) -> Iterator[Entry]:
    if delimiter := _delimiter_of_table(head):
        return _table_rows(chunks, delimiter)
    if _is_document(head):
        return (Entry(place, content) for place, content in document_entries(chunks))
    return _lines(chunks)


def _is_document(head: bytes) -> bool:
    """Return whether a file is one JSON document and not a file of lines.

    A document begins like JSON and continues after the first line. A file with a single line is a document if the line
    contains several routes, as a list does.
    """
    text = head.lstrip()
    start = text[:1000].decode("utf-8", "replace")
    if start.startswith('"') or not _JSON.match(start) or _DMS.match(start):
        return False
    first, _, rest = text.partition(b"\n")
    rest = rest.strip()
    try:
        data = json.loads(first)
    except (ValueError, RecursionError):
        # The first line is not complete JSON. The file is a document over several lines or with one very long line,
        # unless the line is a broken entry, which is alone or followed by other lines that begin with a brace.
        is_line = rest.startswith(b"{") if rest else len(head) < HEAD
        return not (text.startswith(b"{") and is_line)
    return not rest and is_container(data)


def _delimiter_of_table(head: bytes) -> str | None:
    """Return the delimiter of a table with routes, or None if the file is not such a table."""
    first = head.lstrip().partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
    found = table_header(first, ("route", "reactions"))
    # a file of reactions may have any text after a tab
    return found[0] if found and all(map(_COLUMN.fullmatch, found[1])) else None


def _table_rows(chunks: Iterator[bytes], delimiter: str) -> Iterator[Entry]:
    rows = csv.reader((line.decode("utf-8") + "\n" for line in lines(chunks)), delimiter=delimiter)
    try:
        filled = (row for row in rows if any(cell.strip() for cell in row))
        header = [name.strip().lower() for name in next(filled)]
        for row in filled:
            yield Entry(f"line {rows.line_num}", _table_entry(dict(zip(header, row, strict=False))))
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: the table cannot be read: {error}") from error


def _table_entry(row: dict[str, str]) -> Any:
    """Return the target and the route of a row in the form of JSON lines. A target without a route has no trees."""
    target = row.get("target") or row.get("smiles")
    named = {"smiles": target} if target else {}
    try:
        if cell := row.get("route", "").strip():
            return named | {"route": json.loads(cell) if cell.startswith('{"') else cell}
        if cell := row.get("reactions", "").strip():
            return named | {"route": from_reaction_line(cell).to_dict()}
    except (ValueError, RecursionError) as error:
        return ValueError(str(error))
    return named | {"trees": []}


def _lines(chunks: Iterator[bytes]) -> Iterator[Entry]:
    for number, line in enumerate(lines(chunks), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Entry(f"line {number}", ValueError(f"the text is not UTF-8: {error}"), True)
            continue
        if text.strip():
            yield Entry(f"line {number}", text, True)


def _line_routes(line: str) -> list[Route]:
    text = line.strip()
    if _DMS.match(text):
        return [Route.from_string(_REPR_SPACES.sub("", text))]
    is_json = _JSON.match(text)
    if not is_json and ">" in text:
        return [from_reaction_line(text)]
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        if is_json:
            raise
        raise ValueError(
            f"{error.msg}: {text[:80]!r} is neither JSON, nor a DirectMultiStep text, nor reaction SMILES"
        ) from None
    inner = data["route"] if isinstance(data, dict) and "route" in data else data
    return [Route.from_dict(inner)] if is_plain(inner) else list(routes_in(inner))

"""What stands in a route file, one entry after the other, in memory that does not grow with the file.

A file is either lines, each an entry, or one JSON document. Which it is, and whether it is gzipped, is told by how it
begins, not by its name.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..tree import Route
from .documents import MAX_ENTRY, document_entries, is_container
from .formats import is_plain, routes_in
from .reaction_lines import from_reaction_line

# What gzip raises for a truncated file, for a file that is none, and for damaged contents.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
# Bytes read at once, and bytes in which the first lines have to end for a file to be one of lines.
_CHUNK, _HEAD = 1 << 16, 1 << 20

# How JSON begins, and DirectMultiStep's text, and no reaction: `[Na+]` and `[nH]` are atoms.
_JSON = re.compile(r'\s*(?:["{]|\[\s*(?:["\[{\]]|null|$))')
_DMS = re.compile(r"\s*\{\s*'")
# Python's `repr` writes the spaces that DirectMultiStep leaves out; none of them is in a SMILES.
_REPR_SPACES = re.compile(r"(?<=[:,]) +(?=['\[{])")


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of a route file.

    Args:
        place: where it stands: `line 7`, or the path inside a JSON document, `[3][1]`.
        content: a line, a parsed JSON value, or the ValueError that says why it cannot be read.
        is_line: whether `content` is a line.
    """

    place: str
    content: Any
    is_line: bool = False

    def routes(self) -> list[Route]:
        """The routes of the entry; none for a target without a route.

        Raises:
            ValueError: it is no route; the message begins with the place.
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
    """The entries of a file, as a stream.

    Args:
        path: the file.
        progress: called with the bytes of the file that were read since the last call.

    Raises:
        ValueError: from some place on the file cannot be read: it is cut off, damaged, or no text; the message names the
            file. OSError: the file cannot be opened.
    """
    with path.open("rb") as raw:
        place = "line 1"
        try:
            head, chunks = _look(_chunks(_unzipped(raw, path), raw, progress))
            document = (Entry(place, content) for place, content in document_entries(chunks))
            for entry in document if _is_document(head) else _lines(chunks):
                place = entry.place
                yield entry
                if entry.is_line:
                    # what the decoder could not read stands after the last line that came out whole
                    place = f"line {int(entry.place.split()[1]) + 1}"
        except BROKEN_GZIP as error:
            raise ValueError(f"{path}, {place}: the file is damaged or cut off here, get it again: {error}") from error
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error


def _unzipped(raw: IO[bytes], path: Path) -> Any:
    magic = raw.peek(2)[:2]  # type: ignore[attr-defined]
    return gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" or path.suffix == ".gz" else raw


def _chunks(file: Any, raw: IO[bytes], progress: Callable[[int], None] | None) -> Iterator[bytes]:
    before = 0
    while chunk := file.read1(_CHUNK):
        yield chunk
        if progress is not None and raw.seekable():
            progress(raw.tell() - before)
            before = raw.tell()


def _look(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a file, two lines of it if they are not too long, and the whole file."""
    head = next(chunks, b"").removeprefix(codecs.BOM_UTF8)
    while head.strip().count(b"\n") < 2 and len(head) < _HEAD and (chunk := next(chunks, b"")):
        head += chunk

    def whole() -> Iterator[bytes]:
        yield head
        yield from chunks

    return head, whole()


def _is_document(head: bytes) -> bool:
    """Whether a file is one JSON document, and not lines: it begins like JSON, and its first line does not end it."""
    text = head.lstrip()
    start = text[:1000].decode("utf-8", "replace")
    if start.startswith('"') or not _JSON.match(start) or _DMS.match(start):
        return False
    first, _, rest = text.partition(b"\n")
    rest = rest.strip()
    try:
        data = json.loads(first)
    except (ValueError, RecursionError):
        # a document over several lines or one very long one, if not a broken line alone or before others like it
        is_line = rest.startswith(b"{") if rest else len(head) < _HEAD
        return not (text.startswith(b"{") and is_line)
    return not rest and is_container(data)


def _lines(chunks: Iterator[bytes]) -> Iterator[Entry]:
    number, parts, size = 0, list[bytes](), 0

    def entry(line: bytes) -> Entry | None:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            return Entry(f"line {number}", ValueError(f"this is no UTF-8 text: {error}"), True)
        return Entry(f"line {number}", text, True) if text.strip() else None

    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            number += 1
            if found := entry(b"".join([*parts, end])):
                yield found
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_ENTRY:
            raise ValueError(f"line {number + 1}: longer than {MAX_ENTRY} bytes: this is no file of routes")
    number += 1
    if found := entry(b"".join(parts)):
        yield found


def _line_routes(line: str) -> list[Route]:
    text = line.strip()
    if _DMS.match(text):
        text = _REPR_SPACES.sub("", text)
        return [Route.from_string(text, max_length=len(text))]
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
    is_list = isinstance(inner, list) and all(isinstance(item, dict | list | str) for item in inner)
    if (
        is_list
        or (isinstance(inner, dict) and not is_plain(inner))
        or (isinstance(inner, str) and inner.startswith("{'smiles"))
    ):
        return list(routes_in(inner))
    return [Route.from_dict(inner)]

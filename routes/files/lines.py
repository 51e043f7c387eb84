"""The bytes and lines of a file, gzipped or not, read as a stream so that memory does not grow with the file."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

# gzip raises these for a truncated file, for a file that is not gzip, and for damaged contents.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
# The longest line, in bytes. The limit rejects a file without line breaks before it fills memory.
MAX_LINE = 1 << 26
# The number of bytes that are read at once, and the number of bytes in which the first lines must end.
_CHUNK, HEAD = 1 << 16, 1 << 20


class TooLong(ValueError):
    """A part of a file is longer than any molecule or route."""


def begin(raw: Any, name: str, progress: Callable[[int], None] | None = None) -> tuple[bytes, Iterator[bytes]]:
    """
    Begin to read a file.

    Args:
        raw (`IO[bytes]`):
            The file.
        name (`str`):
            Its name. The file is read as gzip if the name ends in `.gz` or the first bytes are those of gzip.
        progress (`Callable[[int], None]`, *optional*):
            A function that is called with the number of bytes that were read since the last call.

    Returns:
        `tuple[bytes, Iterator[bytes]]`: the beginning, which contains two lines if they are not too long, and the
        whole contents in pieces. Both lack the byte order mark. If lines end in `\\r` alone, it becomes `\\n`.
    """
    raw = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    is_gzip = raw.peek(2)[:2] == b"\x1f\x8b" or name.endswith(".gz")
    chunks = _chunks(gzip.GzipFile(fileobj=raw) if is_gzip else raw, raw, progress)
    head = next(chunks, b"").removeprefix(codecs.BOM_UTF8)
    while head.strip().count(b"\n") < 2 and len(head) < HEAD and (chunk := next(chunks, b"")):
        head += chunk
    is_carriage_return = b"\n" not in head and b"\r" in head

    def whole() -> Iterator[bytes]:
        yield head
        for chunk in chunks:
            yield chunk.replace(b"\r", b"\n") if is_carriage_return else chunk

    if is_carriage_return:
        head = head.replace(b"\r", b"\n")
    return head, whole()


def _chunks(file: Any, raw: IO[bytes], progress: Callable[[int], None] | None) -> Iterator[bytes]:
    before = 0
    while chunk := file.read1(_CHUNK):
        yield chunk
        if progress is not None and raw.seekable():
            progress(raw.tell() - before)
            before = raw.tell()


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines without their line ends. Only `\\n` ends a line, because texts may contain other line ends.

    Raises:
        TooLong: a line is longer than `MAX_LINE`.
    """
    parts, size, number = list[bytes](), 0, 1
    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end])
            parts, size, number = [], 0, number + 1
        parts.append(rest)
        size += len(rest)
        if size > MAX_LINE:
            raise TooLong(
                f"line {number} is longer than {MAX_LINE} bytes, so this is not a file of molecules or routes"
            )
    yield b"".join(parts)

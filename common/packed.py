"""Limits on what a packed file unpacks to and on the lines of a text, so that a small file cannot fill the memory."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from typing import IO, Any

# The environment variable with the MiB that a line may have, and that any packed file may unpack to, and its default.
VARIABLE, _DEFAULT = "WEFT_MAX_TEXT_MIB", "64"
# Larger packed files may unpack to this many times their size. Data unpack to far less, a gzip bomb to 1,000 times.
_RATIO = 200
# The first bytes of packed files, with the names that fsspec has for their compressions.
_FIRST = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bz2", b"PK\x03\x04": "zip"}
_CHUNK = 1 << 20


def most_text() -> int:
    """Return the largest number of characters of a line, and of bytes that any packed file may unpack to."""
    size = os.environ.get(VARIABLE) or _DEFAULT
    if not size.isdecimal() or size == "0":
        raise ValueError(f"{VARIABLE}={size} is not allowed: give a whole number of MiB, such as {_DEFAULT}.")
    return int(size) << 20


def _too_large(name: str, what: str) -> ValueError:
    return ValueError(f"{name} {what}. Set the environment variable {VARIABLE} to more MiB if the file is right.")


def check_unpacked(unpacked: int, packed: int, name: str) -> None:
    """Raise a ValueError for numbers of unpacked and packed bytes that no file of data has."""
    if unpacked > max(most_text(), _RATIO * packed):
        what = f"unpacks to more than {most_text() >> 20} MiB and {_RATIO} times its size, which is not plausible"
        raise _too_large(name, what)


def unpacked(file: Any, name: str, unpack: Callable[[Any], Any]) -> io.BufferedReader:
    """Return what a packed file contains, which raises a ValueError while it is read if that is too much.

    Args:
        file: the packed file.
        name: its name.
        unpack: opens the packed file that it is given.
    """
    packed = _Counted(file)
    content = unpack(io.BufferedReader(packed))
    return io.BufferedReader(_Counted(content, lambda count: check_unpacked(count, packed.count, name)))


class _Counted(io.RawIOBase):
    """A stream that counts the bytes that are read, and checks their number."""

    def __init__(self, stream: Any, check: Callable[[int], None] = lambda count: None):
        self.count, self._stream, self._check = 0, stream, check

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        self._check(self.count)
        return len(data)


def check_file(path: str) -> None:
    """Read a packed file to its end, before another library unpacks it without a limit.

    Raises:
        ValueError: it unpacks to too much. Damaged files are left to their readers, which say what is wrong.
    """
    from fsspec.compression import compr  # slow to import

    if not os.path.isfile(path):  # such as a pipe, which can be read once
        return
    with open(path, "rb") as file:
        first = file.peek(6)[:6]
        kind = next((kind for start, kind in _FIRST.items() if first.startswith(start)), None)
        try:
            if kind == "zip":
                sizes = [member.file_size for member in zipfile.ZipFile(file).infolist()]
                check_unpacked(sum(sizes), os.path.getsize(path), path)
            elif kind in compr:
                stream = unpacked(file, path, compr[kind])
                while stream.read(_CHUNK):
                    pass
        except ValueError:
            raise
        except Exception:  # each compression has errors of its own
            return


class BoundedText(io.TextIOWrapper):
    """A text whose lines have at most [`most_text`] characters when it is iterated.

    Args:
        file: the bytes of the text.
        title: the name of the file.
        **options: as in `io.TextIOWrapper`.
    """

    def __init__(self, file: IO[bytes], title: str, **options: Any):
        super().__init__(file, **options)
        self._title, self._most = title, most_text()

    def __next__(self) -> str:  # type: ignore[override]
        line = self.readline(self._most + 1)
        if len(line) > self._most:
            raise _too_large(self._title, f"has a line of more than {self._most >> 20} MiB")
        if not line:
            raise StopIteration
        return line

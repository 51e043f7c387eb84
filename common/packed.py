"""Limits on what a packed file unpacks to and on the lines of a text, so that a small file cannot fill the memory."""

from __future__ import annotations

import io
import os
import re
from typing import IO, Any

# The environment variable with the MiB that a line may have, and that any packed file may unpack to, and its default.
VARIABLE, _DEFAULT = "WEFT_MAX_TEXT_MIB", "64"
# Larger packed files may unpack to this many times their size. Data unpack to far less, a gzip bomb to 1,000 times.
_RATIO = 200
# The first bytes and the endings of the names of packed files, with the names that fsspec has for their compressions.
_FIRST = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<xz>\xfd7zXZ)|(?P<bz2>BZh[1-9]1AY&SY)")
_ENDINGS = {".gz": "gzip", ".zst": "zstd", ".xz": "xz", ".bz2": "bz2", ".zip": "zip"}


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


def unpacked(file: IO[bytes], name: str) -> Any:
    """Return what a file contains, packed or not. Its first bytes decide, or else the ending of its name.

    While it is read, a ValueError is raised if it unpacks to too much, is damaged or is cut off.

    Args:
        file: the file.
        name: its name.

    Raises:
        ValueError: the package for its compression is not installed.
    """
    ahead: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
    match = _FIRST.match(ahead.peek(10))
    kind = match.lastgroup if match else _ENDINGS.get(os.path.splitext(name)[1].lower())
    if kind is None:
        return ahead
    from fsspec.compression import compr  # slow to import

    if kind not in compr:
        raise ValueError(f"{name} is compressed by Zstandard, which needs a package: pip install zstandard")
    source = _Counted(ahead, name)
    if kind == "zip":  # which is not read from its beginning
        source.count = os.fstat(ahead.fileno()).st_size
    try:
        content = compr[kind](ahead if kind == "zip" else io.BufferedReader(source))
    except Exception as error:  # a zip file is read when it is opened
        raise _damaged(name, error) from error
    return io.BufferedReader(_Counted(content, name, source))


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is damaged or cut off. Download or copy it again: {error}")


class _Counted(io.RawIOBase):
    """A stream that counts the bytes that are read, and limits those that are unpacked from another."""

    def __init__(self, stream: Any, name: str, packed: _Counted | None = None):
        self.count, self._stream, self._name, self._packed = 0, stream, name, packed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except Exception as error:  # each compression has errors of its own
            if self._packed is None or isinstance(error, MemoryError) or getattr(error, "errno", None):
                raise
            raise _damaged(self._name, error) from error
        buffer[: len(data)] = data
        self.count += len(data)
        if self._packed is not None:
            check_unpacked(self.count, self._packed.count, self._name)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


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

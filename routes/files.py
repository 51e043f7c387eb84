"""Route files: one JSON object a line, optionally gzipped, read as a stream and written atomically."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from .tree import Route

# What gzip raises for a truncated file, for a file that is none, and for damaged contents.
_BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def read_routes(path: str | os.PathLike[str]) -> Iterator[Route]:
    """Read routes line by line; the file is opened at the first `next`.

    Args:
        path: a JSON Lines file, gzipped if the name ends in `.gz`. A line is `{"route": {"smiles": ...}}`, where
            further fields are ignored, or the bare `{"smiles": ...}`; blank lines are skipped.

    Yields:
        One route a line.

    Raises:
        ValueError: a line is no JSON or no route, or the file is no gzip or UTF-8; the message names file and line.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    number = 0
    try:
        with _open(path, "r") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield _read_line(line)
    except (UnicodeDecodeError, *_BROKEN_GZIP) as error:
        # What the decoder could not read stands after the last line that came out whole.
        raise ValueError(f"{path}, line {number + 1}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


def write_routes(path: str | os.PathLike[str], routes: Iterable[Route]) -> int:
    """Write one `{"route": ...}` a line, atomically: readers see the old file or the whole new one.

    Args:
        path: the file to write, gzipped if the name ends in `.gz`; its folder must exist.
        routes: what to write; consumed as a stream.

    Returns:
        Number of routes written.

    Raises:
        OSError: the file cannot be written. Whatever goes wrong, also in `routes`, an existing file stays as it was.
    """
    path = Path(path)
    # In the same folder, since os.replace is atomic only within one file system.
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    count = 0
    try:
        with _open(temporary, "w") as file:
            for route in routes:
                file.write(json.dumps({"route": route.to_dict()}, separators=(",", ":")) + "\n")
                count += 1
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    return count


def _open(path: Path, mode: str) -> IO[str]:
    opener: Callable[..., IO[str]] = gzip.open if path.suffix == ".gz" else open
    return opener(path, mode + "t", encoding="utf-8", newline="\n")


def _read_line(line: str) -> Route:
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return Route.from_dict(data["route"] if isinstance(data, dict) and "route" in data else data)

"""Atomic writing: a file or a folder appears under its name only when it is complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | os.PathLike[str], staging: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield a temporary path with the same suffix to write to, and rename it to `path` when the block ends.

    Readers see the old file or the complete new one. If the block raises an error, the old file stays.

    Args:
        path: the file.
        staging: the folder of the temporary file, on the same file system. Defaults to the folder of `path`.

    Raises:
        OSError: the temporary file cannot be renamed.
    """
    path = Path(path)
    # os.replace is atomic only within one file system
    temporary = Path(path.parent if staging is None else staging, f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if str(error.filename) == str(temporary):  # the caller knows nothing of this name
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def partial_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Yield a text file to write to. It is called `path` with `.part` behind it until the block ends.

    When the block is cut short, what was written stays under that name: it may be the work of hours.

    Raises:
        OSError: the file cannot be written, or cannot be renamed.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        yield file
    os.replace(part, path)


def complete_lines(path: str | os.PathLike[str]) -> int:
    """Count the lines of a file that were written to their end, and take off what is left of one that was cut.

    Args:
        path: the file. One that does not exist has no lines.

    Raises:
        OSError: the file cannot be read or written.
    """
    path = Path(path)
    if not path.exists():
        return 0
    count, end = 0, 0
    with path.open("rb+") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
        stream.truncate(end)
    return count


def open_lines(path: str | os.PathLike[str], *, append: bool = False) -> IO[str]:
    """Open a file to write lines to, or to go on behind its last line.

    The end of a line is one character everywhere: that is how [`complete_lines`] counts them.

    Raises:
        OSError: the file cannot be written.
    """
    return Path(path).open("a" if append else "w", encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(folder: str | os.PathLike[str], *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to write into, and rename it to `folder` when the block ends. An error removes it.

    Args:
        folder: its name.
        replace: whether the new folder takes the place of one that has this name and is not empty.

    Raises:
        ValueError: `folder` is a file, or is not empty, and `replace` is False.
    """
    folder = Path(folder)
    is_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_there and not replace:
        raise ValueError(f"{folder} exists and is not empty: choose another output folder.")
    staging = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    staging.mkdir(parents=True)
    try:
        yield staging
        if is_there:
            os.replace(folder, old)
        os.replace(staging, folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_json(path: str | os.PathLike[str], data: Any, **settings: Any) -> None:
    """Write data as indented JSON, atomically.

    Args:
        path: the file.
        data: the data.
        settings: further arguments of `json.dumps`.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, **settings) + "\n", encoding="utf-8")

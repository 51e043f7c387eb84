"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: str | os.PathLike[str], staging: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A name to write to, of the same ending, which becomes `path` when the block ends.

    Readers see the old file or the whole new one; whatever goes wrong in the block, the old one stays as it was.

    Args:
        path: the file.
        staging: a folder of the same file system to write in. Default: the file's own.

    Raises:
        OSError: the file cannot be put in its place.
    """
    path = Path(path)
    # os.replace is atomic only within one file system
    temporary = Path(path.parent if staging is None else staging, f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(folder: str | os.PathLike[str], *, replace: bool = False) -> Iterator[Path]:
    """A folder to write into, which gets its name when everything is written; an error leaves nothing behind.

    Args:
        folder: its name.
        replace: a folder of this name, and what is in it, makes way for the whole new one.

    Raises:
        ValueError: the folder exists and is not empty, or is a file, and is not to be replaced.
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
    """Write data as indented JSON, whole or not at all.

    Args:
        settings: further arguments of `json.dumps`.
    """
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, **settings) + "\n", encoding="utf-8")

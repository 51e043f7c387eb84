"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name to write to, of the same ending, which becomes `path` when the block ends.

    Readers see the old file or the whole new one; whatever goes wrong in the block, the old one stays as it was.

    Raises:
        OSError: the file cannot be put in its place.
    """
    path = Path(path)
    # in the same folder, since os.replace is atomic only within one file system
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], data: Any, **settings: Any) -> None:
    """Write data as indented JSON, whole or not at all.

    Args:
        settings: further arguments of `json.dumps`.
    """
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, **settings) + "\n", encoding="utf-8")

"""The folders in which Weft keeps what it can make again."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder `weftformer/NAME` in the user's cache, which need not exist.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weftformer" / name

"""What a model does, on a page in the browser: routes, texts, and what it looks at. Needs the extra `demo`.

Nothing is imported before it is asked for: the folder of a Space is written without a browser in sight.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import build_demo
    from .attention import Look, look
    from .space import write_space
    from .style import LAUNCH

_MODULES = {"LAUNCH": "style", "Look": "attention", "build_demo": "app", "look": "attention", "write_space": "space"}

__all__ = ["LAUNCH", "Look", "build_demo", "look", "write_space"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)

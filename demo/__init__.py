"""A web page to try models: plan routes and generate texts. Needs the extra `app`.

Modules are imported at their first use: writing the folder of a Space does not need gradio's import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import build_demo
    from .space import write_space
    from .style import LAUNCH

_MODULES = {"LAUNCH": "style", "build_demo": "app", "write_space": "space"}

__all__ = ["LAUNCH", "build_demo", "write_space"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)

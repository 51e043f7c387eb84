"""Models over HTTP, with the extra `serve`: queues, limits, errors, pages, and the endpoints of texts.

The names are imported on first use, so that commands can read the limits without torch and FastAPI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .limits import Limits

if TYPE_CHECKING:
    from .app import build_app, load_task
    from .translate import TranslateTask

_MODULES = {"build_app": "app", "load_task": "app", "TranslateTask": "translate"}

__all__ = ["Limits", "TranslateTask", "build_app", "load_task"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)

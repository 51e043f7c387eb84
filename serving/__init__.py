"""Batched requests to a loaded model, for the commands and the server, which needs the extra `serve`.

The names are imported on first use, so that commands can read the limits without torch and FastAPI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .limits import Limits

if TYPE_CHECKING:
    from .app import build_app
    from .tasks import load_task
    from .texts import TextTask

_MODULES = {"build_app": "app", "load_task": "tasks", "TextTask": "texts"}

__all__ = ["Limits", "TextTask", "build_app", "load_task"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)

"""An HTTP server for models, with limits on size, number and time. It needs the extra `serve`.

`build_app` is imported on first use, so that commands can read the limits without FastAPI.
"""

from typing import TYPE_CHECKING, Any

from .limits import Limits

if TYPE_CHECKING:
    from .app import build_app

__all__ = ["Limits", "build_app"]


def __getattr__(name: str) -> Any:
    if name != "build_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .app import build_app

    return build_app

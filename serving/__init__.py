"""Models over HTTP, with the extra `serve`: queues, limits, errors, pages, and the endpoints of texts.

The names are imported on first use, so that commands can read the limits without torch and FastAPI.
"""

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names
from .limits import Limits

if TYPE_CHECKING:
    from .app import build_app, load_task
    from .translate import TranslateTask

__getattr__, _names = lazy_names(__package__, __file__)
__all__ = ["Limits", *_names]

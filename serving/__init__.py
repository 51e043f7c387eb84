"""Models behind HTTP: waiting requests computed together, bounded in size, number and time. Needs the extra `serve`."""

from .app import build_app
from .limits import Limits
from .tasks import RouteTask, TextTask, load_task

__all__ = ["Limits", "RouteTask", "TextTask", "build_app", "load_task"]

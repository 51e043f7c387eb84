"""Models behind HTTP: waiting requests computed together, bounded in size, number and time. Needs the extra `serve`."""

from .app import build_app
from .limits import Limits

__all__ = ["Limits", "build_app"]

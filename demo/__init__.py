"""A web page to try models: plan routes and generate texts. Needs the extra `app`."""

from .app import build_demo
from .style import LAUNCH

__all__ = ["LAUNCH", "build_demo"]

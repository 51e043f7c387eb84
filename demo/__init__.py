"""What a model does, on a page in the browser: routes, texts, and what it looks at. Needs the extra `demo`."""

from .app import build_demo
from .attention import Look, look
from .style import LAUNCH

__all__ = ["LAUNCH", "Look", "build_demo", "look"]

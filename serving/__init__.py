"""An HTTP server for models. It computes waiting requests as batches, with limits on size, number and time.

It needs the extra `serve`.
"""

from .app import build_app
from .limits import Limits

__all__ = ["Limits", "build_app"]

"""Requests in batches against a loaded model: what the server, the page in the browser and commands share."""

from .tasks import RouteTask, TextTask, load_task

__all__ = ["RouteTask", "TextTask", "load_task"]

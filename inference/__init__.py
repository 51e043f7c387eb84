"""Batched requests to a loaded model, for the server, the page in the browser and the commands."""

from .tasks import RouteTask, TextTask, load_task

__all__ = ["RouteTask", "TextTask", "load_task"]

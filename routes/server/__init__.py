"""The endpoints of routes: POST /plan and /expand, and the page on which a route is built."""

from .planning import RouteTask

load_task = RouteTask.load

__all__ = ["RouteTask", "load_task"]

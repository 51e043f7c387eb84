"""Routes of any program's files, read and written."""

from .streams import FORMS, read_routes, write_routes

__all__ = ["FORMS", "read_routes", "write_routes"]

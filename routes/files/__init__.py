"""Reading and writing route files, in the forms of several programs."""

from .streams import FORMS, read_routes, write_routes

__all__ = ["FORMS", "read_routes", "write_routes"]

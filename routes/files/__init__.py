"""Reading and writing route files, in the forms of several programs."""

from .streams import read_canonical, read_routes, write_routes

__all__ = ["read_canonical", "read_routes", "write_routes"]

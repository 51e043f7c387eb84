"""Pictures of routes, and pages that show them."""

from ..tree import Route


def _repr_svg_(route: Route) -> str | None:
    """Return the picture that notebooks show, or None if RDKit is not installed."""
    try:
        from .svg import route_svg
    except ImportError:
        return None
    return route_svg(route)


Route._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]

"""Routes as pictures and pages."""

from ..tree import Route


def _repr_svg_(route: Route) -> str | None:
    """The picture that notebooks show, where RDKit is installed."""
    try:
        from .svg import route_svg
    except ImportError:
        return None
    return route_svg(route)


Route._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]

"""Pages that show routes, and what notebooks show."""

from html import escape

from ..plans import Candidate, Plan
from ..tree import Route


def _repr_svg_(route: Route) -> str | None:
    """Return the picture that notebooks show, or None if RDKit is not installed."""
    try:
        from ..drawing.svg import route_svg
    except ImportError:
        return None
    return route_svg(route)


def _repr_html_(plan: Plan) -> str | None:
    """Return the page of the routes for notebooks, or None if a library for it is not installed. It has a frame, so
    that its style and its names are not those of other cells.
    """
    try:
        from .page import routes_page
    except ImportError:
        return None
    page = escape(routes_page([plan]))
    return f'<iframe title="Routes" width="100%" height="720" frameborder="0" srcdoc="{page}"></iframe>'


def _repr_html_of_one(candidate: Candidate) -> str | None:
    """Return the route with its picture for notebooks, or None if it is not a route or a library is not installed."""
    return None if candidate.route is None else _repr_html_(Plan(candidate.route.smiles, [candidate]))


# set here, because the packages below do not import this one
Route._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]
Plan._repr_html_ = _repr_html_  # type: ignore[attr-defined]
Candidate._repr_html_ = _repr_html_of_one  # type: ignore[attr-defined]

"""Pages that show routes, and what notebooks show."""

from ..plans import Candidate, Plan
from ..tree import Route

# The number of routes of a plan that a notebook shows.
_SHOWN = 5


def _repr_svg_(route: Route) -> str | None:
    """Return the picture that notebooks show, or None if RDKit is not installed."""
    try:
        from ..drawing.svg import route_svg
    except ImportError:
        return None
    return route_svg(route)


def _repr_html_(plan: Plan) -> str | None:
    """Return the best routes with their pictures for notebooks, or None if a library for them is not installed."""
    try:
        from .page import NOTEBOOK_STYLE, plan_html

        return NOTEBOOK_STYLE + plan_html(plan, _SHOWN)
    except ImportError:
        return None


def _repr_html_of_one(candidate: Candidate) -> str | None:
    """Return the route with its picture for notebooks, or None if it is not a route or a library is not installed."""
    return None if candidate.route is None else _repr_html_(Plan(candidate.route.smiles, [candidate]))


# set here, because the packages below do not import this one
Route._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]
Plan._repr_html_ = _repr_html_  # type: ignore[attr-defined]
Candidate._repr_html_ = _repr_html_of_one  # type: ignore[attr-defined]

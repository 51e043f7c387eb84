"""The best routes of one plan as HTML for another page: a notebook, or the page of `weftformer serve`."""

from __future__ import annotations

from markupsafe import Markup

from ..plans import Plan
from .page import templates
from .picture import route_picture
from .svg import picture_svg

# Pages with their own style sheet have more rules.
NOTEBOOK_STYLE = """<style>
.weft-routes details { margin-top: 8px; } .weft-routes summary { display: list-item; cursor: pointer; }
.weft-steps { padding-left: 0; list-style: none; } .weft-steps .kind { font-weight: 600; }
.weft-routes summary > *, .weft-steps span { margin-right: 10px; }
.weft-view { overflow-x: auto; }
</style>"""


def plan_html(plan: Plan, most: int = 10) -> str:
    """
    Draw the distinct routes of a plan, best first, each with its picture and the judgement of its steps.

    Only the first is expanded.

    Args:
        plan ([`Plan`]):
            The plan.
        most (`int`, *optional*, defaults to 10):
            The largest number of routes to draw.

    Returns:
        `str`: HTML elements without a style sheet.
    """
    shown = []
    for candidate in plan.distinct[:most]:
        assert candidate.route is not None  # `Plan.distinct` contains only candidates with a route
        picture = route_picture(candidate.route, candidate.missing)
        shown.append((candidate, Markup(picture_svg(picture)), f"{picture.width:.0f}"))
    return templates().get_template("plan.html").render(plan=plan, shown=shown)

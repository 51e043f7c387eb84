"""One HTML page with the routes of many targets, as a single file that needs neither a server nor a network."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...common.whole_files import whole_file
from ..molecules import canonical_smiles
from ..plans import Candidate, Plan
from .depiction import depict
from .picture import LOOKS
from .svg import route_svg

_HERE = Path(__file__).parent


def routes_page(plans: Sequence[Plan], *, title: str = "Synthesis routes") -> str:
    """
    Write the distinct routes of each target, best first, as an HTML page to read, print and share.

    The first route of each target is open. A click or a key opens the others. Candidates that are not routes are
    listed with the reason. Readers can zoom and move the pictures, and copy the SMILES of every molecule. Without
    scripts the page is still readable, but without zoom. The page loads nothing from outside, and its content security
    policy forbids it.

    Args:
        plans (`Sequence[Plan]`):
            The result of `RoutePlanner.plan`, or of `Plan.from_dict` for a file of `weftformer plan --json`.
        title (`str`, *optional*, defaults to `"Synthesis routes"`):
            The heading of the page.

    Returns:
        `str`: the whole HTML document.
    """
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    # the policy allows the style and the script by their hashes, so that text from a model cannot add others
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    shared: dict[str, str] = {}
    sections = [_section(plan, shared) for plan in plans]
    purchasable = [section.purchasable for section in sections if section.purchasable is not None]
    template = _templates().get_template("page.html")
    return template.render(
        title=title,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        purchasable=sum(purchasable) if purchasable else None,
        shared=shared,
        looks=LOOKS,
    )


def save_page(plans: Sequence[Plan], path: str | os.PathLike[str], *, title: str = "Synthesis routes") -> None:
    """
    Write `routes_page` to a file atomically: readers see the old page or the complete new one.

    Args:
        plans (`Sequence[Plan]`):
            As for `routes_page`.
        path (`str` or `os.PathLike`):
            The file.
        title (`str`, *optional*, defaults to `"Synthesis routes"`):
            As for `routes_page`.

    Raises:
        OSError: the file cannot be written.
    """
    page = routes_page(plans, title=title)
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")  # the policy has a hash of the scripts' bytes


@dataclass(frozen=True)
class _Portrait:
    """The drawing of the target alone: its name among the shared drawings, and its size."""

    name: str
    width: str
    height: str


@dataclass(frozen=True)
class _DrawnRoute:
    candidate: Candidate
    leaves: list[str]
    svg: Markup


@dataclass(frozen=True)
class _Section:
    """The part of the page about one target. `purchasable` is the number of routes that the stock allows, None if unknown."""

    plan: Plan
    smiles: str
    portrait: _Portrait | None
    routes: list[_DrawnRoute]
    purchasable: int | None


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["score"] = _score
    environment.filters["is_nan"] = math.isnan
    return environment


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _score(score: float) -> str:
    return f"score {score:.2f}".replace("-", "\N{MINUS SIGN}")


def _section(plan: Plan, shared: dict[str, str]) -> _Section:
    try:
        smiles = canonical_smiles(plan.target)
    except ValueError:
        smiles = plan.target
    known = [candidate.purchasable for candidate in plan.distinct if candidate.purchasable is not None]
    portrait = _portrait(smiles, shared)
    routes = [_drawn(candidate, shared) for candidate in plan.distinct]
    return _Section(plan, smiles, portrait, routes, sum(known) if known else None)


def _portrait(smiles: str, shared: dict[str, str]) -> _Portrait | None:
    """Return the drawing of the target, or None if it cannot be drawn."""
    try:
        drawn = depict(smiles)
    except ValueError:
        return None
    if drawn.molecule is None:
        return None
    return _Portrait(shared.setdefault(drawn.svg(), f"m{len(shared)}"), f"{drawn.width:g}", f"{drawn.height:g}")


def _drawn(candidate: Candidate, shared: dict[str, str]) -> _DrawnRoute:
    route = candidate.route
    assert route is not None  # `Plan.distinct` contains only candidates with a route
    svg = route_svg(route, missing=candidate.missing, interactive=True, shared=shared)
    return _DrawnRoute(candidate, list(dict.fromkeys(route.leaves())), Markup(svg))

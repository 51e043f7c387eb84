"""One HTML page for the routes of many targets: a file that needs nothing else, neither server nor network."""

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
    """The distinct routes of each target, best first, as a page to read, print and pass on.

    The first route of a target stands open, the others open with a click or the keyboard; candidates that are no routes
    are named with their reason. Pictures can be zoomed and moved, and the SMILES of every molecule copied. The page asks
    for nothing outside itself and its policy forbids it to; it can be read, though not zoomed, without scripts.

    Args:
        plans: what `RoutePlanner.plan` gives, or `Plan.from_dict` from the file of `weftformer plan --json`.
        title: its heading.

    Returns:
        The whole HTML document.
    """
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    # by their hashes, so that no text of a model can bring a style or a script of its own
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    shared: dict[str, str] = {}
    sections = [_section(plan, shared) for plan in plans]
    solved = [section.solved for section in sections if section.solved is not None]
    template = _templates().get_template("page.html")
    return template.render(
        title=title,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        solved=sum(solved) if solved else None,
        shared=shared,
        looks=LOOKS,
    )


def save_page(plans: Sequence[Plan], path: str | os.PathLike[str], *, title: str = "Synthesis routes") -> None:
    """Write `routes_page` to a file, atomically: readers see the old page or the whole new one.

    Raises:
        OSError: the file cannot be written.
    """
    page = routes_page(plans, title=title)
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")  # its policy knows the bytes of its scripts


@dataclass(frozen=True)
class _Portrait:
    """The molecule alone: its name among the shared drawings, and its size."""

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
    """What the page shows of a target; `solved` counts the routes that the stock allows, None without a stock."""

    plan: Plan
    smiles: str
    portrait: _Portrait | None
    routes: list[_DrawnRoute]
    solved: int | None


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
    known = [candidate.solved for candidate in plan.distinct if candidate.solved is not None]
    portrait = _portrait(smiles, shared)
    routes = [_drawn(candidate, shared) for candidate in plan.distinct]
    return _Section(plan, smiles, portrait, routes, sum(known) if known else None)


def _portrait(smiles: str, shared: dict[str, str]) -> _Portrait | None:
    """None for a text that no SMILES can be."""
    try:
        drawn = depict(smiles)
    except ValueError:
        return None
    if drawn.molecule is None:
        return None
    return _Portrait(shared.setdefault(drawn.svg(), f"m{len(shared)}"), f"{drawn.width:g}", f"{drawn.height:g}")


def _drawn(candidate: Candidate, shared: dict[str, str]) -> _DrawnRoute:
    route = candidate.route
    assert route is not None  # `Plan.distinct` holds nothing else
    svg = route_svg(route, missing=candidate.missing, interactive=True, shared=shared)
    return _DrawnRoute(candidate, list(dict.fromkeys(route.leaves())), Markup(svg))

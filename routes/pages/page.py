"""Routes as HTML: one page with those of many targets, as a single file that needs neither a server nor a network, and
the routes of plans for the page of `weftformer serve`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from ...common import html
from ...common.atomic import atomic_write
from ...common.words import counted
from ..chemistry.molecules import canonical_or_given
from ..drawing.depiction import Depiction, depict, depict_route
from ..drawing.layout import nodes
from ..drawing.picture import LOOKS, Picture, route_picture
from ..drawing.svg import picture_svg
from ..family import __version__
from ..plans import IDEAS, Candidate, Plan
from ..stock.offers import Offer
from ..tree import Route

_HERE = Path(__file__).parent
# The largest width and height of a reactant beside the name of the last reaction.
_THUMBNAIL = 200.0, 90.0
# What a click on a molecule does on the page on which a route is built.
_SHOW = "Reactions that make"
# US patent numbers are padded with zeros in data sets, but not in the address of the patent's page.
_PATENT = re.compile(r"(?:(US(?:RE|PP|D|H)?)0{0,9}|(EP|WO))(\d{5,}(?:[A-Z]\d?)?)")


def routes_page(
    plans: Sequence[Plan], *, title: str = "Synthesis routes", about: Mapping[str, str] | None = None
) -> str:
    """Write the distinct routes of each target, best first, as an HTML page to read, print and share.

    Routes with the same last reaction share a heading. The first route of each target is open. A click or a key opens
    the others. A list below each picture has the judgement of each step: its name, the recorded reactions with the
    same transformation, and remarks. Candidates that are not routes are listed with the reason. Readers can sort and
    filter the routes, zoom and move the pictures, copy the SMILES of every molecule, and copy or save the list of the
    starting materials of the open routes. Without scripts, the page is still readable, but lacks these functions. The
    page loads nothing from outside, and its content security policy forbids it.

    The ranks on the page count the distinct routes of a target, 1, 2, 3, as `Candidate.rank` does.

    Args:
        plans: the result of `RoutePlanner.plan`, or of `Plan.from_dict` for a file of `weftformer routes plan --json`.
        title: the heading of the page.
        about: the entries of the page's footer, as returned by `shipped.provenance`, before `"made with"` and
            `"date"`, which default to the version of the package and today.

    Returns:
        The whole HTML document.
    """
    style = page_style()
    script = script_of("share", "view", "buy", "page")
    # the policy allows the style and the script by their hashes, so that text from a model cannot add others
    policy = (
        f"default-src 'none'; style-src {html.policy_hash(style)}; script-src {html.policy_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    shared: dict[str, str] = {}
    sections = [_section(number, plan, shared) for number, plan in enumerate(plans, 1)]
    purchasable = [section.purchasable for section in sections if section.purchasable is not None]
    routes = [route for section in sections for route in section.routes]
    about = dict(about or {})
    about.setdefault("made with", f"weftformer {__version__}")
    about.setdefault("date", date.today().isoformat())
    template = templates().get_template("page.html")
    return template.render(
        title=title,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        routes=routes,
        purchasable=sum(purchasable) if purchasable else None,
        needs=_needs(routes),
        counts=sorted({route.route.num_reactions for route in routes}),
        shared=shared,
        looks=LOOKS,
        about=about,
    )


def save_page(
    plans: Sequence[Plan],
    path: str | os.PathLike[str],
    *,
    title: str = "Synthesis routes",
    about: Mapping[str, str] | None = None,
) -> None:
    """Write `routes_page` to a file atomically: readers see the old page or the complete new one.

    Args:
        plans: as for `routes_page`.
        path: the file.
        title: as for `routes_page`.
        about: as for `routes_page`.

    Raises:
        OSError: the file cannot be written.
    """
    page = routes_page(plans, title=title, about=about)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")  # the policy has a hash of the scripts' bytes


def script_of(*modules: str) -> str:
    """Return the script of a page: modules of this folder, each after those that it imports, in one text."""
    text = "\n".join((_HERE / f"{module}.js").read_text(encoding="utf-8") for module in modules)
    return '"use strict";\n(() => {\n' + re.sub(r"^export |^import .*\n", "", text, flags=re.MULTILINE) + "})();\n"


def card_html(candidate: Candidate) -> str:
    """Draw the reactants of a route of one step, with the judgement of the step.

    Args:
        candidate: a reaction of `RoutePlanner.expand`.

    Returns:
        A card for the page on which a route is built.
    """
    route = _DrawnRoute(1, candidate.rank, candidate)
    parts = [(depiction, Markup(depiction.svg())) for depiction in depict_route(route.route)[1:]]
    return templates().get_template("card.html").render(drawn=route, parts=parts, looks=LOOKS, sections=())


def tree_html(candidate: Candidate, have: Sequence[str] = (), forbidden: Sequence[str] = ()) -> str:
    """Draw a route that is being built, with its numbers and what to buy.

    Args:
        candidate: the route.
        have: the user's own molecules.
        forbidden: the molecules and reactions that the user does not want.

    Returns:
        The elements of the page on which a route is built.
    """
    route = _DrawnRoute(1, 1, candidate, Markup(picture_svg(_picture(candidate), _SHOW)))
    values = {"have": have, "forbidden": forbidden, "looks": LOOKS, "sections": ()}
    return templates().get_template("tree.html").render(drawn=route, needs=_needs([route]), **values)


def build_page(*, has_key: bool, has_stock: bool, example: str = "") -> tuple[str, str]:
    """Return the page on which a route is built, and its script.

    Args:
        has_key: whether the server requires a key.
        has_stock: whether it has a stock.
        example: a target that is filled in.
    """
    script = script_of("share", "view", "buy", "session", "server", "build")
    style = page_style("build")
    facts = {"has_key": has_key, "has_stock": has_stock, "example": example}
    return templates().get_template("build.html").render(style=Markup(style), script=Markup(script), **facts), script


def answer_html(plans: Iterable[Plan]) -> str:
    """Draw the routes of each plan as [`routes_page`] does, for the page of the server, with links to that on which
    routes are built.

    Args:
        plans: the plans.

    Returns:
        HTML elements for [`page_style`].
    """
    shared: dict[str, str] = {}
    sections = [_section(number, plan, shared) for number, plan in enumerate(plans, 1)]
    values = {"sections": sections, "shared": shared, "looks": LOOKS, "has_builder": True}
    return templates().get_template("routes.html").render(**values)


@cache
def page_style(*names: str) -> str:
    """Return the style sheet of all pages of routes, and those of this folder with some names."""
    return "\n".join((_HERE / f"{name}.css").read_text(encoding="utf-8") for name in ("page", *names))


def _picture(candidate: Candidate) -> Picture:
    assert candidate.route is not None
    return route_picture(candidate.route, candidate.missing, candidate.steps, candidate.common)


def _build_link(route: Route, at: str = "") -> str:
    """Return the link to the page on which a route is built, with a route and perhaps a molecule to open."""
    session = {"route": route.to_dict()} | ({"at": at} if at else {})
    return f"build#{quote(json.dumps(session, separators=(',', ':')))}"


@dataclass(frozen=True)
class _DrawnRoute:
    """A route with its place on the page: `number` is that of the target, `rank` counts the target's routes.

    `picture` is the SVG.
    """

    number: int
    rank: int
    candidate: Candidate
    picture: str = ""
    evidence: str = "textbook"

    @property
    def route(self) -> Route:
        assert self.candidate.route is not None
        return self.candidate.route

    @property
    def leaves(self) -> list[str]:
        """The distinct starting materials."""
        return list(dict.fromkeys(self.route.leaves()))

    @property
    def id(self) -> str:
        return f"t{self.number}-r{self.rank}"

    @property
    def is_recorded(self) -> bool:
        """Whether there are steps, all of them recorded."""
        return bool(self.candidate.steps and self.candidate.is_recorded)

    def offer(self, leaf: str) -> Offer | None:
        """Return the stock's data about a starting material."""
        return next((offer for offer in self.candidate.offers if offer.smiles == leaf), None)

    def kind(self, leaf: str) -> str:
        """Return the status of a starting material, a key of `LOOKS`."""
        missing = self.candidate.missing
        if missing is None:
            return "unknown"
        return "missing" if leaf in missing else "common" if leaf in self.candidate.common else "in-stock"


class _Group(NamedTuple):
    """The routes of a target with the same last reaction, its name if it has one, and the drawings of its
    reactants.
    """

    name: str | None
    reactants: list[str]
    portraits: list[Depiction]
    routes: list[_DrawnRoute]

    @property
    def scale(self) -> float:
        """The scale at which the largest drawing fits into a line, so that bonds are equally long in all."""
        width, height = _THUMBNAIL
        return min(1.0, *(min(width / part.width, height / part.height) for part in self.portraits))


@dataclass(frozen=True)
class _Section:
    """The part of the page about one target. `purchasable` is the number of routes that the stock allows, None if
    unknown.
    """

    plan: Plan
    smiles: str
    portrait: Depiction | None
    groups: list[_Group]
    purchasable: int | None

    @property
    def first_idea(self) -> _Group | None:
        """The first group whose routes all lack the required evidence."""
        ideas = [candidate.route for candidate in self.plan.ideas]
        return next((group for group in self.groups if all(route.route in ideas for route in group.routes)), None)

    @property
    def routes(self) -> list[_DrawnRoute]:
        return sorted((route for group in self.groups for route in group.routes), key=lambda route: route.rank)


@dataclass
class _Need:
    """A starting material of the routes of a page: its canonical SMILES, its status, the routes that need it, and its
    offer.
    """

    smiles: str
    kind: str
    routes: list[_DrawnRoute]
    offer: Offer | None = None

    @property
    def ordered(self) -> dict[str, str]:
        """The fields of the offer that are known."""
        fields = {} if self.offer is None else asdict(self.offer)
        return {name: str(value) for name, value in fields.items() if name != "smiles" and value is not None}


@cache
def templates() -> Environment:
    """Return the templates of this package."""
    environment = html.templates(_HERE)
    environment.filters |= {"score": _score, "patent": _patent, "is_nan": math.isnan, "is_finite": math.isfinite}
    environment.filters |= {"build_link": _build_link, "build_step_link": lambda at, route: _build_link(route, at)}
    environment.globals |= {"counted": counted, "ideas": IDEAS, "has_builder": False}
    return environment


def _score(score: float) -> str:
    return f"score {score:.2f}".replace("-", "\N{MINUS SIGN}")


def _patent(source: str) -> str | None:
    """Return the address of a recorded reaction's patent, or None if its source is something else.

    Numbers may be padded as in Lowe's data, `US06316445B1`. PaRoutes adds places in the patent after a semicolon.
    """
    match = _PATENT.fullmatch(source.partition(";")[0])
    return match and f"https://patents.google.com/patent/{match[1] or match[2]}{match[3]}/en"


def _section(number: int, plan: Plan, shared: dict[str, str]) -> _Section:
    smiles = canonical_or_given(plan.target)
    purchasable = [candidate.purchasable for candidate in plan.distinct if candidate.purchasable is not None]
    portraits: list[Depiction] = []
    with contextlib.suppress(ValueError):  # the target is not a SMILES
        portraits = _shared([depict(smiles)], shared)
    groups: dict[tuple[str, ...], _Group] = {}
    for rank, (candidate, route) in enumerate(plan.found, 1):
        picture = _picture(candidate)
        key = tuple(sorted(map(canonical_or_given, route.reactants)))
        if key not in groups:
            reactants = [picture.cards[child].depiction for child in nodes(route)[0].children]
            name = candidate.steps[-1].title if candidate.steps else None
            groups[key] = _Group(name, [part.smiles for part in reactants], _shared(reactants, shared), [])
        svg = Markup(picture_svg(picture, action="Copy SMILES", shared=shared))
        groups[key].routes.append(_DrawnRoute(number, rank, candidate, svg, plan.evidence))
    portrait, count = next(iter(portraits), None), sum(purchasable) if purchasable else None
    return _Section(plan, smiles, portrait, list(groups.values()), count)


def _shared(depictions: list[Depiction], shared: dict[str, str]) -> list[Depiction]:
    """Return the drawings of molecules, named in `shared`, or none if one cannot be drawn: that would look like fewer
    molecules.
    """
    drawings = [depiction for depiction in depictions if depiction.molecule is not None]
    for depiction in drawings:
        shared.setdefault(depiction.svg(), f"m{len(shared)}")
    return drawings if len(drawings) == len(depictions) else []


def _needs(routes: Iterable[_DrawnRoute]) -> list[_Need]:
    """Return the starting materials of the routes of a page: the most used first, those not in stock last."""
    needs: dict[str, _Need] = {}
    for route in routes:
        for smiles, leaf in {canonical_or_given(leaf): leaf for leaf in route.leaves}.items():
            need = needs.setdefault(smiles, _Need(smiles, route.kind(leaf), []))
            need.routes.append(route)
            need.offer = need.offer or route.offer(leaf)
            if need.kind == "unknown":  # another target may have been planned with a stock
                need.kind = route.kind(leaf)
    return sorted(needs.values(), key=lambda need: (need.kind == "missing", -len(need.routes)))

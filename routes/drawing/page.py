"""One HTML page for the routes of many targets: a file that needs nothing else, neither server nor network."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ...common.whole_files import whole_file
from ..molecules import canonical_smiles
from ..plans import Candidate, Plan
from .depiction import depict
from .picture import LOOKS
from .svg import route_svg

_HELP = (
    '<span class="keys"><kbd>+</kbd> <kbd>\N{MINUS SIGN}</kbd> or <kbd>Ctrl</kbd> and wheel: zoom. <kbd>0</kbd>: fit. '
    "Drag or arrow keys: move. Click a molecule, or <kbd>Tab</kbd> to it and press <kbd>Enter</kbd>: copy its SMILES."
    '</span><span class="touch">Drag a picture to move it, pinch to zoom, tap a molecule to copy its SMILES.</span>'
)


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
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    script = here.with_name("page.js").read_text(encoding="utf-8")
    # by their hashes, so that no text of a model can bring a style or a script of its own
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    shared: dict[str, str] = {}
    sections = [_target(plan, number, len(plans), shared) for number, plan in enumerate(plans, 1)]
    pieces = "".join(
        f'<g id="{name}" fill="none" stroke-linecap="round" stroke-linejoin="round">{body}</g>\n'
        for body, name in shared.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="weftformer">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="quiet">{_summary(plans)}</p>
<p class="quiet help tools">{_HELP}</p>
{_controls(plans)}
</header>
{_contents(plans)}
<main>
{"".join(sections)}</main>
<svg class="shared" aria-hidden="true" focusable="false"><defs>
{pieces}</defs></svg>
<div id="said" role="status" aria-live="polite"></div>
<script>{script}</script>
</body>
</html>
"""


def save_page(plans: Sequence[Plan], path: str | os.PathLike[str], *, title: str = "Synthesis routes") -> None:
    """Write `routes_page` to a file, atomically: readers see the old page or the whole new one.

    Raises:
        OSError: the file cannot be written.
    """
    page = routes_page(plans, title=title)
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")  # its policy knows the bytes of its scripts


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _score(score: float) -> str:
    return f"score {score:.2f}".replace("-", "\N{MINUS SIGN}")


def _name(plan: Plan) -> str:
    try:
        return canonical_smiles(plan.target)
    except ValueError:
        return plan.target


def _solved(plan: Plan) -> int | None:
    """How many distinct routes of a target can be run with the stock, None without one."""
    known = [candidate.solved for candidate in plan.distinct if candidate.solved is not None]
    return sum(known) if known else None


def _routes_and_solved(plan: Plan) -> str:
    if plan.problem is not None:
        return "not planned"
    solved = _solved(plan)
    return _count(len(plan.distinct), "route") + ("" if solved is None else f", {solved} solved")


def _summary(plans: Sequence[Plan]) -> str:
    parts = [_count(len(plans), "target"), _count(sum(len(plan.distinct) for plan in plans), "distinct route")]
    solved = [count for count in map(_solved, plans) if count is not None]
    parts += [f"{sum(solved)} solved: all starting materials in stock"] if solved else []
    return " · ".join(parts)


def _controls(plans: Sequence[Plan]) -> str:
    if not any(plan.distinct for plan in plans):
        return ""
    only = '<label><input type="checkbox" id="only"> solved routes only</label>'
    return (
        '<div class="row controls tools"><button type="button" data-all="open">Open all routes</button>'
        f'<button type="button" data-all="close">Close all</button>'
        f"{only if any(_solved(plan) for plan in plans) else ''}</div>"
    )


def _contents(plans: Sequence[Plan]) -> str:
    if len(plans) < 2:
        return ""
    items = (
        f'<li><a href="#t{number}">{escape(_name(plan))}</a><span>{_routes_and_solved(plan)}</span></li>\n'
        for number, plan in enumerate(plans, 1)
    )
    return f'<nav aria-label="Targets"><ol>\n{"".join(items)}</ol></nav>'


def _copy_button(smiles: str) -> str:
    # the label names the molecule for those who hear one button after another
    return (
        f'<button type="button" class="tools" data-copy="{escape(smiles)}" aria-label="Copy SMILES {escape(smiles)}">'
        "Copy SMILES</button>"
    )


def _target(plan: Plan, number: int, total: int, shared: dict[str, str]) -> str:
    smiles, distinct = _name(plan), plan.distinct
    heading = "Target" if total == 1 else f"Target {number} of {total}"
    if plan.problem is not None:
        below = f'<p class="alert" role="note"><strong>Not planned.</strong> {escape(plan.problem)}</p>\n'
    elif not distinct:
        below = '<p class="alert" role="note"><strong>No route was found.</strong></p>\n'
    else:
        items = "".join(_route(candidate, number, not i, shared) for i, candidate in enumerate(distinct))
        below = f'<ol class="routes">\n{items}</ol>\n'
    return (
        f'<section class="plan" id="t{number}" aria-labelledby="t{number}-name">\n<div class="about">\n'
        f'{_portrait(smiles, shared)}<div class="words"><h2 id="t{number}-name">{heading}</h2>\n'
        f'<p class="smiles"><code>{escape(smiles)}</code></p>\n'
        f'<div class="row">{_copy_button(smiles)}<span class="quiet">{_routes_and_solved(plan)}</span></div>'
        f"</div>\n</div>\n{below}{_failed(plan)}</section>\n"
    )


def _portrait(smiles: str, shared: dict[str, str]) -> str:
    """The target alone; nothing for a text that no SMILES can be."""
    try:
        drawn = depict(smiles)
    except ValueError:
        return ""
    if drawn.molecule is None:
        return ""
    name = shared.setdefault(drawn.svg(), f"m{len(shared)}")
    return (
        f'<div class="portrait"><svg role="img" aria-label="Structure of {escape(smiles)}" width="{drawn.width:g}" '
        f'height="{drawn.height:g}" viewBox="0 0 {drawn.width:g} {drawn.height:g}"><use href="#{name}"/></svg></div>\n'
    )


def _badge(candidate: Candidate) -> str:
    if candidate.missing is None:
        return '<span class="badge unknown">no stock given</span>'
    if candidate.missing:
        return f'<span class="badge unsolved">✕ {len(candidate.missing)} not in stock</span>'
    return '<span class="badge solved">✓ solved</span>'


def _route(candidate: Candidate, number: int, is_open: bool, shared: dict[str, str]) -> str:
    route = candidate.route
    assert route is not None  # `Plan.distinct` holds nothing else
    leaves = list(dict.fromkeys(route.leaves()))
    facts = [_count(route.num_reactions, "reaction"), f"depth {route.depth}", _count(len(leaves), "starting material")]
    if candidate.n_steps is not None and candidate.n_steps != route.depth:
        facts.append(f"asked for depth {candidate.n_steps}")
    name = f"target {number}, route of rank {candidate.rank}"
    score = f'<span class="score" title="Log-probability under the model">{_score(candidate.score)}</span>'
    if math.isnan(candidate.score):  # recorded, not planned
        score = ""
    svg = route_svg(route, missing=candidate.missing, interactive=True, shared=shared)
    tools = "".join(
        f'<button type="button" data-do="{action}" aria-label="{label}: {name}">{text}</button>{after}'
        for action, label, text, after in (
            ("out", "Zoom out", "\N{MINUS SIGN}", "<output>100 %</output>"),
            ("in", "Zoom in", "+", ""),
            ("fit", "Fit the picture", "Fit", ""),
            ("save", "Save the picture as SVG", "Save SVG", ""),
        )
    )
    return (
        f'<li class="route{" solved" if candidate.solved else ""}" id="t{number}-r{candidate.rank}">'
        f"<details{' open' if is_open else ''}><summary>"
        f'<span class="rank">Rank {candidate.rank}</span>{_badge(candidate)}'
        f"{score}"
        f'<span class="facts">{" · ".join(facts)}</span></summary>\n'
        f'<div class="body"><div class="row tools">{tools}</div>\n'
        f'<div class="view" tabindex="0" role="group" aria-label="Picture of {name}" '
        f'data-name="target-{number}-rank-{candidate.rank}">{svg}</div>\n'
        f'<ul class="needs" aria-label="Starting materials">\n{_needs(candidate, leaves)}</ul></div></details></li>\n'
    )


def _needs(candidate: Candidate, leaves: Sequence[str]) -> str:
    lines = []
    for smiles in leaves:
        kind = "unknown" if candidate.missing is None else "missing" if smiles in candidate.missing else "in-stock"
        mark = {"in-stock": "✓ ", "missing": "✕ ", "unknown": ""}[kind]
        lines.append(
            f'<li class="{kind}"><span class="badge">{mark}{LOOKS[kind].label}</span><code>{escape(smiles)}</code>'
            f"{_copy_button(smiles)}</li>\n"
        )
    return "".join(lines)


def _failed(plan: Plan) -> str:
    if not plan.failed:
        return ""
    items = "".join(
        f"<li><strong>Rank {candidate.rank}</strong>, {_score(candidate.score)}: "
        f"{escape(candidate.problem or 'no route')} <code>{escape(candidate.text)}</code></li>\n"
        for candidate in plan.failed
    )
    words = "candidate is no route" if len(plan.failed) == 1 else "candidates are no routes"
    return (
        f'<details class="failed"><summary><span class="facts">{len(plan.failed)} {words}</span></summary>\n'
        f"<ol>\n{items}</ol></details>\n"
    )

"""The first tab: ranked and drawn routes to a target molecule."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..common.atomic import write_json
from ..inference.tasks import RouteTask
from ..routes import PlanSettings, Stock
from ..routes.drawing.page import save_page
from ..routes.drawing.picture import route_picture
from ..routes.drawing.svg import picture_svg, save_picture
from ..routes.files.entries import BROKEN_GZIP
from ..tokenization import PRODUCT_LENGTH
from .asking import (
    MOST_BEAMS,
    MOST_SECONDS,
    MOST_SMILES,
    MOST_STEPS,
    ONE_AT_A_TIME,
    SECONDS,
    InTime,
    alert,
    check_length,
    reasons,
)

if TYPE_CHECKING:
    from ..routes.plans import Candidate, Plan

# Small molecules, which a route of one or two steps makes.
EXAMPLES = ["O=C(Nc1ccccc1)c1ccc(F)cc1", "CC(=O)NCc1ccccc1", "CCNS(C)(=O)=O", "O=C(O)CNC(=O)c1ccccc1"]
# The number of routes that the tab draws. The page to download has all of them.
_SHOWN = 10
# Bytes of a gzipped stock. `style.py` bounds what is uploaded, and a file can unpack to a thousand times as much.
_MOST_UNPACKED = 100_000_000

_ROUTES = """\
{% set target %}<code>{{ plan.target }}</code>{% endset -%}
{% if not shown -%}
<p class="weft-alert"><b>No route to {{ target }} was found.</b>
Of the best candidate: {{ plan.failed[0].problem or "it is no route" }}</p>
{%- else -%}
<div class="weft-routes">
<p class="weft-quiet">{{ plan.distinct|length }} distinct routes to {{ target }} \
among {{ plan.candidates|length }} candidates
{%- if shown|length < plan.distinct|length %}; the first {{ shown|length }} are shown{% endif %}
{%- if plan.failed %}; {{ plan.failed|length }} are no routes{% endif %}.</p>
{%- for candidate, svg, width in shown %}
<details{{ " open" if loop.first }}><summary><b>Rank {{ loop.index }}</b>
{%- if candidate.missing %}<span class="weft-badge weft-lacking">✕ {{ candidate.missing|length }} not in stock</span>
{%- elif candidate.missing is not none %}<span class="weft-badge weft-purchasable">✓ purchasable</span>
{%- endif %}
{%- if candidate.possible is false %}<span class="weft-badge weft-lacking">✕ impossible: {{ candidate.check.reason }}</span>
{%- endif %}<span title="Log-probability under the model">score {{ candidate.score|score }}</span>\
<span class="weft-quiet">reactions: {{ candidate.route.num_reactions }}, depth: {{ candidate.route.depth }}</span>\
</summary>
<div class="weft-view" tabindex="0" role="group" aria-label="Route of rank {{ loop.index }}" \
style="--width:{{ width }}px">
{{- svg }}</div>
{%- if candidate.missing %}<p class="weft-needs">Not in stock:
{%- for smiles in candidate.missing %} <code>{{ smiles }}</code>{{ "," if not loop.last }}{% endfor %}</p>
{%- endif %}
{%- for offer in candidate.offers %}<p class="weft-needs"><code>{{ offer.smiles }}</code> {{ offer.in_words }}</p>
{%- endfor %}
{%- if candidate.price_in_words %}<p class="weft-needs">Price: {{ candidate.price_in_words }}</p>
{%- endif %}</details>
{%- endfor %}</div>
{%- endif %}"""

_ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined)
_ENVIRONMENT.filters["score"] = lambda score: f"{score:.2f}".replace("-", "\N{MINUS SIGN}")
_TEMPLATE = _ENVIRONMENT.from_string(_ROUTES)


def plan_routes(
    task: RouteTask,
    target: str,
    steps: int = 0,
    beams: int = 10,
    material: str = "",
    stock_file: str | None = None,
    *,
    direct: bool = False,
    seconds: float | None = None,
) -> Plan:
    """Plan routes to one target.

    Args:
        task: the route model.
        target: the SMILES of the target.
        steps: the number of reactions on the longest path of a route. With 0, single steps are searched until everything is in the
            stock, or the numbers 1 to 5 are tried.
        beams: the number of beams.
        material: the SMILES of the starting material, or an empty string.
        stock_file: a file with the molecules in stock (default: the stock of the task, if it has one).
        direct: whether the model writes whole routes, also where there is a stock.
        seconds: when the search ends with what is found (default: as in [`PlanSettings`]).

    Returns:
        The plan.

    Raises:
        ValueError: an argument is not valid. The message names the stock as the user did, without the folder it is in.
        Unwanted: the search took too long. What reading the stock took counts as well.
    """
    check_length("target", target, MOST_SMILES)
    if material.strip():
        check_length("starting material", material, MOST_SMILES)
    in_time = InTime()
    stock = task.stock if stock_file is None else _stock(Path(stock_file), in_time)
    [plan] = task.planner.plan(
        [target.strip()],
        PlanSettings(beams=beams, max_new_tokens=task.max_new_tokens, direct=direct, time_limit=seconds),
        n_steps=steps or None,
        starting_material=material.strip() or None,
        stock=stock,
        progress=False,
        watch=in_time,
    )
    return plan


def _stock(file: Path, in_time: InTime) -> Stock:
    """The stock of an uploaded file. Where it lies meanwhile is no business of the page."""

    def check() -> None:
        if in_time.is_over:
            raise ValueError(f"Reading {file} took longer than {SECONDS:g} s and was stopped: give a shorter list.")

    try:
        _check_unpacked(file)
        return Stock.from_file(file, progress=False, check=check)
    except (OSError, ValueError) as error:
        raise ValueError(str(error).replace(str(file), file.name)) from error


def _check_unpacked(file: Path) -> None:
    if file.suffix != ".gz":
        return
    with contextlib.suppress(*BROKEN_GZIP), gzip.open(file) as unpacked:  # what is broken about it, `Stock` says
        unpacked.seek(_MOST_UNPACKED)
        if unpacked.read(1):
            raise ValueError(f"{file} unpacks to more than {_MOST_UNPACKED / 1e6:g} MB: give a shorter list.")


def routes_html(plan: Plan) -> str:
    """Return the HTML of a plan's best routes, each with its picture. Only the first one is unfolded."""
    return _TEMPLATE.render(plan=plan, shown=[_drawn(candidate) for candidate in plan.distinct[:_SHOWN]])


def _drawn(candidate: Candidate) -> tuple[Candidate, Markup, str]:
    """Return a candidate with the drawing of its route and the width of that."""
    assert candidate.route is not None  # `Plan.distinct` has only candidates with a route
    picture = route_picture(candidate.route, candidate.missing)
    return candidate, Markup(picture_svg(picture)), f"{picture.width:.0f}"


def build_routes_tab(task: RouteTask) -> None:
    """Add the components of the routes tab to the open gradio block, for a route model."""
    folder = tempfile.TemporaryDirectory(prefix="weft-demo-")  # kept alive by `run` below, which uses it

    with gr.Row(equal_height=True):
        target = gr.Textbox(label="Target (SMILES)", max_length=MOST_SMILES, scale=4, elem_id="target")
        go = gr.Button("Plan", variant="primary", scale=1, min_width=100, elem_id="plan")
    choices = [("any, up to 5", 0), *((str(count), count) for count in range(1, MOST_STEPS + 1))]
    with gr.Row():
        steps = gr.Dropdown(choices, value=0, label="Steps", visible=task.takes_steps, elem_id="steps",
                            info="longest path, in reactions", min_width=140)  # fmt: skip
        beams = gr.Slider(1, MOST_BEAMS, value=5, step=1, label="Beams", info="width of the search", min_width=140)
        material = gr.Textbox(
            label="Starting material (SMILES)", info="optional", max_length=MOST_SMILES,
            visible=task.model.config.max_source_positions > PRODUCT_LENGTH, min_width=220, elem_id="material",
        )  # fmt: skip
    with gr.Row():
        direct = gr.Radio(
            [("single steps, until everything is in the stock", False), ("whole routes, as the model writes them", True)],
            value=task.stock is None, label="Search", elem_id="direct", min_width=300,
            info="Without a stock, and with a number of steps or a starting material, routes are whole.",
        )  # fmt: skip
        seconds = gr.Slider(5, MOST_SECONDS, value=MOST_SECONDS, step=5, label="Seconds", elem_id="seconds",
                            info="The search then ends with what is found.", min_width=140)  # fmt: skip
    with gr.Accordion("Stock: what can be bought", open=False):
        stock = gr.File(label="SMILES or InChIKeys, one per line or in a table", type="filepath", elem_id="stock",
                        file_types=[".smi", ".txt", ".csv", ".tsv", ".gz"], height=120)  # fmt: skip
    gr.Examples(EXAMPLES, target)
    drawn = gr.HTML(elem_id="routes", min_height=120, apply_default_css=False)
    with gr.Row():
        files = [gr.DownloadButton(label, visible=False, size="md", min_width=160, elem_id=name)
                 for name, label in (("page", "Page with all routes"), ("json", "JSON"), ("picture", "Best route, SVG"))]  # fmt: skip

    def run(
        target: str, steps: int, beams: int, material: str | None, stock: str | None, direct: bool, seconds: float
    ) -> Iterator[list]:
        try:
            with reasons():
                plan = plan_routes(
                    task, target, steps, int(beams), material or "", stock, direct=direct, seconds=seconds
                )
        except Exception as error:
            # else the routes to another target would stay in their place
            yield [alert(error), *(gr.DownloadButton(value=None, visible=False) for _ in files)]
            raise
        # the file names can be the same each time: gradio copies the files, and one plan is made at a time
        page, data, picture = (Path(folder.name) / f"routes.{ending}" for ending in ("html", "json", "svg"))
        save_page([plan], page)
        write_json(data, [plan.to_dict()])
        for best in plan.distinct[:1]:
            assert best.route is not None
            save_picture(best.route, picture, missing=best.missing)
        ready = (str(page), str(data), str(picture) if plan.distinct else None)
        yield [routes_html(plan), *(gr.DownloadButton(value=file, visible=file is not None) for file in ready)]

    gr.on(
        [go.click, target.submit], run, [target, steps, beams, material, stock, direct, seconds], [drawn, *files],
        api_name="plan", **ONE_AT_A_TIME,
    )  # fmt: skip

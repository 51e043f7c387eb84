"""Tab one: a target molecule in, ranked and drawn routes out."""

from __future__ import annotations

import re
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from ..common.whole_files import write_json
from ..inference.tasks import RouteTask
from ..routes import Stock
from ..routes.drawing.page import save_page
from ..routes.drawing.svg import route_svg, save_picture
from ..tokenization import PRODUCT_LENGTH
from .asking import MOST_BEAMS, MOST_SMILES, MOST_STEPS, ONE_AT_A_TIME, InTime, check_length, reasons

if TYPE_CHECKING:
    from ..routes.plans import Candidate, Plan

# Of the kind that `make demo` grows.
EXAMPLES = ["O=C(Nc1ccccc1)c1ccc(F)cc1", "CC(=O)NCc1ccccc1", "CCNS(C)(=O)=O", "O=C(O)CNC(=O)c1ccccc1"]
# Drawn on the page; the page to download has all.
_SHOWN = 10


def plan_routes(
    task: RouteTask, target: str, steps: int = 0, beams: int = 10, material: str = "", stock_file: str | None = None
) -> Plan:
    """The routes to one target.

    Args:
        task: the model.
        target: SMILES.
        steps: longest path of the routes, in reactions; 0 to try 1 to 5.
        beams: width of the search.
        material: SMILES to begin from, or nothing.
        stock_file: file of what can be bought.

    Raises:
        ValueError: what is wrong with one of these. Unwanted: it took too long.
    """
    check_length("target", target, MOST_SMILES)
    if material.strip():
        check_length("starting material", material, MOST_SMILES)
    stock = None if stock_file is None else Stock.from_file(stock_file, progress=False)
    task = RouteTask(task.planner, stock, task.max_new_tokens)
    works = task.works(
        [target.strip()], n_steps=[steps] if steps else None, starting_material=material.strip() or None, beams=beams
    )
    [(_, plan)] = task.compute(works, InTime())
    return plan


def routes_html(plan: Plan) -> str:
    """The best routes of a plan, each with its picture, the first one open."""
    shown = plan.distinct[:_SHOWN]
    counts = f"{len(plan.distinct)} distinct routes to <code>{escape(plan.target)}</code>"
    counts += f" among {len(plan.candidates)} candidates"
    counts += f"; the first {len(shown)} are shown" if len(shown) < len(plan.distinct) else ""
    counts += f"; {len(plan.failed)} are no routes" if plan.failed else ""
    if not shown:
        first = plan.failed[0].problem or "it is no route"
        return (
            f'<p class="weft-alert"><b>No route to <code>{escape(plan.target)}</code> was found.</b> '
            f"Of the best candidate: {escape(first)}</p>"
        )
    items = "".join(_item(candidate, is_open=not number) for number, candidate in enumerate(shown))
    return f'<div class="weft-routes"><p class="weft-quiet">{counts}.</p>{items}</div>'


def _item(candidate: Candidate, is_open: bool) -> str:
    route = candidate.route
    assert route is not None  # `Plan.distinct` holds nothing else
    badge, needs = "", ""
    if candidate.missing is not None:
        kind, words = (
            ("unsolved", f"✕ {len(candidate.missing)} not in stock") if candidate.missing else ("solved", "✓ solved")
        )
        badge = f'<span class="weft-badge weft-{kind}">{words}</span>'
    if candidate.missing:
        names = ", ".join(f"<code>{escape(smiles)}</code>" for smiles in candidate.missing)
        needs = f'<p class="weft-needs">Not in stock: {names}</p>'
    score = f"{candidate.score:.2f}".replace("-", "\N{MINUS SIGN}")
    svg = route_svg(route, missing=candidate.missing)
    width = re.search(r' width="([\d.]+)"', svg)
    assert width is not None
    return (
        f"<details{' open' if is_open else ''}><summary><b>Rank {candidate.rank}</b>{badge}"
        f'<span title="Log-probability under the model">score {score}</span>'
        f'<span class="weft-quiet">reactions: {route.num_reactions}, depth: {route.depth}</span></summary>'
        f'<div class="weft-view" tabindex="0" role="group" aria-label="Route of rank {candidate.rank}" '
        f'style="--width:{width[1]}px">{svg}</div>{needs}</details>'
    )


def build_routes_tab(task: RouteTask) -> None:
    """Put the tab's parts into the block that is open, for a model of routes."""
    folder = tempfile.TemporaryDirectory(prefix="weft-demo-")  # as long as `run` below

    with gr.Row(equal_height=True):
        target = gr.Textbox(label="Target (SMILES)", max_length=MOST_SMILES, scale=4, elem_id="target")
        go = gr.Button("Plan", variant="primary", scale=1, min_width=100, elem_id="plan")
    choices = [("any, up to 5", 0), *((str(count), count) for count in range(1, MOST_STEPS + 1))]
    with gr.Row():
        steps = gr.Dropdown(choices, value=0, label="Steps", visible=task.takes_steps, elem_id="steps",
                            info="longest path, in reactions", min_width=140)  # fmt: skip
        beams = gr.Slider(1, MOST_BEAMS, value=5, step=1, label="Beams", info="width of the search", min_width=140)
        material = gr.Textbox(
            label="Starting material (SMILES)", info="to begin from; may be left out", max_length=MOST_SMILES,
            visible=task.model.config.max_source_positions > PRODUCT_LENGTH, min_width=220, elem_id="material",
        )  # fmt: skip
    with gr.Accordion("Stock: what can be bought", open=False):
        stock = gr.File(label="SMILES or InChIKeys, one a line or in a table", type="filepath", elem_id="stock",
                        file_types=[".smi", ".txt", ".csv", ".tsv", ".gz"], height=120)  # fmt: skip
    gr.Examples(EXAMPLES, target)
    drawn = gr.HTML(elem_id="routes", min_height=120, apply_default_css=False)
    with gr.Row():
        files = [gr.DownloadButton(label, visible=False, size="md", min_width=160, elem_id=name)
                 for name, label in (("page", "Page with all routes"), ("json", "JSON"), ("picture", "Best route, SVG"))]  # fmt: skip

    def run(target: str, steps: int, beams: int, material: str | None, stock: str | None) -> list:
        with reasons():
            plan = plan_routes(task, target, steps, int(beams), material or "", stock)
        # the same names each time: gradio copies them, and nobody else plans meanwhile
        page, data, picture = (Path(folder.name) / f"routes.{ending}" for ending in ("html", "json", "svg"))
        save_page([plan], page)
        write_json(data, [plan.to_dict()])
        for best in plan.distinct[:1]:
            assert best.route is not None
            save_picture(best.route, picture, missing=best.missing)
        ready = (str(page), str(data), str(picture) if plan.distinct else None)
        return [routes_html(plan), *(gr.DownloadButton(value=file, visible=file is not None) for file in ready)]

    gr.on(
        [go.click, target.submit], run, [target, steps, beams, material, stock], [drawn, *files], api_name="plan",
        **ONE_AT_A_TIME,
    )  # fmt: skip

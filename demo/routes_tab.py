"""The first tab: ranked and drawn routes to a target molecule."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..common.tables import BROKEN_GZIP
from ..inference.tasks import RouteTask
from ..routes import PlanSettings, Stock
from ..routes.drawing.listing import plan_html
from ..routes.drawing.page import save_page
from ..routes.drawing.svg import save_picture
from ..routes.files.streams import write_plans
from ..routes.shipped import provenance
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
    from ..routes.plans import Plan

# Small molecules that can be made in one or two steps.
EXAMPLES = ["O=C(Nc1ccccc1)c1ccc(F)cc1", "CC(=O)NCc1ccccc1", "CCNS(C)(=O)=O", "O=C(O)CNC(=O)c1ccccc1"]
# The largest number of bytes of an unpacked stock. `style.py` limits the upload, but a gzipped file can unpack to a
# thousand times as much.
_MOST_UNPACKED = 100_000_000


def plan_routes(
    task: RouteTask, target: str, steps: int = 0, material: str = "", stock_file: str | None = None, **options: Any
) -> Plan:
    """Plan routes to one target.

    Args:
        task: the route model.
        target: the SMILES of the target.
        steps: the number of reactions on the longest path of a route. With 0, single steps are searched until
            everything is in the stock, or the numbers 1 to 5 are tried.
        material: the SMILES of the starting material, or an empty string.
        stock_file: a file with the molecules in stock (default: the stock of the task, if it has one).
        options: as in [`PlanSettings.from_options`].

    Returns:
        The plan.

    Raises:
        ValueError: an argument is not valid. The message names the stock without its folder.
        Unwanted: the search took too long. Reading the stock counts as well.
    """
    leaf = options.get("required_leaf") or ""
    check_length("target", target, MOST_SMILES)
    for what, given in (("starting material", material), ("required starting material", leaf)):
        if given.strip():
            check_length(what, given, MOST_SMILES)
    options |= {"required_leaf": leaf.strip() or None, "max_new_tokens": task.max_new_tokens}
    settings, in_time = PlanSettings.from_options(options), InTime()
    stock = task.stock if stock_file is None else _stock(Path(stock_file), in_time)
    [plan] = task.planner.plan(
        [target.strip()],
        settings,
        n_steps=steps or None,
        starting_material=material.strip() or None,
        stock=stock,
        progress=False,
        watch=in_time,
    )
    return plan


def _stock(file: Path, in_time: InTime) -> Stock:
    """Read the stock of an uploaded file. Errors do not show its temporary path."""

    def check() -> None:
        if in_time.is_over:
            raise ValueError(f"Reading {file} took longer than {SECONDS:g} s and was stopped: give a shorter list.")

    try:
        _check_unpacked(file)
        return Stock.from_file(file, progress=False, cache=False, check=check)
    except (OSError, ValueError) as error:
        raise ValueError(str(error).replace(str(file), file.name)) from error


def _check_unpacked(file: Path) -> None:
    if file.suffix != ".gz":
        return
    with contextlib.suppress(*BROKEN_GZIP), gzip.open(file) as unpacked:  # `Stock` reports a broken file
        unpacked.seek(_MOST_UNPACKED)
        if unpacked.read(1):
            raise ValueError(f"{file} unpacks to more than {_MOST_UNPACKED / 1e6:g} MB: give a shorter list.")


def build_routes_tab(task: RouteTask) -> None:
    """Add the components of the routes tab to the open gradio block, for a route model."""
    folder = tempfile.TemporaryDirectory(prefix="weft-demo-")  # kept alive by `run` below, which uses it

    with gr.Row(equal_height=True):
        target = gr.Textbox(label="Target (SMILES)", max_length=MOST_SMILES, scale=4, elem_id="target")
        go = gr.Button("Plan", variant="primary", scale=1, min_width=100, elem_id="plan")
    most_steps = min(MOST_STEPS, task.planner.most_steps)
    choices = [("any, up to 5", 0), *((str(count), count) for count in range(1, most_steps + 1))]
    with gr.Row():
        steps = gr.Dropdown(choices, value=0, label="Steps", visible=task.takes_steps, elem_id="steps",
                            info="longest path, in reactions", min_width=140)  # fmt: skip
        beams = gr.Slider(1, MOST_BEAMS, value=5, step=1, label="Beams", info="width of the search", min_width=140)
        material = gr.Textbox(
            label="Starting material (SMILES)", info="optional, given to the model", max_length=MOST_SMILES,
            visible=task.takes_material, min_width=220, elem_id="material",
        )  # fmt: skip
        leaf = gr.Textbox(label="Required starting material (SMILES)", info="optional, in every route", elem_id="leaf",
                          max_length=MOST_SMILES, min_width=220)  # fmt: skip
    with gr.Row():
        direct = gr.Radio(
            [("single steps, until everything is in the stock", False), ("whole routes, as the model writes them", True)],
            value=task.stock is None, label="Search", elem_id="direct", min_width=300,
            info="Without a stock, or with a number of steps or a starting material, the model writes whole routes.",
        )  # fmt: skip
        bought = gr.Checkbox(label="Only purchasable routes", info="All starting materials are in the stock.",
                             elem_id="bought", min_width=140)  # fmt: skip
        seconds = gr.Slider(5, MOST_SECONDS, value=MOST_SECONDS, step=5, label="Seconds", elem_id="seconds",
                            info="After this time, the routes found are shown.", min_width=140)  # fmt: skip
    with gr.Accordion("Stock: purchasable molecules", open=False):
        stock = gr.File(label="SMILES or InChIKeys, one per line or in a table", type="filepath", elem_id="stock",
                        file_types=[".smi", ".txt", ".csv", ".tsv", ".gz"], height=120)  # fmt: skip
    gr.Examples(EXAMPLES, target)
    drawn = gr.HTML(elem_id="routes", min_height=120, apply_default_css=False)
    with gr.Row():
        files = [gr.DownloadButton(label, visible=False, size="md", min_width=160, elem_id=name)
                 for name, label in (("page", "Page with all routes"), ("json", "JSON"), ("sdf", "Molecules, SDF"),
                                     ("rdf", "Reactions, RDF"), ("picture", "Best route, SVG"))]  # fmt: skip

    def run(  # noqa: PLR0913, an argument for each field of the page
        target: str, steps: int, beams: int, material: str | None, stock: str | None, direct: bool, seconds: float,
        leaf: str | None, bought: bool,
    ) -> Iterator[list]:  # fmt: skip
        try:
            with reasons():
                plan = plan_routes(
                    task, target, steps, material or "", stock, beams=int(beams), direct=direct, time_limit=seconds,
                    required_leaf=leaf, only_purchasable=bought,
                )  # fmt: skip
        except Exception as error:
            # otherwise, the routes to another target would stay on the page
            yield [alert(error), *(gr.DownloadButton(value=None, visible=False) for _ in files)]
            raise
        # the file names can be the same each time: gradio copies the files, and one plan is made at a time
        page, *data, picture = (
            Path(folder.name) / f"routes.{ending}" for ending in ("html", "json", "sdf", "rdf", "svg")
        )
        size = None if stock or task.stock is None else len(task.stock)
        save_page([plan], page, about=provenance(task.model.name_or_path, stock, size))
        for file in data:
            write_plans(file, [plan], file.suffix[1:])
        for best in plan.distinct[:1]:
            assert best.route is not None
            save_picture(best.route, picture, missing=best.missing)
        ready = [str(page), *map(str, data), str(picture) if plan.distinct else None]
        yield [plan_html(plan), *(gr.DownloadButton(value=file, visible=file is not None) for file in ready)]

    gr.on(
        [go.click, target.submit], run, [target, steps, beams, material, stock, direct, seconds, leaf, bought], [drawn, *files],
        api_name="plan", **ONE_AT_A_TIME,
    )  # fmt: skip

"""The page on which a chemist builds a route step by step, and what it asks the server for besides proposals."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import io
import math
import tempfile
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from ...serving.batching import Threads
from ...serving.endpoint import Checked, Endpoint, Page
from ...serving.limits import Limits, check_time
from ..chemistry.molecules import canonical_route, canonical_smiles
from ..drawing.svg import save_picture
from ..files.streams import ENDINGS, plan_form, write_plans
from ..files.targets import read_targets, targets_in
from ..pages.page import build_page, save_page, tree_html
from ..planning.requests import one_target
from ..plans import Candidate, Plan
from ..ranking import complete
from ..tree import Route

# A drawing of more would take long, and nobody could read it.
_MOST_MOLECULES = 200
# The length of a SMILES, as in other requests.
_MOST_CHARACTERS = 600
# The length of a molfile of 400 atoms. RDKit takes eight seconds for the worst one of twice the length.
_MOST_TEXT = 1 << 15
_BEGINNING = "What to begin from: SMILES, InChI, a molfile, or a name in the file of the stock."
# The number of requests that are drawn at once. They have threads of their own, so that others do not wait for them.
AT_ONCE = 4
_FILES = (".svg", ".png", ".html", *ENDINGS)


def build_endpoint(task: Any, smiles: Any, reaction: Any, most: int, limits: Limits) -> Endpoint:
    """Return the endpoint `/build`: the page, and what it asks for with POST.

    Args:
        task: the `RouteTask`, with the stock.
        smiles, reaction: the types of molecules and reactions in requests.
        most: the largest number of them.
        limits: the limits of the server.
    """

    class BuildRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        text: str | None = Field(None, max_length=_MOST_TEXT, description=_BEGINNING)
        route: dict[str, Any] | None = Field(None, description="The route, with `smiles` and `children`.")
        have: list[smiles] = Field([], max_length=most, description="Molecules besides those of the stock.")
        forbidden: list[reaction] = Field([], max_length=most, description="Molecules and reactions, to list them.")
        file: Literal[_FILES] | None = Field(None, description="The ending of a file.")  # type: ignore[valid-type]

    def check(fields: dict[str, Any], report: Any) -> list[Checked]:
        # a step that is being judged keeps its thread beyond the time
        return [((fields, time.monotonic() + limits.timeout_s), None)]

    def compute(input: tuple[dict[str, Any], float]) -> Response:
        return _answer(task, *input)

    def page(has_key: bool) -> tuple[str, str]:
        return build_page(has_key=has_key, has_stock=task.stock is not None, example=task.example["targets"])

    return Endpoint(
        path="/build", summary="A route that is being built: drawn and judged, or as a file.", request=BuildRequest,
        check=check, queue=Threads(compute, AT_ONCE, limits.max_queue, limits.timeout_s), page=Page("Build", page),
    )  # fmt: skip


def _answer(task: Any, fields: dict[str, Any], end: float) -> Response:
    if fields["text"] is not None:
        return JSONResponse({"smiles": _begin(task, fields["text"])})
    route = Route.from_dict(fields["route"])
    molecules = route.molecules()
    if len(molecules) > _MOST_MOLECULES:
        raise ValueError(f"This route has {len(molecules)} molecules: at most {_MOST_MOLECULES} are allowed.")
    for smiles in molecules:
        if len(smiles) > _MOST_CHARACTERS:
            raise ValueError(f"{smiles[:40]}... is too long: at most {_MOST_CHARACTERS} characters are allowed.")
    route = canonical_route(route)
    have = sorted(map(canonical_smiles, fields["have"]))
    candidate = Candidate(route.to_string(), math.nan, None, route, rank=1, group=1)
    candidate = complete(candidate, task.stock_with(have), task.library, partial(check_time, end))
    if fields["file"] is not None:
        return _file(Plan(route.smiles, [candidate]), fields["file"])
    leaves = dict.fromkeys(route.leaves()) if candidate.missing is None else candidate.missing
    html = tree_html(candidate, fields["have"], fields["forbidden"])
    return JSONResponse({"html": html, "open": list(leaves)})


def _file(plan: Plan, ending: str) -> Response:
    [(candidate, route)] = plan.found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"route{ending}"
        if form := plan_form(path):
            write_plans(path, [plan], form)
        elif ending == ".html":
            save_page([plan], path)
        else:
            save_picture(route, path, missing=candidate.missing, steps=candidate.steps, common=candidate.common)
        return Response(path.read_bytes(), media_type="application/octet-stream")


def _begin(task: Any, text: str) -> str:
    """Return the canonical SMILES of a name of the stock, or of a molecule in any other form.

    Raises:
        ValueError: it is neither.
    """
    names = {} if task.stock is None else _names(task.stock.path, task.stock.column)
    text = names.get(text.strip().lower(), text)
    try:
        [target, *_] = targets_in(io.BytesIO(text.encode()), "The text")
        return one_target(target.smiles, "strip")[0]
    except ValueError as error:
        raise ValueError(f"{error} Names are looked up in the file of the stock.") from error


@lru_cache(1)
def _names(path: Path | None, column: str | None) -> dict[str, str]:
    """Return the molecules with a name in the file of a stock, by their names in lower case."""
    try:
        targets = [] if path is None else read_targets(path, smiles_column=column)
    except (ValueError, OSError):  # such as a Bloom filter, or a catalogue of millions
        return {}
    return {target.id.lower(): target.smiles for target in targets if not target.id.isdigit()}

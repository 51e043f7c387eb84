"""The page on which a chemist builds a route step by step, and what it asks the server for besides proposals."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import io
import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from ..serving.endpoint import PROBLEMS, queue_full, too_late
from ..serving.limits import Limits, check_time
from ..serving.pages import page_response
from .chemistry.molecules import canonical_route, canonical_smiles
from .files.streams import ENDINGS, plan_form, write_plans
from .files.targets import read_targets, targets_in
from .judging import judge, library_of
from .plans import Candidate, Plan
from .tree import Route

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


def add_building(app: FastAPI, task: Any, smiles: Any, reaction: Any, most: int, limits: Limits) -> None:
    """Add the page at `/build`, and what it asks for with POST.

    Args:
        app: the application.
        task: the `RouteTask`, with the stock.
        smiles, reaction: the types of molecules and reactions in requests.
        most: the largest number of them.
        limits: the limits of the server.
    """
    from .pages.page import build_page

    threads, room = ThreadPoolExecutor(AT_ONCE, "weft-build"), BoundedSemaphore(AT_ONCE + limits.max_queue)
    has_stock, example = task.stock is not None, task.example["targets"]
    text, script = build_page(has_key=app.state.has_key, has_stock=has_stock, example=example)

    class BuildRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        text: str | None = Field(None, max_length=_MOST_TEXT, description=_BEGINNING)
        route: dict[str, Any] | None = Field(None, description="The route, with `smiles` and `children`.")
        have: list[smiles] = Field([], max_length=most, description="Molecules besides those of the stock.")
        forbidden: list[reaction] = Field([], max_length=most, description="Molecules and reactions, to list them.")
        file: Literal[_FILES] | None = Field(None, description="The ending of a file.")  # type: ignore[valid-type]

    @app.get("/build", include_in_schema=False)
    async def page() -> Response:
        return page_response(text, script)

    @app.post("/build", summary="A route that is being built: drawn and judged, or as a file.", responses=PROBLEMS)
    async def build(body: BuildRequest) -> Any:
        if not room.acquire(blocking=False):
            raise queue_full(limits.max_queue, 1)
        # in a thread, because RDKit would block the event loop; a step that is being judged keeps it beyond the time
        computed = threads.submit(_answer, task, body, time.monotonic() + limits.timeout_s)
        computed.add_done_callback(lambda _: room.release())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(computed), limits.timeout_s)
        except TimeoutError:
            raise too_late(limits.timeout_s) from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from error


def _answer(task: Any, body: Any, end: float) -> Response:
    if body.text is not None:
        return JSONResponse({"smiles": _begin(task, body.text)})
    route = Route.from_dict(body.route)
    if len(route.molecules()) > _MOST_MOLECULES:
        raise ValueError(f"This route has {len(route.molecules())} molecules: at most {_MOST_MOLECULES} are allowed.")
    if longest := max((smiles for smiles in route.molecules() if len(smiles) > _MOST_CHARACTERS), default=None):
        raise ValueError(f"{longest[:40]}... is too long: at most {_MOST_CHARACTERS} characters are allowed.")
    route = canonical_route(route)
    have = sorted(map(canonical_smiles, body.have))
    candidate = Candidate(route.to_string(), math.nan, None, route, rank=1, group=1, library=task.library)
    candidate = candidate.with_stock(task.stock_with(have))
    for step in route.steps():  # this takes most of the time, and the judgements are cached
        check_time(end)
        judge(step.smiles, [child.smiles for child in step.children], library_of(task.library))
    if body.file is not None:
        return _file(Plan(route.smiles, [candidate]), body.file)
    from .pages.page import tree_html

    open_molecules = dict.fromkeys(route.leaves()) if candidate.missing is None else candidate.missing
    return JSONResponse({"html": tree_html(candidate, body.have, body.forbidden), "open": list(open_molecules)})


def _file(plan: Plan, ending: str) -> Response:
    from .drawing.svg import save_picture
    from .pages.page import save_page

    [(candidate, route)] = plan.found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"route{ending}"
        if form := plan_form(path):
            write_plans(path, [plan], form)
        elif ending == ".html":
            save_page([plan], path)
        else:
            save_picture(route, path, missing=candidate.missing, steps=candidate.steps)
        return Response(path.read_bytes(), media_type="application/octet-stream")


def _begin(task: Any, text: str) -> str:
    """Return the canonical SMILES of a name of the stock, or of a molecule in any other form.

    Raises:
        ValueError: it is neither.
    """
    from .planning.requests import one_target

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

"""The HTTP face: /plan or /translate, /health, and the pages at / and /docs."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from reprlib import Repr
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from ..configuration.version import __version__
from ..inference.batching import Batcher
from ..inference.tasks import RouteTask, TextTask
from ..routes import Candidate, Plan, Route
from ..routes.planning.constraints import NO_CONSTRAINTS, RULES, rules_without
from ..routes.planning.planner import SALTS
from ..routes.planning.search import RANKINGS
from ..routes.plans import IMPOSSIBLE
from ..tokenization.checks import shown
from .limits import BodyInTime, Limits
from .pages import add_pages
from .waiting import answers, too_late

# Reasons quote the input; one that is long helps nobody.
_REASON = 600
_REPR = Repr()
_REPR.maxother = _REPR.maxlong = _REPR.maxstring = 80
_MOST_STEPS = 32
# Each text of a target is a search of its own.
_MOST_TEXTS = 16
# What a request may ask of the routes, fields of `Constraints`; each molecule or substructure is looked for in every one.
_WISHES = {"only_purchasable", "required_leaf", "forbidden", "forbidden_substructures"}
_MOST_WISHES = 16
# The longest target that a model reads has 143 tokens; for the worst of 2,000 characters RDKit takes a second.
_MOST_SMILES = 600


class Problem(BaseModel):
    """What was wrong with a request, or with the server."""

    detail: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is no JSON."},
    408: {"model": Problem, "description": "The body did not arrive in time."},
    413: {"model": Problem, "description": "The body is too large."},
    422: {"model": Problem, "description": "An input or a setting is not allowed."},
    429: {"model": Problem, "description": "Too many inputs wait; try again later."},
    500: {"model": Problem, "description": "The model failed."},
    503: {"model": Problem, "description": "The server stops."},
    504: {"model": Problem, "description": "The answer took too long."},
}


def build_app(task: RouteTask | TextTask, *, name: str, limits: Limits | None = None) -> FastAPI:
    """The application that serves one model; its worker lives from the application's start to its end.

    Args:
        task: the model, and what it can be asked.
        name: what /health calls it.
        limits: bounds on requests.

    Returns:
        A FastAPI application. `app.state.batcher.stop()` lets it finish what it computes and answer 503 to all else.
    """
    limits = limits or Limits()
    batcher = Batcher(
        task.compute,
        max_batch_size=limits.max_batch_size,
        max_wait_s=limits.max_wait_ms / 1000,
        max_queue=limits.max_queue,
        pools=task if hasattr(task, "open_pool") else None,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        batcher.stop()
        await run_in_threadpool(batcher.join, limits.timeout_s)

    app = FastAPI(
        title="Weft",
        version=__version__,
        description=f"Serves {name}: POST {task.path}.",
        lifespan=lifespan,
        max_body_size=limits.max_request_bytes,
        # FastAPI's own pages load their program from another server
        docs_url=None,
        redoc_url=None,
    )
    app.state.batcher = batcher
    app.add_middleware(BodyInTime, seconds=limits.timeout_s)
    _add_reasons(app, limits)
    add_pages(app, task, name, limits)
    _add_health(app, batcher, task.path, name)
    if isinstance(task, RouteTask):
        _add_plan(app, batcher, task, limits)
        _add_refusal(app, "/translate", f"{name} writes routes: POST /plan.")
    else:
        _add_translate(app, batcher, task, limits)
        _add_refusal(app, "/plan", f"{name} writes texts, not routes: POST /translate.")
    return app


def _add_plan(app: FastAPI, batcher: Batcher, task: RouteTask, limits: Limits) -> None:
    most = min(limits.max_characters, _MOST_SMILES)
    smiles = Annotated[str, StringConstraints(min_length=1, max_length=most)]
    number = Annotated[int, Field(ge=1, le=_MOST_STEPS)]

    class PlanRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        targets: _one_or_more(smiles, limits.max_inputs) = Field(description="SMILES of a molecule, or a list.")  # type: ignore[valid-type]
        n_steps: _one_or_more(number, _MOST_STEPS) | None = Field(  # type: ignore[valid-type]
            None,
            description="Longest path of the routes, in reactions; of a list each number is tried (default: 1 to 5).",
        )
        starting_material: smiles | list[smiles | None] | None = Field(
            None, description="SMILES to begin from, or a list with one (or null) for each target."
        )
        beams: int = Field(min(10, limits.max_beams), ge=1, le=limits.max_beams, description="Width of the search.")
        texts: int = Field(
            1,
            ge=1,
            le=_MOST_TEXTS,
            description="SMILES of each target to search from, what they find pooled: as many times as long, and more is found.",
        )
        seed: int = Field(0, ge=0, lt=1 << 32, description="Of the draw of these texts.")
        ranking: Literal[tuple(RANKINGS)] = Field(  # type: ignore[valid-type]
            "log_probability", description="How candidates are scored; sqrt_length is DirectMultiStep's way."
        )
        grammar: bool = Field(True, description="Write nothing but well-formed routes; without it no rule holds.")
        allow: list[Literal[tuple(RULES)]] = Field(  # type: ignore[valid-type]
            [],
            max_length=len(RULES),
            description="Rules to switch off: let molecules through that cannot be read, that are made from themselves, or "
            "reactions whose reactants lack atoms.",
        )
        only_purchasable: bool = Field(False, description="Only routes that begin from molecules of the stock.")
        required_leaf: smiles | None = Field(None, description="SMILES of a molecule that every route begins from.")
        forbidden: list[smiles] = Field([], max_length=_MOST_WISHES, description="SMILES that must not occur.")
        forbidden_substructures: list[smiles] = Field(
            [],
            max_length=_MOST_WISHES,
            description="SMARTS, each connected, of what no molecule but the target may hold.",
        )
        impossible: Literal[IMPOSSIBLE] = Field(  # type: ignore[valid-type]
            "behind",
            description="Routes that break a rule all the same: ranked behind, kept in their place, or left out.",
        )
        max_new_tokens: int | None = Field(
            None, ge=1, le=task.max_new_tokens, description="Tokens of a route at most."
        )
        time_limit: float | None = Field(
            None,
            le=min(limits.max_time_limit, limits.timeout_s),
            description="Seconds above 0 for the search for each target; what is found by then is kept (default: no limit).",
        )
        salts: Literal[SALTS] = Field(  # type: ignore[valid-type]
            "refuse", description="A target of several molecules: refused, or stripped to its largest organic part."
        )
        expand_leaves: int = Field(
            0,
            le=limits.max_expand_leaves,
            description="Levels: how often a starting material that the stock lacks is planned in its turn, and the routes are "
            "joined. 0 for none.",
        )
        per_reaction: int | None = Field(
            None, description="At most so many routes, at least 1, with the same last reaction (default: all)."
        )
        max_routes: int | None = Field(
            None,
            ge=1,
            description="Only so many distinct routes for each target (default: all candidates, failed too).",
        )
        svg: bool = Field(False, description="Add a drawing to each route.")

    class PlanAnswer(BaseModel):
        plans: list[dict[str, Any]] = Field(
            description="For each target `target`, `problem` and its ranked `candidates`."
        )

    @app.post("/plan", responses=_PROBLEMS)
    async def plan(wanted: PlanRequest, request: Request) -> PlanAnswer:
        """Ranked routes to each target, as "weftformer plan --json" writes them, and the names of their reactions."""
        wishes = wanted.model_dump(include=_WISHES)
        settings = wanted.model_dump(exclude={"max_routes", "svg", "allow", *_WISHES})
        works = await _checked(partial(_constrained, task, wanted.allow, wishes), **settings)
        end = time.monotonic() + limits.timeout_s
        plans: list[Plan] = await answers(request, batcher, works, limits.timeout_s)
        try:  # drawing takes a while, and the loop has others to listen to
            told = await run_in_threadpool(_told, plans, wanted.max_routes, wanted.svg, end)
        except TimeoutError:
            raise too_late(limits.timeout_s) from None
        return PlanAnswer(plans=told)


def _add_translate(app: FastAPI, batcher: Batcher, task: TextTask, limits: Limits) -> None:
    text = Annotated[str, StringConstraints(max_length=limits.max_characters)]
    number = Annotated[float, Field(allow_inf_nan=False, strict=False)]

    class TranslateRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        texts: _one_or_more(text, limits.max_inputs) = Field(description="A text, or a list.")  # type: ignore[valid-type]
        beams: int = Field(min(4, limits.max_beams), ge=1, le=limits.max_beams, description="Width of the search.")
        max_new_tokens: int | None = Field(None, ge=1, le=task.max_new_tokens, description="Tokens of a text at most.")
        conditions: list[number] = Field(
            [],
            max_length=1024,
            description="Numbers that the model is told beside each text, if it was trained with some.",
        )

    class TranslateAnswer(BaseModel):
        translations: list[str] = Field(description="One for each text.")

    @app.post("/translate", responses=_PROBLEMS)
    async def translate(wanted: TranslateRequest, request: Request) -> TranslateAnswer:
        """What the model writes for each text."""
        works = await _checked(task.works, **wanted.model_dump())
        return TranslateAnswer(translations=await answers(request, batcher, works, limits.timeout_s))


def _add_health(app: FastAPI, batcher: Batcher, path: str, name: str) -> None:
    class Health(BaseModel):
        status: Literal["ready", "stopping"]
        model: str
        endpoint: str
        version: str
        waiting: int = Field(description="Inputs in the queue.")
        computing: int = Field(description="Inputs that are computed.")

    @app.get(
        "/health",
        responses={
            200: {"model": Health, "description": "The model takes requests."},
            503: {"model": Health, "description": "The server stops."},
        },
    )
    async def health() -> JSONResponse:
        """Whether the model takes requests, and how many wait."""
        state = Health(
            status="ready" if batcher.is_ready else "stopping", model=name, endpoint=path, version=__version__,
            waiting=batcher.waiting, computing=batcher.computing,
        )  # fmt: skip
        return JSONResponse(state.model_dump(), status_code=200 if batcher.is_ready else 503)


def _add_refusal(app: FastAPI, path: str, reason: str) -> None:
    @app.post(path, include_in_schema=False)
    async def refuse() -> None:
        raise HTTPException(404, reason)


def _add_reasons(app: FastAPI, limits: Limits) -> None:
    """Every refusal is `{"detail": reason}`, with no more of what was sent than its beginning."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return _problem(422, "; ".join(map(_described, error.errors()[:5])))

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        reason = error.detail
        if error.status_code == 400 and error.__cause__ is not None:  # FastAPI's, which does not say what it was
            reason = f"The body cannot be read as JSON: {error.__cause__}"
        if error.status_code == 413:
            reason = f"The body is larger than {limits.max_request_bytes} bytes."
        return _problem(error.status_code, reason, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # for the log alone; nginx's number

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return _problem(500, "The server failed; its log has the cause.")  # uvicorn writes it there


def _described(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item["loc"]))
    if item["type"] == "json_invalid":
        return f"{place}: {item['msg']}: {item['ctx']['error']}"
    if item["type"] in ("missing", "extra_forbidden"):  # of these, the place says all
        return f"{place}: {item['msg']}"
    given = item["input"]
    return f"{place}: {item['msg']}: got {shown(given) if isinstance(given, str) else _REPR.repr(given)}"


def _problem(status: int, reason: str, headers: Any = None) -> JSONResponse:
    # half a surrogate pair, which JSON can spell and UTF-8 cannot
    reason = reason.encode("utf-8", "backslashreplace").decode()
    return JSONResponse(
        {"detail": reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."}, status_code=status, headers=headers
    )


def _constrained(
    task: RouteTask, allow: list[str], wishes: dict[str, Any], targets: list[str], *, grammar: bool, **settings: Any
) -> Sequence[Any]:
    """Works with constraints; a wish that cannot be read is refused as a target is."""
    rules = rules_without(allow)
    constraints = replace(rules, **wishes)
    if not grammar and constraints == rules:  # nothing was asked for that needs it
        constraints = NO_CONSTRAINTS
    return task.works(targets, grammar=grammar, constraints=constraints, **settings)


async def _checked(check: Any, *args: Any, **settings: Any) -> Sequence[Any]:
    """Works of a request; RDKit takes its time, so not in the event loop."""
    inputs = settings.pop("targets" if "targets" in settings else "texts")
    try:
        return await run_in_threadpool(check, inputs, **settings)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error


def _one_or_more(kind: Any, most: int) -> Any:
    """A list of 1 to `most`; one alone is a list of it."""
    return Annotated[
        list[kind],
        Field(min_length=1, max_length=most),
        BeforeValidator(
            lambda value: value if isinstance(value, list) else [value], json_schema_input_type=kind | list[kind]
        ),
    ]


def _told(plans: Sequence[Plan], max_routes: int | None, svg: bool, end: float) -> list[dict[str, Any]]:
    """The plans with the names of their reactions, and drawings if asked for; of equal routes, one drawing.

    Raises:
        TimeoutError: `end`, of `time.monotonic`, came before all was done.
    """
    from ..routes.reaction_names import candidate_with_names

    @cache
    def drawing(route: Route, missing: tuple[str, ...] | None, joined_at: tuple[str, ...]) -> str:
        from ..routes.drawing.svg import route_svg

        return route_svg(route, missing=missing, joined_at=joined_at)

    def entry(candidate: Candidate) -> dict[str, Any]:
        if time.monotonic() > end:
            raise TimeoutError
        told = candidate_with_names(candidate)
        if svg and candidate.route is not None:
            told["svg"] = drawing(candidate.route, candidate.missing, candidate.joined_at)
        return told

    found = []
    for plan in plans:
        candidates = plan.candidates if max_routes is None else plan.distinct[:max_routes]
        found.append(replace(plan, candidates=[]).to_dict() | {"candidates": [entry(one) for one in candidates]})
    return found

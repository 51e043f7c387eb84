"""The HTTP application: /plan or /translate, /health, /ready, /metrics, /v1/models, and the pages at / and /docs."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model
from pydantic.json_schema import SkipJsonSchema
from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..common.options import request_fields
from ..configuration.version import __version__
from ..inference.batching import Batcher, Failed, QueueFull, Stopping
from ..inference.loading import load_forward, move_to
from ..inference.tasks import RouteTask, TextTask, load_task
from ..routes import Candidate, Plan, Route, Stock
from ..routes.planning.settings import RULES, Constraints, PlanSettings
from ..routes.planning.targets import PlanRequest
from ..tokenization.checks import shown
from .limits import Limits
from .observing import Metrics, Observed
from .pages import add_page

# The largest number of characters of a reason. Reasons quote the input, which may be long.
_REASON = 600
_STOPPING = "The server is stopping and accepts no more requests."
_REPR = Repr()
_REPR.maxother = _REPR.maxlong = _REPR.maxstring = 80
_MOST_STEPS = 32
# Each SMILES of a target needs its own search.
_MOST_AUGMENTATIONS = 16
_MOST_ROUTES = 100
# The included model reads targets of up to 300 tokens. RDKit takes a second for the worst text of 2,000 characters.
_MOST_SMILES = 600


class Problem(BaseModel):
    """An error of a request or of the server."""

    detail: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body cannot be read."},
    401: {"model": Problem, "description": "The key is missing or wrong."},
    408: {"model": Problem, "description": "The body did not arrive in time."},
    413: {"model": Problem, "description": "The body is too large."},
    422: {"model": Problem, "description": "An input or a setting is not allowed."},
    429: {"model": Problem, "description": "Too many inputs are waiting; try again later."},
    500: {"model": Problem, "description": "The model failed."},
    503: {"model": Problem, "description": "The server is stopping, or has too many connections."},
    504: {"model": Problem, "description": "The answer took too long."},
}


def load_app(
    model: str,
    stock: Stock | None = None,
    forward_model: str | None = None,
    device: str | None = None,
    engine: str = "auto",
    limits: Limits | None = None,
    dtype: str = "auto",
    **options: Any,
) -> FastAPI:
    """Load a model, and build the application that serves it.

    Args:
        model: folder or Hub id. Clients see only the name of a folder, not its path.
        stock: for routes, the purchasable molecules.
        forward_model: for routes, folder or Hub id of a model that predicts products, as in [`load_forward`].
        device: the device of both models.
        engine: for texts, the engine that writes them, as in [`TextTask.use_engine`].
        dtype: the precision of both models, as in [`load_task`].
        limits, **options: as in [`build_app`].

    Raises:
        ValueError: as in [`load_task`] and [`build_app`], or the device or the engine is not available for the model.
        OSError: there is no such model.
    """
    limits = limits or Limits()
    task = load_task(model, stock, limits.max_new_tokens, dtype)
    move_to(task, device)
    if isinstance(task, RouteTask):
        task.forward = load_forward(forward_model, device, dtype)
    elif forward_model is not None:
        raise ValueError(f"A forward model is only supported for route models, and {model} is a text model.")
    if isinstance(task, TextTask):
        task.use_engine(engine)
    elif engine.startswith("ctranslate2"):
        raise ValueError(f"--engine {engine} is for text models, and this one writes routes.")
    name = Path(model).resolve().name if Path(model).is_dir() else model
    return build_app(task, name=name, limits=limits, **options)


def build_app(
    task: RouteTask | TextTask,
    *,
    name: str,
    limits: Limits | None = None,
    api_key: str | None = None,
    allowed_hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """Build the application that serves one model.

    Args:
        task: the model and its kind of requests.
        name: the name of the model, which /health shows.
        limits: bounds on requests.
        api_key: the key that requests must send as `Authorization: Bearer KEY`, except to /health and /ready.
        allowed_hosts: the host names that requests may use, as in Starlette's `TrustedHostMiddleware`.

    Returns:
        A FastAPI application. `app.state.batcher.stop()` finishes running requests and answers all others with 503.

    Raises:
        ValueError: `limits.refuse` names a field that cannot be refused.
    """
    limits = limits or Limits()
    batcher = Batcher(task, max_batch_size=limits.max_batch_size, max_queue=limits.max_queue)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.stop()
        await run_in_threadpool(batcher.join, limits.stop_timeout_s)

    app = FastAPI(
        title="Weft",
        version=__version__,
        description=f"Serves {name}: POST {task.path}.",
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.batcher, app.state.metrics, app.state.name, app.state.path = batcher, Metrics(batcher), name, task.path
    app.add_middleware(BoundedBody, seconds=limits.timeout_s, most=limits.max_request_bytes)
    if api_key is not None:
        app.add_middleware(AuthenticationMiddleware, backend=Key(api_key), on_error=_without_key)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts))
    app.add_middleware(Observed, metrics=app.state.metrics)
    add_reasons(app)
    add_page(app, task, name, limits)
    _add_health(app, batcher, task.path, name)
    if isinstance(task, RouteTask):
        _add_plan(app, task, limits)
        _add_refusal(app, "/translate", f"{name} writes routes: use POST /plan.")
    else:
        _add_translate(app, task, limits)
        _add_refusal(app, "/plan", f"{name} writes texts, not routes: use POST /translate.")
    return app


class Key(AuthenticationBackend):
    """Refuses requests without the key, except health checks."""

    def __init__(self, key: str):
        self.wanted = key.encode()

    async def authenticate(self, conn: HTTPConnection) -> None:
        scheme, _, given = conn.headers.get("authorization", "").partition(" ")
        # the bytes that were sent, which Starlette decodes as Latin-1
        is_right = secrets.compare_digest(given.strip().encode("latin-1"), self.wanted) and scheme.lower() == "bearer"
        # not the path of `conn.url`, which depends on the header `Host` of the request
        if conn.scope["path"] not in ("/health", "/ready") and not is_right:
            raise AuthenticationError("This server requires a key: send the header `Authorization: Bearer KEY`.")


def _without_key(request: HTTPConnection, error: Exception) -> JSONResponse:
    return _problem(401, str(error), {"WWW-Authenticate": "Bearer"})


def _plan_fields(task: RouteTask, limits: Limits, smiles: Any) -> dict[str, Any]:
    """Return the fields of a request for the settings, within the bounds of the server."""
    largest = {
        "beams": limits.max_beams, "num_augmentations": _MOST_AUGMENTATIONS, "seed": (1 << 32) - 1,
        "max_new_tokens": task.max_new_tokens, "time_limit": min(limits.max_time_limit, limits.timeout_s),
        "num_routes": _MOST_ROUTES,
    }  # fmt: skip
    found = request_fields(PlanSettings, largest) | request_fields(Constraints, {}, smiles)
    del found["enforce_limits"]
    return found


def _add_plan(app: FastAPI, task: RouteTask, limits: Limits) -> None:
    # the other half of the time is for waiting and drawing
    budget = min(limits.max_time_limit, limits.timeout_s / 2)
    most = min(limits.max_characters, _MOST_SMILES)
    smiles = Annotated[str, StringConstraints(min_length=1, max_length=most)]
    target = Annotated[str, StringConstraints(max_length=most)]
    number = Annotated[int, Field(ge=1, le=task.planner.most_steps)]
    tried = _one_or_more(number, _MOST_STEPS) | None
    materials = smiles | list[smiles | None] | None

    class Targets(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        targets: _one_or_more(target, limits.max_inputs) = Field(description="SMILES of a molecule, or a list.")  # type: ignore[valid-type]
        n_steps: _offered(tried, task.takes_steps) = Field(  # type: ignore[valid-type]
            None,
            description="Longest path of the routes, in reactions. If a list is given, each number is tried (default: a search to the stock if there is one, else 1 to 5).",
        )
        starting_material: _offered(materials, task.takes_material) = Field(  # type: ignore[valid-type]
            None, description="SMILES of a starting material, or a list with one (or null) for each target."
        )
        allow: list[Literal[tuple(RULES)]] = Field(  # type: ignore[valid-type]
            [],
            max_length=len(RULES),
            description="Rules to switch off, to allow unreadable molecules, molecules made from themselves, or reactions "
            "whose reactants lack atoms or are far larger than the product.",
        )
        max_routes: int | None = Field(
            None,
            ge=1,
            description="Largest number of distinct routes per target (default: all candidates, including failed ones).",
        )
        svg: bool = Field(False, description="Add a drawing to each route.")

    Wanted: Any = create_model("PlanRequest", __base__=Targets, **_plan_fields(task, limits, smiles))
    _check_refusals(limits, Wanted, "targets")

    class PlanAnswer(BaseModel):
        plans: list[dict[str, Any]] = Field(
            description="For each target: `target`, `problem` and the ranked `candidates`."
        )

    @app.post("/plan", responses=_PROBLEMS)
    async def plan(wanted: Wanted, request: Request) -> PlanAnswer:
        """Ranked routes to each target, in the form of "weftformer routes plan --json", with the names of their reactions."""
        _refuse(wanted, limits)
        works: Sequence[PlanRequest] = await _checked(partial(_planned, task, budget), wanted.model_dump())
        end = time.monotonic() + limits.timeout_s
        plans = await _answers(request, task, [(work, work.problem) for work in works], limits.timeout_s)
        plans = [
            plan or Plan(work.target, problem=_of_fields(work.problem or ""))
            for work, plan in zip(works, plans, strict=True)
        ]
        try:  # drawing would block the event loop
            told = await run_in_threadpool(_told, plans, wanted.max_routes, wanted.svg, end)
        except TimeoutError:
            raise _too_late(limits.timeout_s) from None
        return PlanAnswer(plans=told)


def _add_translate(app: FastAPI, task: TextTask, limits: Limits) -> None:
    text = Annotated[str, StringConstraints(max_length=limits.max_characters)]
    number = Annotated[float, Field(allow_inf_nan=False, strict=False)]

    class TranslateRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        texts: _one_or_more(text, limits.max_inputs) = Field(description="A text, or a list.")  # type: ignore[valid-type]
        beams: int = Field(min(4, limits.max_beams), ge=1, le=limits.max_beams, description="Width of the search.")
        max_new_tokens: int | None = Field(
            None, ge=1, le=task.max_new_tokens, description="Largest number of new tokens of a text."
        )
        conditions: list[number] = Field(
            [],
            max_length=1024,
            description="Condition values of each text, for a model that was trained with conditions.",
        )

    _check_refusals(limits, TranslateRequest, "texts")

    class TranslateAnswer(BaseModel):
        translations: list[str | None] = Field(description="One for each text; null if it has a problem.")
        problems: list[str | None] | None = Field(
            None, description="For each text, why it was not translated, or null; omitted if all were."
        )

    @app.post("/translate", responses=_PROBLEMS, response_model_exclude_defaults=True)
    async def translate(wanted: TranslateRequest, request: Request) -> TranslateAnswer:
        """The text that the model generates for each text. An empty text has an empty translation."""
        _refuse(wanted, limits)
        works = await _checked(partial(_works, task), wanted.model_dump())
        answers = await _answers(request, task, works, limits.timeout_s)
        problems = [problem and _of_fields(problem) for _, problem in works]
        translations = [
            "" if answer is None and problem is None else answer
            for answer, problem in zip(answers, problems, strict=True)
        ]
        return TranslateAnswer(translations=translations, problems=problems if any(problems) else None)


def _add_health(app: FastAPI, batcher: Batcher, path: str, name: str) -> None:
    class Health(BaseModel):
        status: Literal["ready", "stopping"]
        model: str
        endpoint: str
        version: str
        waiting: int = Field(description="Inputs in the queue.")
        computing: int = Field(description="Inputs being computed.")

    @app.get("/health")
    async def health() -> Health:
        """Whether the server is running, and how many inputs are waiting."""
        return Health(
            status="ready" if batcher.is_ready else "stopping", model=name, endpoint=path, version=__version__,
            waiting=batcher.waiting, computing=batcher.computing,
        )  # fmt: skip

    @app.get(
        "/ready",
        responses={
            200: {"model": Health, "description": "The model accepts requests."},
            503: {"model": Health, "description": "The server is stopping."},
        },
    )
    async def ready() -> JSONResponse:
        """Whether the model accepts requests."""
        return JSONResponse((await health()).model_dump(), status_code=200 if batcher.is_ready else 503)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The model, as a list like that of OpenAI's API."""
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "weftformer"}]}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_refusal(app: FastAPI, path: str, reason: str) -> None:
    @app.post(path, include_in_schema=False)
    async def refuse() -> None:
        raise HTTPException(404, reason)


def add_reasons(app: FastAPI) -> None:
    """Answer refused requests with `{"detail": reason}`, which quotes only the start of the input."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return _problem(422, "; ".join(map(_described, error.errors()[:5])))

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        reason = error.detail
        if error.status_code == 400 and error.__cause__ is not None:  # FastAPI's reason does not contain the cause
            reason = f"The body cannot be read as JSON: {error.__cause__}"
        return _problem(error.status_code, reason, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # only for the log, with nginx's code


def _described(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item["loc"]))
    if item["type"] == "json_invalid":
        return f"{place}: {item['msg']}: {item['ctx']['error']}"
    if item["type"] in ("missing", "extra_forbidden"):  # the place is enough for these
        return f"{place}: {item['msg']}"
    given = item["input"]
    return f"{place}: {item['msg']}: got {shown(given) if isinstance(given, str) else _REPR.repr(given)}"


def _problem(status: int, reason: str, headers: Any = None) -> JSONResponse:
    # a lone surrogate can be written in JSON, but not in UTF-8
    reason = reason.encode("utf-8", "backslashreplace").decode()
    return JSONResponse(
        {"detail": reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."}, status_code=status, headers=headers
    )


def _planned(task: RouteTask, budget: float, values: dict[str, Any]) -> Sequence[Any]:
    """Return the works of a request. Unreadable molecules in its settings are refused like unreadable targets."""
    asked = {name: values.pop(name) for name in ("targets", "n_steps", "starting_material")}
    return task.works(asked.pop("targets"), PlanSettings.from_options(values), budget=budget, on_error="skip", **asked)


def _works(task: TextTask, values: dict[str, Any]) -> list[tuple[Any, str | None]]:
    """Return the work and the problem of each text. An empty text has neither."""
    found: list[tuple[Any, str | None]] = []
    for text in values.pop("texts"):
        try:
            found.append((task.works([text], **values)[0] if text.strip() else None, None))
        except ValueError as error:
            found.append((None, str(error)))
    return found


def _check_refusals(limits: Limits, kind: type[BaseModel], needed: str) -> None:
    allowed = kind.model_fields.keys() - {needed}
    for name in limits.refuse:
        if name not in allowed:
            raise ValueError(f"refuse={name!r} is not allowed: choose one of {', '.join(sorted(allowed))}.")


def _refuse(wanted: BaseModel, limits: Limits) -> None:
    for name in wanted.model_fields_set & set(limits.refuse):
        raise HTTPException(422, f"body.{name}: This server does not allow this field.")


def _of_fields(reason: str) -> str:
    """Replace a command's options and Python arguments in a reason by the fields of a request."""
    reason = re.sub(r" `--no-limits`[^.]*\.", "", reason)
    reason = re.sub(r"`--[^`]*` \(`(?:Constraints\()?([^`]*?)\)?` in Python\)", r"`\1`", reason)
    return re.sub(r" \(`--[^`]*`\)", "", reason)


async def _checked(check: Any, values: dict[str, Any]) -> Sequence[Any]:
    """Return the works of a request. They are checked in a thread, because RDKit would block the event loop."""
    try:
        return await run_in_threadpool(check, values)
    except ValueError as error:
        raise HTTPException(422, _of_fields(str(error))) from error


async def _answers(
    request: Request, task: RouteTask | TextTask, checked: Sequence[tuple[Any, str | None]], timeout_s: float
) -> list[Any]:
    """Submit the inputs of a request to the batcher, and wait for the answers. Abandon the inputs after an error.

    Args:
        request: the request, whose body has been read.
        task: the task.
        checked: the inputs of the request, each with its problem; None is skipped.
        timeout_s: the longest time to wait, in seconds.

    Returns:
        An answer for each input, None for those with a problem.

    Raises:
        HTTPException: with the status 422, 429, 500, 503 or 504, and the reason.
        ClientDisconnect: the client has disconnected.
    """
    batcher, metrics = request.app.state.batcher, request.app.state.metrics
    is_asked = [work is not None and problem is None for work, problem in checked]
    works = [work for (work, _), asked in zip(checked, is_asked, strict=True) if asked]
    problems = [problem for _, problem in checked if problem is not None]
    if len(problems) == len(checked):
        raise HTTPException(422, _of_fields("; ".join(dict.fromkeys(problems))))
    try:
        items = batcher.submit(works)
    except QueueFull:
        reason = (
            f"{batcher.waiting} inputs are waiting, and the queue has no room for these {len(works)}: try again later."
        )
        raise HTTPException(429, reason, headers={"Retry-After": "1"}) from None
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    computed = asyncio.gather(*(asyncio.wrap_future(item.answer) for item in items))
    # read an error that occurs after the request has ended, because asyncio would report it as never retrieved
    computed.add_done_callback(lambda future: future.cancelled() or future.exception())
    left = asyncio.ensure_future(_client_leaves(request))
    try:
        await asyncio.wait((computed, left), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if computed.done():
            answers = computed.result()
            # thousands of candidates take a second, which would block the event loop
            metrics.tokens.inc(await run_in_threadpool(lambda: sum(map(task.count_tokens, answers))))
            return [answers.pop(0) if asked else None for asked in is_asked]
        if left.done():
            raise ClientDisconnect
        raise _too_late(timeout_s)
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    except Failed as error:
        metrics.failures.inc()
        raise HTTPException(500, f"The model failed ({error}); the server's log has the cause.") from None
    finally:
        batcher.abandon(items)
        computed.cancel()
        left.cancel()


def _too_late(timeout_s: float) -> HTTPException:
    """Return the error of a request whose answer takes longer than `timeout_s` seconds."""
    return HTTPException(504, f"No answer within {timeout_s:g} s.")


async def _client_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class BoundedBody:
    """Refuses requests whose body does not arrive in time (408) or is too large (413)."""

    def __init__(self, app: ASGIApp, seconds: float, most: int):
        self.app, self.seconds, self.most = app, seconds, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        deadline: float | None = asyncio.get_running_loop().time() + self.seconds
        announced, arrived = Headers(scope=scope).get("content-length", ""), 0

        async def receive_in_time() -> Message:
            nonlocal deadline, arrived
            if arrived == 0 and announced.isdecimal():
                self._check(int(announced))
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"The body did not arrive within {self.seconds:g} s.") from None
            if not message.get("more_body", False):
                deadline = None  # the body is complete, and further calls wait for the client to disconnect
            arrived += len(message.get("body", b""))
            self._check(arrived)
            return message

        await self.app(scope, receive_in_time, send)

    def _check(self, size: int) -> None:
        if size > self.most:
            raise HTTPException(413, f"The body is larger than {self.most} bytes.")


def _one_or_more(kind: Any, most: int) -> Any:
    """Return the type of a list of 1 to `most` items. A single item is accepted as a list of one."""
    return Annotated[
        list[kind],
        Field(min_length=1, max_length=most),
        BeforeValidator(
            lambda value: value if isinstance(value, list) else [value], json_schema_input_type=kind | list[kind]
        ),
    ]


def _offered(kind: Any, is_offered: bool) -> Any:
    """Return the type of a field. Fields that the model refuses are left out of the schema."""
    return kind if is_offered else Annotated[kind, SkipJsonSchema()]


def _told(plans: Sequence[Plan], max_routes: int | None, svg: bool, end: float) -> list[dict[str, Any]]:
    """Return the plans with the names of their reactions, and drawings if requested. Equal routes share a drawing.

    Raises:
        TimeoutError: `end`, a time of `time.monotonic`, passed before all was done.
    """

    @cache
    def drawing(route: Route, missing: tuple[str, ...] | None) -> str:
        from ..routes.drawing.svg import route_svg

        return route_svg(route, missing=missing)

    def entry(candidate: Candidate) -> dict[str, Any]:
        if time.monotonic() > end:
            raise TimeoutError
        told = candidate.to_dict()
        if svg and candidate.route is not None:
            told["svg"] = drawing(candidate.route, candidate.missing)
        return told

    found = []
    for plan in plans:
        candidates = plan.candidates if max_routes is None else plan.distinct[:max_routes]
        found.append(replace(plan, candidates=[]).to_dict() | {"candidates": [entry(one) for one in candidates]})
    return found

"""The HTTP application: the endpoints of a task, /health, /ready, /metrics, /v1/models, the pages at / and /docs."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from weakref import WeakSet

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from ..common.extensions import extension
from ..configuration.version import __version__
from ..hub.loading import kind_of_output, load_generator, use_threads
from .batching import Batcher, Threads
from .endpoint import Task, add_endpoint
from .limits import Limits
from .middleware import AllowedHosts, BoundedBody, Metrics, Observed, add_reasons, problem
from .pages import add_home, add_page
from .translate import TranslateTask

# The number of threads that check requests and write answers.
_THREADS = 40
# The paths that need no key: the page has a field for it.
_OPEN = ("/", "/health", "/ready")


def load_task(
    model: str,
    *,
    device: str | None = None,
    dtype: str = "auto",
    threads: int | None = None,
    max_new_tokens: int | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> Any:
    """Load a model with its tokenizer, and make the task of its kind of output.

    Args:
        model: the folder or repository.
        device, dtype: as in [`~hub.loading.load_generator`].
        threads: the number of torch's threads in this process, as in [`~hub.loading.use_threads`].
        max_new_tokens: as in [`~inference.TextTask`].
        trust_remote_code: whether to run the code beside the weights.
        options: what the server of an extension takes, such as `stock` for a route model.

    Raises:
        ValueError: as in [`~hub.loading.load_generator`], or an option does not fit the model.
        OSError: there is no such model.
    """
    network, tokenizer = load_generator(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    use_threads(network, threads)
    if (server := extension(kind_of_output(network, tokenizer), "server")) is not None:
        return server.load_task(network, tokenizer, max_new_tokens, **options)
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{model} writes texts: it takes no {name.replace('_', ' ')}.")
    return TranslateTask(network, tokenizer, max_new_tokens)


def build_app(
    task: Task,
    *,
    name: str,
    limits: Limits | None = None,
    api_key: str | None = None,
    allowed_hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """Build the application that serves one model.

    Args:
        task: the model and its endpoints.
        name: the name of the model, which /health shows: of a folder not its path.
        limits: bounds on requests.
        api_key: the key that requests must send as `Authorization: Bearer KEY`, except to /, /health and /ready.
        allowed_hosts: the host names that requests may use, as in [`AllowedHosts`], or "*" for any.

    Returns:
        A FastAPI application. `app.state.batcher.stop()` finishes running requests and answers all others with 503.

    Raises:
        ValueError: `limits.refuse` names a field that cannot be refused.
    """
    limits = limits or Limits()
    endpoints = task.endpoints(limits)
    first, pages = endpoints[0], [endpoint for endpoint in endpoints if endpoint.page is not None]
    names = sorted(first.request.model_fields.keys() - {next(iter(first.form))})
    for field in limits.refuse:
        if field not in names:
            raise ValueError(f"refuse={field!r} is not allowed: choose one of {', '.join(names)}.")
    batcher = Batcher(
        task, max_batch_size=limits.max_batch_size, max_queue=limits.max_queue, max_seconds=limits.timeout_s
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.stop()
        await run_in_threadpool(batcher.join, limits.stop_timeout_s)

    app = FastAPI(
        title="Weft",
        version=__version__,
        description=f"Serves {name}: POST {first.path}.",
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.batcher, app.state.metrics, app.state.name, app.state.path = batcher, Metrics(batcher), name, first.path
    app.state.has_key = api_key is not None
    # the calls that are not answered yet, the threads of their checks and answers, and whether none may go on
    app.state.calls, app.state.is_ending = WeakSet(), asyncio.Event()
    app.state.threads = Threads(lambda function: function(), _THREADS, limits.max_queue, limits.timeout_s)
    queues = [app.state.threads, *(endpoint.queue for endpoint in endpoints if isinstance(endpoint.queue, Threads))]
    app.add_middleware(BoundedBody, seconds=limits.timeout_s, max_bytes=limits.max_request_bytes)
    if api_key is not None:
        app.add_middleware(
            AuthenticationMiddleware, backend=Key(api_key, [page.path for page in pages]), on_error=_without_key
        )
    if "*" not in allowed_hosts:
        app.add_middleware(AllowedHosts, names=allowed_hosts)
    app.add_middleware(Observed, metrics=app.state.metrics)
    add_reasons(app, f"There is no such path: {name} answers POST {first.path}.")
    add_home(app, task, first, pages, limits=limits)
    for endpoint in pages:
        add_page(app, endpoint)
    _add_health(app, batcher, queues, first.path, name)
    for endpoint in endpoints:
        add_endpoint(app, endpoint, limits)
    return app


class Key(AuthenticationBackend):
    """Refuses requests without the key, except for pages and health checks."""

    def __init__(self, key: str, pages: Iterable[str] = ()):
        self.key, self.pages = key.encode(), set(pages)

    async def authenticate(self, conn: HTTPConnection) -> None:
        scheme, _, key = conn.headers.get("authorization", "").partition(" ")
        # the bytes that were sent, which Starlette decodes as Latin-1
        is_right = secrets.compare_digest(key.strip().encode("latin-1"), self.key) and scheme.lower() == "bearer"
        # not the path of `conn.url`, which depends on the header `Host` of the request
        path, is_page = conn.scope["path"], conn.scope["method"] == "GET" and conn.scope["path"] in self.pages
        if path not in _OPEN and not is_page and not is_right:
            raise AuthenticationError("This server requires a key: send the header `Authorization: Bearer KEY`.")


def _without_key(request: HTTPConnection, error: Exception) -> JSONResponse:
    return problem(401, str(error), {"WWW-Authenticate": "Bearer"})


def _add_health(app: FastAPI, batcher: Batcher, queues: Sequence[Threads], path: str, name: str) -> None:
    class Health(BaseModel):
        status: Literal["ready", "stopping", "stuck"] = Field(
            description="`stuck`: a step of the model or the search, or all threads of requests, take longer than a "
            "request may."
        )
        model: str
        endpoint: str
        version: str
        waiting: int = Field(description="Inputs in the queue.")
        computing: int = Field(description="Inputs being computed.")

    @app.get("/health")
    async def health() -> Health:
        """Whether the server is running, and how many inputs are waiting."""
        status = batcher.status
        return Health(
            status="stuck" if status == "ready" and any(queue.is_stuck for queue in queues) else status,
            model=name, endpoint=path, version=__version__, waiting=batcher.waiting, computing=batcher.computing,
        )  # fmt: skip

    @app.get(
        "/ready",
        response_description="The model accepts requests.",
        responses={503: {"model": Health, "description": "The server is stopping or stuck."}},
    )
    async def ready(response: Response) -> Health:
        """Whether the model accepts requests."""
        answer = await health()
        response.status_code = 200 if answer.status == "ready" else 503
        return answer

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The model, as a list like that of OpenAI's API."""
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "weftformer"}]}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)

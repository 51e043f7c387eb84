"""Endpoints: requests are checked, queued, computed and answered within the limits of the server."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import ClientDisconnect

from .batching import Failed, Item, Pools, Queue, QueueFull, Stopping
from .limits import Limits
from .middleware import Metrics


class Problem(BaseModel):
    """An error of a request or of the server."""

    detail: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
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
# What a queue and its inputs raise, and a time limit.
_ERRORS = (QueueFull, Stopping, Failed, TimeoutError, ValueError)

# An input, or None if there is nothing to compute, and the reason why it is refused, or None.
Checked = tuple[Any, str | None]


@dataclass
class Page:
    """A page at the path of an endpoint.

    Args:
        label: the text of the links to it.
        content: returns its HTML and the only script in it. The argument says whether requests need a key.
    """

    label: str
    content: Callable[[bool], tuple[str, str]]


@dataclass
class Endpoint:
    """A path that answers POST.

    Args:
        path: the path.
        summary: what the endpoint does, a sentence.
        request: the body of a request.
        check: returns the inputs of a request from its fields and a function for parts of the answer, or raises a
            ValueError for the whole request.
        respond: returns the answer from the request, what was computed for each input, or None, the problem of each
            input, or None, and the time of `time.monotonic` after which it raises a TimeoutError.
        answer: the body of the answer, if it is JSON.
        respond_html: returns the same as HTML, for the page at `/`.
        row: returns a line of the answer from the request and a part, if the answer is a stream of JSON lines.
            `respond` then returns the last lines.
        count_tokens: returns the number of tokens of what was computed for an input.
        queue: computes the inputs (default: the batcher of the server).
        form: the labels of the fields that the form on the page at `/` has, by their names. The inputs come first.
        page: a page at the same path.
    """

    path: str
    summary: str
    request: type[BaseModel]
    check: Callable[[dict[str, Any], Callable[[Any], None]], Sequence[Checked]]
    respond: Callable[[Any, Sequence[Any], Sequence[str | None], float], Any]
    answer: type[BaseModel] | None = None
    respond_html: Callable[[Any, Sequence[Any], Sequence[str | None], float], str] | None = None
    row: Callable[[Any, Any], dict[str, Any]] | None = None
    count_tokens: Callable[[Any], int] = lambda result: 0
    queue: Queue | None = None
    form: dict[str, str] = field(default_factory=dict)
    page: Page | None = None


class Task(Pools, Protocol):
    """A loaded model and its endpoints.

    Attributes:
        example: the body of an example request to the first endpoint.
        public_example: the same for a page that needs no key.
    """

    example: dict[str, Any]
    public_example: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return facts about the model and its settings, for the page."""

    def endpoints(self, limits: Limits) -> Sequence[Endpoint]:
        """Return the endpoints within the limits of a server. The first has the form on the page at `/`."""


def one_or_more(kind: Any, most: int) -> Any:
    """Return the type of a list of 1 to `most` items. A single item is accepted as a list of one."""

    def as_list(value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    validator = BeforeValidator(as_list, json_schema_input_type=kind | list[kind])
    return Annotated[list[kind], Field(min_length=1, max_length=most), validator]


def add_endpoint(app: FastAPI, endpoint: Endpoint, limits: Limits) -> None:
    """Add an endpoint to an application, whose state has a batcher and metrics."""
    service = _Service(endpoint, limits, endpoint.queue or app.state.batcher, app.state.metrics)
    stream: dict[str, Any] = {} if endpoint.row is None else {"response_class": StreamingResponse}

    @app.post(
        endpoint.path,
        summary=endpoint.summary,
        response_model=endpoint.answer,
        response_model_exclude_defaults=True,
        responses=PROBLEMS,
        **stream,
    )
    async def answer(body: endpoint.request, request: Request) -> Any:  # type: ignore[name-defined]
        for name in body.model_fields_set & set(limits.refuse):
            raise HTTPException(422, f"body.{name}: This server does not allow this field.")
        return await service.answer(body, request)


@dataclass
class _Service:
    endpoint: Endpoint
    limits: Limits
    queue: Queue
    metrics: Metrics

    async def answer(self, body: BaseModel, request: Request) -> Any:
        endpoint, end = self.endpoint, time.monotonic() + self.limits.timeout_s
        parts, loop = asyncio.Queue[Any](), asyncio.get_running_loop()

        def report(part: Any) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, part)

        try:  # in a thread, because RDKit would block the event loop
            checked = await run_in_threadpool(endpoint.check, body.model_dump(), report)
            problems = [problem and _of_fields(problem) for _, problem in checked]
            if all(problems):
                raise ValueError("; ".join(map(str, dict.fromkeys(problems))))
            places = [place for place, (input, problem) in enumerate(checked) if input is not None and not problem]
            items = self.queue.submit([checked[place][0] for place in places])
            if endpoint.row is not None:
                lines = self._lines(items, body, parts, end)
                return StreamingResponse(lines, media_type="application/x-ndjson")
            results = await _results(request, self.queue, items, end)
        except _ERRORS as error:
            raise self._refusal(error) from error
        # thousands of candidates take a second, which would block the event loop
        self.metrics.tokens.inc(await run_in_threadpool(lambda: sum(map(endpoint.count_tokens, results))))
        answers: list[Any] = [None] * len(checked)
        for place, result in zip(places, results, strict=True):
            answers[place] = result
        accepts_html = "text/html" in request.headers.get("accept", "")
        try:
            if accepts_html and endpoint.respond_html is not None:
                return HTMLResponse(await run_in_threadpool(endpoint.respond_html, body, answers, problems, end))
            return await run_in_threadpool(endpoint.respond, body, answers, problems, end)
        except TimeoutError as error:
            raise self._refusal(error) from error

    async def _lines(
        self, items: Sequence[Item], body: BaseModel, parts: asyncio.Queue[Any], end: float
    ) -> AsyncIterator[str]:
        """Yield the lines of a stream. After the first of them, an error is a line too. Abandon the input at the end.

        A client that disconnects closes the stream.
        """
        endpoint, answer = self.endpoint, asyncio.wrap_future(items[0].answer)
        assert endpoint.row is not None
        answer.add_done_callback(parts.put_nowait)
        try:
            while (part := await asyncio.wait_for(parts.get(), end - time.monotonic())) is not answer:
                yield _line(await run_in_threadpool(endpoint.row, body, part))
            result = answer.result()
            for row in await run_in_threadpool(lambda: list(endpoint.respond(body, [result], [None], end))):
                yield _line(row)
        except _ERRORS as error:
            yield _line({"detail": self._refusal(error).detail})
        finally:
            self.queue.abandon(items)
            answer.cancel()

    def _refusal(self, error: Exception) -> HTTPException:
        """Return the status of an error, and the reason in words."""
        if isinstance(error, QueueFull):
            return HTTPException(429, str(error), headers={"Retry-After": "1"})
        if isinstance(error, Stopping):
            return HTTPException(503, "The server is stopping and accepts no more requests.")
        if isinstance(error, Failed):
            self.metrics.failures.inc()
            return HTTPException(500, f"The model failed ({error}); the server's log has the cause.")
        if isinstance(error, TimeoutError):
            return HTTPException(504, f"No answer within {self.limits.timeout_s:g} s.")
        return HTTPException(422, _of_fields(str(error)))


async def _results(request: Request, queue: Queue, items: Sequence[Item], end: float) -> list[Any]:
    """Wait for the results of inputs. Abandon them after an error.

    Raises:
        TimeoutError: they are not there at a time of `time.monotonic`.
        ClientDisconnect: the client has disconnected.
        Exception: the error of an input.
    """
    results = asyncio.gather(*(asyncio.wrap_future(item.answer) for item in items))
    # read an error that occurs after the request has ended, because asyncio would report it as never retrieved
    results.add_done_callback(lambda future: future.cancelled() or future.exception())
    disconnection = asyncio.ensure_future(_disconnection(request))
    try:
        seconds = max(0.0, end - time.monotonic())
        await asyncio.wait((results, disconnection), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if results.done():
            return results.result()
        raise ClientDisconnect if disconnection.done() else TimeoutError
    finally:
        queue.abandon(items)
        results.cancel()
        disconnection.cancel()


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _of_fields(reason: str) -> str:
    """Replace a command's options and Python arguments in a reason by the fields of a request."""
    reason = re.sub(r" `--no-limits`[^.]*(?:\.|$)", "", reason)
    reason = re.sub(r"`--[^`]*` \(`(?:Constraints\()?([^`]*?)\)?` in Python\)", r"`\1`", reason)
    return re.sub(r" \(`--[^`]*`\)", "", reason)

"""Endpoints: requests are checked, queued, computed and answered within the limits of the server."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, HTTPException, Request
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


@dataclass(kw_only=True)
class Endpoint:
    """A path that answers POST with what its queue computes for the only input of a request, a response.

    Args:
        path: the path.
        summary: what the endpoint does, a sentence.
        request: the body of a request.
        check: returns the inputs of a request from its fields and a function for parts of the answer, or raises a
            ValueError for the whole request.
        queue: computes the inputs (default: the batcher of the server).
        title: the heading of the page at `/`, if that has the form of this endpoint.
        form: the labels of the fields of that form, by their names. The inputs come first.
        style: a style sheet for the answers on that page.
        page: a page at the same path.
    """

    path: str
    summary: str
    request: type[BaseModel]
    check: Callable[[dict[str, Any], Callable[[Any], None]], Sequence[Checked]]
    queue: Queue | None = None
    title: str = ""
    form: dict[str, str] = field(default_factory=dict)
    style: str = ""
    page: Page | None = None

    @property
    def response(self) -> dict[str, Any]:
        """The arguments of FastAPI's decorator that describe the answer."""
        return {"response_model": None}

    async def answer(self, call: "_Call") -> Any:
        """Return the answer to a request whose inputs are in the queue."""
        [response] = await call.results()
        return response


@dataclass(kw_only=True)
class JsonEndpoint(Endpoint):
    """An endpoint that answers with JSON when all inputs are computed, or with HTML for the page at `/`.

    Args:
        respond: returns the answer from the request, what was computed for each input, or None, the problem of each
            input, or None, and the time of `time.monotonic` after which it raises a TimeoutError.
        model: the body of the answer.
        respond_html: returns the same as HTML.
        count_tokens: returns the number of tokens of what was computed for an input.
    """

    respond: Callable[[Any, Sequence[Any], Sequence[str | None], float], Any]
    model: type[BaseModel]
    respond_html: Callable[[Any, Sequence[Any], Sequence[str | None], float], str] | None = None
    count_tokens: Callable[[Any], int]

    @property
    def response(self) -> dict[str, Any]:
        return {"response_model": self.model, "response_model_exclude_defaults": True}

    async def answer(self, call: "_Call") -> Any:
        results = await call.results()
        # thousands of candidates take a second, which would block the event loop
        call.metrics.tokens.inc(await call.in_thread(lambda: sum(map(self.count_tokens, results))))
        answers: list[Any] = [None] * len(call.problems)
        for place, result in zip(call.places, results, strict=True):
            answers[place] = result
        arguments = call.body, answers, call.problems, call.end
        if self.respond_html is not None and "text/html" in call.request.headers.get("accept", ""):
            return HTMLResponse(await call.in_thread(self.respond_html, *arguments))
        return await call.in_thread(self.respond, *arguments)


@dataclass(kw_only=True)
class StreamEndpoint(Endpoint):
    """An endpoint that answers with lines of JSON for its only input, each as soon as it is known.

    Args:
        row: returns a line from the request and a part of the answer.
        last_row: returns the last line from what was computed.
    """

    row: Callable[[Any, Any], dict[str, Any]]
    last_row: Callable[[Any], dict[str, Any]]

    @property
    def response(self) -> dict[str, Any]:
        return {"response_model": None, "response_class": StreamingResponse}

    async def answer(self, call: "_Call") -> Any:
        return StreamingResponse(self._lines(call), media_type="application/x-ndjson")

    async def _lines(self, call: "_Call") -> AsyncIterator[str]:
        """Yield the lines. After the first of them, an error is a line too. Abandon the input at the end.

        A client that disconnects closes the stream.
        """
        answer = asyncio.wrap_future(call.items[0].answer)
        answer.add_done_callback(call.parts.put_nowait)
        try:
            while (part := await call.in_time(call.parts.get())) is not answer:
                yield _line(await call.in_thread(self.row, call.body, part))
            yield _line(await call.in_thread(self.last_row, answer.result()))
        except HTTPException as error:
            yield _line({"detail": error.detail})
        except _ERRORS as error:
            yield _line({"detail": call.refusal(error).detail})
        finally:
            call.queue.abandon(call.items)
            call.state.calls.discard(call)
            answer.cancel()


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
    queue, metrics = endpoint.queue or app.state.batcher, app.state.metrics

    @app.post(endpoint.path, summary=endpoint.summary, responses=PROBLEMS, **endpoint.response)
    async def answer(body: endpoint.request, request: Request) -> Any:  # type: ignore[name-defined]
        for name in body.model_fields_set & set(limits.refuse):
            raise HTTPException(422, f"body.{name}: This server does not allow this field.")
        return await _Call(endpoint, limits, queue, metrics, body, request).answer()


class _Call:
    """A request to an endpoint.

    Attributes:
        end: the time of `time.monotonic` after which there is no answer.
        problems: the problem of each input, or None.
        places: the places of the inputs without a problem.
        items: these inputs in the queue.
        parts: the parts of the answer that were reported.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits, queue: Queue, metrics: Metrics, body: BaseModel, request: Request
    ):
        self.endpoint, self.limits, self.queue, self.metrics = endpoint, limits, queue, metrics
        self.body, self.request, self.end = body, request, time.monotonic() + limits.timeout_s
        self.problems: list[str | None] = []
        self.places: list[int] = []
        self.items: list[Item] = []
        self.parts = asyncio.Queue[Any]()
        self.state = request.app.state
        self.state.calls.add(self)

    async def answer(self) -> Any:
        answer = None
        try:
            if self.state.batcher.status == "stopping":
                raise Stopping
            await self._submit()
            answer = await self.endpoint.answer(self)
            return answer
        except _ERRORS as error:
            raise self.refusal(error) from error
        finally:
            if not isinstance(answer, StreamingResponse):  # whose lines end later
                self.state.calls.discard(self)

    async def _submit(self) -> None:
        """Check the request, and put its inputs into the queue."""
        loop = asyncio.get_running_loop()

        def report(part: Any) -> None:
            loop.call_soon_threadsafe(self.parts.put_nowait, part)

        # in a thread, because RDKit would block the event loop
        inputs = await self.in_thread(self.endpoint.check, self.body.model_dump(), report)
        self.problems = [problem for _, problem in inputs]
        if all(self.problems):
            raise ValueError("; ".join(map(str, dict.fromkeys(self.problems))))
        self.places = [place for place, (input, problem) in enumerate(inputs) if input is not None and not problem]
        self.items = self.queue.submit([inputs[place][0] for place in self.places])

    async def results(self) -> list[Any]:
        """Wait for the results of the inputs. Abandon them after an error.

        Raises:
            HTTPException: they are not there in time, or one of them is an error.
            ClientDisconnect: the client has disconnected.
        """
        results = asyncio.gather(*(asyncio.wrap_future(item.answer) for item in self.items))
        # read an error that occurs after the request has ended, because asyncio would report it as never retrieved
        results.add_done_callback(lambda future: future.cancelled() or future.exception())
        disconnection = asyncio.ensure_future(_disconnection(self.request))
        try:
            return await self.in_time(results, disconnection)
        finally:
            self.queue.abandon(self.items)
            disconnection.cancel()

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread, as in [`in_time`]. It holds the thread until it has ended."""
        [item] = self.state.threads.submit([partial(function, *arguments)])
        return await self.in_time(asyncio.wrap_future(item.answer))

    async def in_time(self, result: Awaitable[Any], disconnection: asyncio.Future[None] | None = None) -> Any:
        """Wait for a result, while the request has time, its client is there, and the server does not end.

        Raises:
            HTTPException: it is not there in time, or an error.
            ClientDisconnect: the client has disconnected.
        """
        result, ending = asyncio.ensure_future(result), asyncio.ensure_future(self.state.is_ending.wait())
        try:
            events = {result, ending, *([] if disconnection is None else [disconnection])}
            seconds = max(0.0, self.end - time.monotonic())
            await asyncio.wait(events, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if disconnection is not None and disconnection.done():
                raise ClientDisconnect
            raise Stopping if ending.done() else TimeoutError
        except _ERRORS as error:
            raise self.refusal(error) from error
        finally:
            result.cancel()
            ending.cancel()

    def refusal(self, error: Exception) -> HTTPException:
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
        return HTTPException(422, str(error))


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"

"""The endpoint of a task: its requests are checked, queued, computed and answered within the limits of the server."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import ClientDisconnect

from .batching import Failed, Item, QueueFull, Stopping
from .limits import Limits

STOPPING = "The server is stopping and accepts no more requests."


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

# An input, or None if there is nothing to compute, and the reason why it is refused, or None.
Checked = tuple[Any, str | None]


@dataclass
class Endpoint:
    """What a task says about its requests and answers.

    Args:
        request: the body of a request.
        inputs: the field with the inputs, which is required.
        answer: the body of an answer.
        check: returns the inputs of a request from its fields, or raises a ValueError for the whole request.
        respond: returns an answer from the request, the answer of the model to each input, or None, the problem of
            each input, or None, and the time of `time.monotonic` after which it raises a TimeoutError.
        page: the same as HTML for the page, from the answer that `respond` would get.
        form: the labels of the fields that the form on the page has, by their names.
        add_more: adds further paths of the task to an application.
        pages: the labels of further pages by their paths, which need no key.
    """

    request: type[BaseModel]
    inputs: str
    answer: type[BaseModel]
    check: Callable[[dict[str, Any]], Sequence[Checked]]
    respond: Callable[[Any, Sequence[Any], Sequence[str | None], float], Any]
    page: Callable[[Any, Sequence[Any], Sequence[str | None], float], str]
    form: dict[str, str]
    add_more: Callable[[FastAPI], None] | None = None
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Stream:
    """An endpoint of a task that answers with a stream of JSON lines.

    Args:
        path, summary, request: as in [`Task`] and [`Endpoint`].
        check: returns the input of a request from its fields and a function, which the pool calls with each part of
            the answer, or raises a ValueError.
        row: returns the line of a part, from the request.
        end: returns the last lines, from the answer of the model.
    """

    path: str
    summary: str
    request: type[BaseModel]
    check: Callable[[dict[str, Any], Callable[[Any], None]], Any]
    row: Callable[[Any, Any], dict[str, Any]]
    end: Callable[[Any], Iterable[dict[str, Any]]]


def one_or_more(kind: Any, most: int) -> Any:
    """Return the type of a list of 1 to `most` items. A single item is accepted as a list of one."""
    return Annotated[
        list[kind],
        Field(min_length=1, max_length=most),
        BeforeValidator(
            lambda value: value if isinstance(value, list) else [value], json_schema_input_type=kind | list[kind]
        ),
    ]


def add_endpoint(app: FastAPI, task: Any, endpoint: Endpoint, limits: Limits) -> None:
    """Add POST `task.path` to an application.

    Raises:
        ValueError: `limits.refuse` names a field that cannot be refused.
    """
    allowed = endpoint.request.model_fields.keys() - {endpoint.inputs}
    for name in limits.refuse:
        if name not in allowed:
            raise ValueError(f"refuse={name!r} is not allowed: choose one of {', '.join(sorted(allowed))}.")

    @app.post(
        task.path,
        summary=task.summary,
        response_model=endpoint.answer,
        response_model_exclude_defaults=True,
        responses=PROBLEMS,
    )
    async def answer(body: endpoint.request, request: Request) -> Any:  # type: ignore[name-defined]
        _check_refused(body, limits)
        end = time.monotonic() + limits.timeout_s
        try:  # in a thread, because RDKit would block the event loop
            checked = await run_in_threadpool(endpoint.check, body.model_dump())
        except ValueError as error:
            raise HTTPException(422, _of_fields(str(error))) from error
        checked = [(input, problem and _of_fields(problem)) for input, problem in checked]
        answers = await _computed(request, task, checked, limits.timeout_s)
        is_page = "text/html" in request.headers.get("accept", "")
        respond = endpoint.page if is_page else endpoint.respond
        try:
            content = await run_in_threadpool(respond, body, answers, [problem for _, problem in checked], end)
        except TimeoutError:
            raise too_late(limits.timeout_s) from None
        return HTMLResponse(content) if is_page else content


async def _computed(request: Request, task: Any, checked: Sequence[Checked], timeout_s: float) -> list[Any]:
    """Submit the inputs of a request to the batcher, and wait for the answers. Abandon the inputs after an error.

    Args:
        request: the request, whose body has been read.
        task: the task.
        checked: the inputs of the request.
        timeout_s: the longest time to wait, in seconds.

    Returns:
        An answer for each input, None for those that are not computed.

    Raises:
        HTTPException: with the status 422, 429, 500, 503 or 504, and the reason.
        ClientDisconnect: the client has disconnected.
    """
    metrics = request.app.state.metrics
    inputs = [input for input, problem in checked if input is not None and problem is None]
    problems = [problem for _, problem in checked if problem is not None]
    if len(problems) == len(checked):
        raise HTTPException(422, "; ".join(dict.fromkeys(problems)))
    items = _submitted(request, inputs)
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
            return [None if input is None or problem else answers.pop(0) for input, problem in checked]
        if left.done():
            raise ClientDisconnect
        raise too_late(timeout_s)
    except Stopping:
        raise HTTPException(503, STOPPING) from None
    except Failed as error:
        metrics.failures.inc()
        raise HTTPException(500, _failed(error)) from None
    finally:
        request.app.state.batcher.abandon(items)
        computed.cancel()
        left.cancel()


def add_stream(app: FastAPI, stream: Stream, limits: Limits) -> None:
    """Add the endpoint of a stream to an application. A client that disconnects ends the computation."""

    @app.post(stream.path, summary=stream.summary, responses=PROBLEMS, response_class=StreamingResponse)
    async def answer(body: stream.request, request: Request) -> Any:  # type: ignore[name-defined]
        _check_refused(body, limits)
        parts, loop = asyncio.Queue[Any](), asyncio.get_running_loop()

        def report(part: Any) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, part)

        try:
            input = await run_in_threadpool(stream.check, body.model_dump(), report)
        except ValueError as error:
            raise HTTPException(422, _of_fields(str(error))) from error
        lines = _lines(request, stream, body, parts, _submitted(request, [input]), limits.timeout_s)
        return StreamingResponse(lines, media_type="application/x-ndjson")


async def _lines(
    request: Request, stream: Stream, body: Any, parts: asyncio.Queue[Any], items: Sequence[Item], timeout_s: float
) -> AsyncIterator[str]:
    """Yield the lines of a stream. After the first of them, an error is a line too. Abandon the input at the end."""
    computed, end = asyncio.wrap_future(items[0].answer), time.monotonic() + timeout_s
    computed.add_done_callback(parts.put_nowait)
    try:
        while (part := await asyncio.wait_for(parts.get(), end - time.monotonic())) is not computed:
            yield _line(await run_in_threadpool(stream.row, body, part))
        for row in await run_in_threadpool(lambda: list(stream.end(computed.result()))):
            yield _line(row)
    except TimeoutError:
        yield _line({"detail": too_late(timeout_s).detail})
    except Stopping:
        yield _line({"detail": STOPPING})
    except Failed as error:
        request.app.state.metrics.failures.inc()
        yield _line({"detail": _failed(error)})
    finally:
        request.app.state.batcher.abandon(items)
        computed.cancel()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _check_refused(body: BaseModel, limits: Limits) -> None:
    for name in body.model_fields_set & set(limits.refuse):
        raise HTTPException(422, f"body.{name}: This server does not allow this field.")


def _submitted(request: Request, inputs: Sequence[Any]) -> list[Item]:
    """Submit inputs to the batcher.

    Raises:
        HTTPException: with the status 429 or 503, and the reason.
    """
    batcher = request.app.state.batcher
    try:
        return batcher.submit(inputs)
    except QueueFull:
        raise queue_full(batcher.waiting, len(inputs)) from None
    except Stopping:
        raise HTTPException(503, STOPPING) from None


def _failed(error: Failed) -> str:
    return f"The model failed ({error}); the server's log has the cause."


async def _client_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def queue_full(waiting: int, number: int) -> HTTPException:
    """Return the error of a request with `number` inputs when `waiting` others wait."""
    reason = f"The queue has no space for this request (inputs: {number}, waiting: {waiting}): try again later."
    return HTTPException(429, reason, headers={"Retry-After": "1"})


def too_late(timeout_s: float) -> HTTPException:
    """Return the error of a request whose answer takes longer than `timeout_s` seconds."""
    return HTTPException(504, f"No answer within {timeout_s:g} s.")


def _of_fields(reason: str) -> str:
    """Replace a command's options and Python arguments in a reason by the fields of a request."""
    reason = re.sub(r" `--no-limits`[^.]*(?:\.|$)", "", reason)
    reason = re.sub(r"`--[^`]*` \(`(?:Constraints\()?([^`]*?)\)?` in Python\)", r"`\1`", reason)
    return re.sub(r" \(`--[^`]*`\)", "", reason)

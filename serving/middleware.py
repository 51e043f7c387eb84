"""Middleware of the server. It names, logs and counts requests, and limits the size of their bodies. The answer to a
refused request has the reason in words.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..tokenization.checks import shown
from .batching import Batcher

_logger = logging.getLogger(__name__)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# Browsers must neither guess types nor show the pages within others.
_HEADERS = {"x-content-type-options": "nosniff", "content-security-policy": "frame-ancestors 'none'"}
# Answers that may be given before the body has arrived. The client could send the rest for ever.
_EARLY = (400, 401, 404, 405, 408, 413)
# The largest number of characters of a reason. Reasons quote the input, which may be long.
_REASON = 600
_REPR = Repr()
_REPR.maxother = _REPR.maxlong = _REPR.maxstring = 80


class Metrics:
    """The metrics of a server, in their own registry.

    Args:
        batcher: the batcher that counts queued and running inputs.
    """

    def __init__(self, batcher: Batcher):
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        kinds: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("weft_requests", "Requests", ["path", "status"], **kinds)
        self.seconds = Histogram(
            "weft_request_seconds", "Seconds until the answer", ["path"], buckets=_SECONDS, **kinds
        )
        self.tokens = Counter("weft_tokens", "Tokens of answers", **kinds)
        self.failures = Counter("weft_failures", "Requests on which the model failed", **kinds)
        Gauge("weft_waiting", "Inputs in the queue", **kinds).set_function(lambda: batcher.waiting)
        Gauge("weft_computing", "Inputs being computed", **kinds).set_function(lambda: batcher.computing)


class Observed:
    """Middleware that names, logs and counts requests. It answers HEAD like GET, and server errors with 500.

    Args:
        app: the application.
        metrics: the metrics that count the requests.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, name = time.monotonic(), 0, Headers(scope=scope).get("x-request-id", "")
        if not re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII):
            name = uuid.uuid4().hex

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = name
                if status in _EARLY:
                    headers["connection"] = "close"
                for key, value in _HEADERS.items():
                    headers.setdefault(key, value)
            await send(message)

        # uvicorn leaves out the body of an answer to HEAD
        inner: Scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self.app(inner, receive, send_named)
        except Exception:
            _logger.exception("request %s failed", name)
            if not status:
                await problem(500, "The server failed; its log has the cause.")(scope, receive, send_named)
        finally:
            seconds = time.monotonic() - start
            path = getattr(inner.get("route"), "path", "other")
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            client = (scope.get("client") or ("",))[0]
            fields = {"id": name, "client": client, "method": scope["method"], "path": scope["path"], "status": status}
            _logger.info(
                "%(id)s %(client)s %(method)s %(path)r %(status)d %(seconds).3f s", fields | {"seconds": seconds},
                extra={"request": fields | {"seconds": round(seconds, 3)}},
            )  # fmt: skip


def add_reasons(app: FastAPI, not_found: str = "Not Found") -> None:
    """Answer refused requests with `{"detail": reason}`, which quotes only the start of the input.

    Args:
        app: the application.
        not_found: the reason for an unknown path.
    """

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, "; ".join(map(_described, error.errors()[:5])))

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        reason = not_found if error.status_code == 404 else error.detail
        if error.status_code == 400 and error.__cause__ is not None:  # FastAPI's reason does not contain the cause
            reason = f"The body cannot be read as JSON: {error.__cause__}"
        return problem(error.status_code, reason, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def disconnected(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # only for the log, with nginx's code


def problem(status: int, reason: str, headers: Any = None) -> JSONResponse:
    """Return an answer with a reason."""
    # a lone surrogate can be written in JSON, but not in UTF-8
    reason = reason.encode("utf-8", "backslashreplace").decode()
    return JSONResponse(
        {"detail": reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."}, status_code=status, headers=headers
    )


def _described(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item["loc"]))
    if item["type"] == "json_invalid":
        return f"{place}: {item['msg']}: {item['ctx']['error']}"
    if item["type"] in ("missing", "extra_forbidden"):  # the place is enough for these
        return f"{place}: {item['msg']}"
    value = item["input"]
    return f"{place}: {item['msg']}: got {shown(value) if isinstance(value, str) else _REPR.repr(value)}"


class AllowedHosts:
    """Refuses requests for other host names (400), such as those of web pages whose name leads to this server.

    Args:
        app: the application.
        names: the allowed names, without ports. `*.example.org` stands for all subdomains. IPv6 addresses have
            brackets.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]):
        self.app, self.names = app, [name.lower() for name in names]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = re.sub(r":\d*$", "", Headers(scope=scope).get("host", "").lower()) if scope["type"] == "http" else None
        if host is None or any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in self.names):
            await self.app(scope, receive, send)
            return
        reason = f"The host name {shown(host)} is not allowed: `--allowed-host` of `weftformer serve` allows it."
        await problem(400, reason)(scope, receive, send)


class BoundedBody:
    """Refuses requests whose body does not arrive in time (408) or is too large (413)."""

    def __init__(self, app: ASGIApp, seconds: float, max_bytes: int):
        self.app, self.seconds, self.max_bytes = app, seconds, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        deadline: float | None = asyncio.get_running_loop().time() + self.seconds
        length, size = Headers(scope=scope).get("content-length", ""), 0

        async def receive_in_time() -> Message:
            nonlocal deadline, size
            if size == 0 and length.isdecimal():
                self._check(int(length))
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"The body did not arrive within {self.seconds:g} s.") from None
            if not message.get("more_body", False):
                deadline = None  # the body is complete, and further calls wait for the client to disconnect
            size += len(message.get("body", b""))
            self._check(size)
            return message

        await self.app(scope, receive_in_time, send)

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            raise HTTPException(413, f"The body is larger than {self.max_bytes} bytes.")

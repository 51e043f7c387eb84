"""Observes requests: an id for each, a line in the log, and metrics for Prometheus."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .batching import Batcher

_logger = logging.getLogger(__name__)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# Browsers must neither guess types nor show the pages within others.
_HEADERS = {"x-content-type-options": "nosniff", "content-security-policy": "frame-ancestors 'none'"}
# Answers that may be given before the body has arrived. The client could send the rest for ever.
_EARLY = (400, 401, 404, 405, 408, 413)


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
        begun, status, chosen = time.monotonic(), 0, Headers(scope=scope).get("x-request-id", "")
        name = chosen if re.fullmatch(r"[\w.-]{1,64}", chosen, re.ASCII) else uuid.uuid4().hex

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
                answer = JSONResponse({"detail": "The server failed; its log has the cause."}, status_code=500)
                await answer(scope, receive, send_named)
        finally:
            seconds = time.monotonic() - begun
            path = getattr(inner.get("route"), "path", "other")
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            client = (scope.get("client") or ("",))[0]
            fields = {"id": name, "client": client, "method": scope["method"], "path": scope["path"], "status": status}
            _logger.info(
                "%(id)s %(client)s %(method)s %(path)r %(status)d %(seconds).3f s", fields | {"seconds": seconds},
                extra={"request": fields | {"seconds": round(seconds, 3)}},
            )  # fmt: skip

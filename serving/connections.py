"""A uvicorn server for models, with bounded connections, log lines with times, and a bounded shutdown."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import socket
import sys
import time
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
# Seconds for open connections to close after all computed answers are sent.
_CLOSING = 2
_M_ARENA_MAX = -8  # from malloc.h


def share_memory() -> None:
    """Let all threads allocate from one arena. glibc gives each thread its own, and keeps freed memory there: 600 requests
    then took 350 MB more, and their memory did not level off. One thread computes at a time, so none waits for another."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


class Connection(H11Protocol):
    """A connection that is closed if a request's header does not arrive in time, or at once if too many are open.

    Args:
        most: the largest number of connections.
        seconds: the time for a header.
    """

    def __init__(self, *args: Any, most: int, seconds: float, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.most, self.seconds = most, seconds
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_FULL)
            transport.close()
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Run the timer until the header is complete."""
        has_header = self.conn.their_state is not h11.IDLE
        if self._late is None and not has_header:
            self._late = self.loop.call_later(self.seconds, self.timeout_keep_alive_handler)
        elif self._late is not None and has_header:
            self._late.cancel()
            self._late = None


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON, with the fields of its `request`."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record, self.datefmt), "level": record.levelname, "logger": record.name}
        told |= {"message": record.getMessage()} | getattr(record, "request", {})
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


class Server(uvicorn.Server):
    """Serves an application of `build_app`. When it is stopped, running requests have some time to finish.

    Args:
        app: the application.
        limits: its limits.
        log_level: "critical", "error", "warning" or "info", which writes a line for each request.
        log_format: "text" or "json".
    """

    def __init__(self, app: FastAPI, limits: Limits, log_level: str = "info", log_format: str = "text"):
        self.batcher, self.stop_timeout_s = app.state.batcher, limits.stop_timeout_s
        formatter: dict[str, Any] = {
            "datefmt": "%Y-%m-%dT%H:%M:%S%z",
            "format": "%(asctime)s %(levelname)s %(message)s",
        }
        if log_format == "json":
            formatter = {"()": JsonFormatter, "datefmt": formatter["datefmt"]}
        level = {"level": log_level.upper(), "handlers": ["stderr"]}
        log = {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": formatter},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "loggers": {"uvicorn": level, "weftformer": level},
        }
        connection: Any = partial(Connection, most=limits.max_connections, seconds=limits.header_timeout_s)
        config = uvicorn.Config(
            app, http=connection, log_config=log, log_level=log_level, access_log=False, server_header=False,
            timeout_graceful_shutdown=_CLOSING, ws="none",
        )  # fmt: skip
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer running requests if time allows, and all others with 503."""
        self.batcher.stop()
        end = time.monotonic() + self.stop_timeout_s
        while self.batcher.computing and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.05)
        self.batcher.give_up()
        await super().shutdown(sockets)

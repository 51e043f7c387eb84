"""A uvicorn server for models, with bounded connections, log lines with times, and a bounded shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits

# Seconds for open connections to close after all computed answers are sent.
_CLOSING = 2


class Connection(H11Protocol):
    """A connection that is closed if no complete request arrives in time, or if the client does not read the answers.

    uvicorn's own timer starts after the first answer and stops at the first byte of a request. Nothing limits unread
    answers.
    """

    unread_task: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        super().data_received(data)
        if timer is None:
            return
        if self.cycle is None or self.cycle.response_complete:  # more bytes do not extend the time
            self.timeout_keep_alive_task = timer
        else:
            timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread_task = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.unread_task is not None:
            self.unread_task.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self.timeout_keep_alive_task, self.unread_task):
            if timer is not None:
                timer.cancel()


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON, with the fields of its `request`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": self.formatTime(record, self.datefmt), "level": record.levelname, "logger": record.name}
        line |= {"message": record.getMessage()} | getattr(record, "request", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Server(uvicorn.Server):
    """Serves an application of `build_app`. When it is stopped, running requests have some time to finish.

    Args:
        app: the application.
        limits: its limits.
        log_level: "critical", "error", "warning" or "info", which writes a line for each request.
        log_format: "text" or "json".
    """

    def __init__(self, app: FastAPI, limits: Limits, log_level: str = "info", log_format: str = "text"):
        self.state, self.stop_timeout_s = app.state, limits.stop_timeout_s
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
        config = uvicorn.Config(
            app, http=Connection, log_config=log, log_level=log_level, access_log=False, server_header=False,
            timeout_keep_alive=limits.header_timeout_s,  # type: ignore[arg-type]
            ws="none", limit_concurrency=limits.max_connections + 1, timeout_graceful_shutdown=_CLOSING,
        )  # fmt: skip
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer running requests if time allows, and all others with 503."""
        batcher, end = self.state.batcher, time.monotonic() + self.stop_timeout_s
        batcher.stop()
        while (batcher.computing or self.state.calls) and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.05)
        batcher.give_up()
        self.state.is_ending.set()
        await super().shutdown(sockets)

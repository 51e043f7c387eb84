"""How much a server takes on, and for how long it waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Limits:
    """Bounds of a server.

    Args:
        max_batch_size: inputs (targets or texts) computed together, each with its beams.
        max_wait_ms: how long an input waits for others while nothing is computed.
        max_queue: inputs that wait; a request that would make them more is refused (429).
        max_inputs: inputs of one request.
        max_characters: length of an input.
        max_beams: width of a search.
        max_new_tokens: tokens that the model writes for an input (default: the task's own).
        max_request_bytes: size of a request's body (413).
        timeout_s: seconds that a request's body may take to arrive (408), and then its answer (504).

    Raises:
        ValueError: a bound is not positive.
    """

    max_batch_size: int = 16
    max_wait_ms: float = 10.0
    max_queue: int = 256
    max_inputs: int = 32
    max_characters: int = 2000
    max_beams: int = 50
    max_new_tokens: int | None = None
    max_request_bytes: int = 1 << 18
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "max_wait_ms" else 1 if isinstance(value, int) else 1e-3
            if value is not None and not least <= value < float("inf"):  # a NaN is not either
                raise ValueError(f"{field.name}={value} is not allowed: give at least {least}.")


class BodyInTime:
    """Refuses a request (408) whose body does not arrive in time: else slow clients hold their connections for ever."""

    def __init__(self, app: ASGIApp, seconds: float):
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        deadline: float | None = asyncio.get_running_loop().time() + self.seconds

        async def receive_in_time() -> Message:
            nonlocal deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"The body did not arrive within {self.seconds:g} s.") from None
            if not message.get("more_body", False):
                deadline = None  # from here on the client only listens
            return message

        await self.app(scope, receive_in_time, send)

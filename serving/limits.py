"""The limits of a server on size, number and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Limits:
    """
    The limits of a server.

    Args:
        max_batch_size (`int`, *optional*, defaults to 16):
            The largest number of inputs (targets or texts) that are computed at once. Each input has its own beams.
        max_wait_ms (`float`, *optional*, defaults to 10.0):
            The time in milliseconds that an input waits for others while the model is idle, if it is computed in a batch.
        max_queue (`int`, *optional*, defaults to 256):
            The largest number of waiting inputs. Requests that exceed it are refused with status 429.
        max_inputs (`int`, *optional*, defaults to 32):
            The largest number of inputs in a request.
        max_characters (`int`, *optional*, defaults to 2000):
            The largest number of characters of an input.
        max_beams (`int`, *optional*, defaults to 50):
            The largest number of beams.
        max_new_tokens (`int`, *optional*):
            The largest number of tokens to generate for an input. Defaults to the value of the task.
        max_request_bytes (`int`, *optional*, defaults to 262144):
            The largest size of a request's body in bytes. Larger ones are refused with status 413.
        max_time_limit (`float`, *optional*, defaults to 60.0):
            The longest time in seconds that a request may give to the search for a target. It is `timeout_s` where that is
            shorter.
        max_expand_leaves (`int`, *optional*, defaults to 2):
            The largest number of levels at which a request may have starting materials planned. With 0 none are.
        timeout_s (`float`, *optional*, defaults to 120.0):
            The time in seconds for a request's body to arrive (else status 408), and then for its answer (else status
            504).

    Raises:
        ValueError: a limit is too small or not finite.
    """

    max_batch_size: int = 16
    max_wait_ms: float = 10.0
    max_queue: int = 256
    max_inputs: int = 32
    max_characters: int = 2000
    max_beams: int = 50
    max_new_tokens: int | None = None
    max_request_bytes: int = 1 << 18
    max_time_limit: float = 60.0
    max_expand_leaves: int = 2
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("max_wait_ms", "max_expand_leaves") else 1 if isinstance(value, int) else 1e-3
            if value is not None and not least <= value < float("inf"):  # false for NaN too
                raise ValueError(f"{field.name}={value} is not allowed: give at least {least}.")


class BodyInTime:
    """Refuse requests whose body does not arrive in time (408), so that slow clients do not block connections."""

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
                deadline = None  # the body is complete, and further calls wait for the client to disconnect
            return message

        await self.app(scope, receive_in_time, send)

"""Between a request and the worker: wait for answers as long as the client does, and no longer than allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from ..inference.batching import Batcher, Failed, QueueFull, Stopping, Work

_STOPPING = "The server stops and takes no more requests."


async def answers(request: Request, batcher: Batcher, works: Sequence[Work], timeout_s: float) -> list[Any]:
    """Hand works to the batcher and wait.

    Args:
        request: with its body read.
        works: the inputs of the request.
        timeout_s: how long.

    Returns:
        An answer for each work.

    Raises:
        HTTPException: 429, 500, 503 or 504, with the reason. ClientDisconnect: nobody listens any more. Whatever is raised,
            the works are abandoned.
    """
    try:
        items = batcher.submit(works)
    except QueueFull:
        reason = f"{batcher.waiting} inputs wait already, and these {len(works)} would be too many: try again later."
        raise HTTPException(429, reason, headers={"Retry-After": "1"}) from None
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    computed = asyncio.gather(*(asyncio.wrap_future(item.answer) for item in items))
    # asks for the error that a request has when it is over already, or asyncio reports it as forgotten
    computed.add_done_callback(lambda future: future.cancelled() or future.exception())
    left = asyncio.ensure_future(_client_leaves(request))
    try:
        await asyncio.wait((computed, left), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if computed.done():
            return computed.result()
        if left.done():
            raise ClientDisconnect
        raise HTTPException(504, f"There was no answer within {timeout_s:g} s.")
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    except Failed as error:
        raise HTTPException(500, f"The model failed ({error}); the server's log has the cause.") from None
    finally:
        batcher.abandon(items)
        computed.cancel()
        left.cancel()


async def _client_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

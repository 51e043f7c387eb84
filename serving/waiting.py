"""Waiting for the answers of a request, until the client disconnects or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from ..inference.batching import Batcher, Failed, QueueFull, Stopping, Work

_STOPPING = "The server is stopping and accepts no more requests."


async def answers(request: Request, batcher: Batcher, works: Sequence[Work], timeout_s: float) -> list[Any]:
    """Submit the inputs of a request to the batcher, and wait for the answers. Abandon the inputs after an error.

    Args:
        request: the request, whose body has been read.
        batcher: the batcher.
        works: the inputs of the request.
        timeout_s: the longest time to wait, in seconds.

    Returns:
        An answer for each input.

    Raises:
        HTTPException: with the status 429, 500, 503 or 504, and the reason.
        ClientDisconnect: the client has disconnected.
    """
    try:
        items = batcher.submit(works)
    except QueueFull:
        reason = f"{batcher.waiting} inputs are waiting, and there is no room for these {len(works)}: try again later."
        raise HTTPException(429, reason, headers={"Retry-After": "1"}) from None
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    computed = asyncio.gather(*(asyncio.wrap_future(item.answer) for item in items))
    # read an error that occurs after the request has ended, because asyncio would report it as never retrieved
    computed.add_done_callback(lambda future: future.cancelled() or future.exception())
    left = asyncio.ensure_future(_client_leaves(request))
    try:
        await asyncio.wait((computed, left), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if computed.done():
            return computed.result()
        if left.done():
            raise ClientDisconnect
        raise too_late(timeout_s)
    except Stopping:
        raise HTTPException(503, _STOPPING) from None
    except Failed as error:
        raise HTTPException(500, f"The model failed ({error}); the server's log has the cause.") from None
    finally:
        batcher.abandon(items)
        computed.cancel()
        left.cancel()


def too_late(timeout_s: float) -> HTTPException:
    """What a request is told whose answer takes longer than so many seconds."""
    return HTTPException(504, f"There was no answer within {timeout_s:g} s.")


async def _client_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""The limits of a server on size, number and time. The options of `weftformer serve` are made from them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..common.options import check_options, option


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Args:
        max_batch_size: the largest number of inputs (targets or texts) that are computed at once. At most half of them
            are of one request.
        max_queue: the largest number of waiting inputs. Requests that exceed it are refused with status 429.
        max_inputs: the largest number of inputs in a request.
        max_characters: the largest number of characters of an input.
        max_beams: the largest number of beams.
        max_new_tokens: the largest number of tokens to generate for an input. Defaults to the value of the task.
        max_request_bytes: the largest size of a request's body in bytes. Larger ones are refused with status 413.
        max_time_limit: the longest time in seconds that a request may give to the search for a target. It is at most
            `timeout_s`. If a request has no limit, a search to the stock ends after this time or half of `timeout_s`,
            whichever is shorter.
        timeout_s: the time in seconds for a request's body to arrive (else status 408), and then for its answer (else
            status 504).
        header_timeout_s: the time in seconds after which a connection without a request is closed.
        stop_timeout_s: the time in seconds for running requests to finish when the server is stopped.
        max_connections: the largest number of connections. Further ones are refused with status 503.
        refuse: the fields that a request must not have, such as `"ranking"`.

    Raises:
        ValueError: a limit is too small or not finite.
    """

    max_batch_size: int = option(32, "inputs computed together", least=1)
    max_queue: int = option(256, "inputs in the queue; more are refused with 429", least=1)
    max_inputs: int = option(32, "inputs per request", least=1)
    max_characters: int = option(2000, "length of an input", least=1)
    max_beams: int = option(50, "largest number of beams of a request", least=1)
    max_new_tokens: int | None = option(
        None, "new tokens per input (default: three quarters of a route model's positions; 256 of text)", least=1
    )
    max_request_bytes: int = option(1 << 18, "largest body; larger ones are refused with 413", least=1)
    max_time_limit: float = option(60.0, "largest `time_limit` of a request", least=1e-3, metavar="S")
    timeout_s: float = option(120.0, "seconds until a request times out with 504", least=1e-3, metavar="S")
    header_timeout_s: float = option(
        10.0, "seconds until a connection without a request is closed", least=1e-3, metavar="S"
    )
    stop_timeout_s: float = option(25.0, "seconds to finish running requests after SIGTERM", least=0, metavar="S")
    max_connections: int = option(512, "open connections; more are refused with 503", least=1)
    refuse: tuple[str, ...] = option(
        (), "field that requests may not contain, e.g. ranking (repeatable)", metavar="FIELD"
    )

    def __post_init__(self) -> None:
        check_options(self)


def check_time(end: float) -> None:
    """Raise a TimeoutError after a time of `time.monotonic`."""
    if time.monotonic() > end:
        raise TimeoutError

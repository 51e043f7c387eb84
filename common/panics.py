"""Panics of code in Rust, such as that of tokenizers with a pattern that backtracks too long, as errors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic. Its class cannot be imported, and is no `Exception`."""
    return type(error).__name__ == "PanicException"


@contextlib.contextmanager
def panics_as_errors(what: str) -> Iterator[None]:
    """Raise a ValueError, which begins with `what`, for a panic in the block.

    In the main thread, Rust's trace of it is not shown. Nothing else should write to stderr in the block.
    """
    with contextlib.ExitStack() as stack:
        # in a server, the other threads of requests write their log lines meanwhile
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(OSError):  # stderr is closed
                stderr = os.dup(2)
                stack.callback(os.close, stderr)
                stack.callback(os.dup2, stderr, 2)
                with open(os.devnull, "w") as nothing:
                    os.dup2(nothing.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            raise ValueError(f"{what}: {error}") from None

"""Calls of a model from a tab: errors become messages on the page, time is limited, and requests run one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import gradio as gr

from ..inference.batching import Unwanted
from ..tokenization.checks import shown

MOST_CHARACTERS = 2000
# RDKit may take long to parse a long text. The included model reads targets of up to 300 tokens.
MOST_SMILES = 600
MOST_BEAMS = 20
MOST_STEPS = 10
SECONDS = 120.0
# A search to the stock then ends with the routes that it has found, long before `SECONDS`.
MOST_SECONDS = 60
# The largest number of characters in a message.
_REASON = 600

# All tabs share this limit, because they share the model and the machine.
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}


class InTime:
    """A watch that ends a computation once it is stopped or has run for `SECONDS`."""

    def __init__(self) -> None:
        self.end, self.is_stopped = time.monotonic() + SECONDS, False

    @property
    def is_over(self) -> bool:
        return self.is_stopped or time.monotonic() >= self.end

    def __call__(self) -> None:
        if self.is_over:
            raise Unwanted


@contextmanager
def reasons() -> Iterator[None]:
    """Turn errors that the user can correct into messages on the page."""
    try:
        yield
    except ValueError as error:
        raise refusal(str(error)) from error
    except Unwanted:
        raise refusal(
            f"The model took longer than {SECONDS:g} s and was stopped: use fewer beams, steps or tokens."
        ) from None


def refusal(reason: str) -> gr.Error:
    """Return an error for the page to show."""
    told = reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."
    # gradio shows messages as HTML, and a reason may contain text of the user
    return gr.Error(escape(told), duration=20, print_exception=False)


def alert(error: Exception) -> str:
    """Return the HTML of an error, in place of the answer. The message beside it disappears automatically."""
    reason = error.message if isinstance(error, gr.Error) else "The model failed; the log of this page has the cause."
    return f'<p class="weft-alert" role="note"><b>No answer.</b> {reason}</p>'


def check_length(what: str, text: str, most: int) -> None:
    """Check the length of an input.

    Raises:
        ValueError: the text is empty, or longer than `most` characters.
    """
    if not text.strip():
        raise ValueError(f"The {what} is empty: enter one.")
    if len(text) > most:
        raise ValueError(f"The {what} {shown(text)} has {len(text)} characters, and at most {most} are allowed here.")


def numbers(text: str | None) -> list[float]:
    """Read the conditions of a model: numbers separated by commas.

    Raises:
        ValueError: a part of the text is not a number.
    """
    try:
        return [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers separated by commas.") from None

"""How a tab asks a model: refusals as messages, a bound on the time, one question at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import gradio as gr

from ..inference.batching import Unwanted

MOST_CHARACTERS = 2000
# RDKit may take long for a text that no model reads: the longest target has 143 tokens.
MOST_SMILES = 600
MOST_BEAMS = 20
MOST_STEPS = 10
SECONDS = 120.0
_REASON = 600

# Of all tabs together: the model is one, and so is the machine.
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}


class InTime:
    """Says whether an answer is still wanted: not for ever, and not once it was stopped."""

    def __init__(self) -> None:
        self.end, self.is_stopped = time.monotonic() + SECONDS, False

    def __call__(self) -> bool:
        return not self.is_stopped and time.monotonic() < self.end


@contextmanager
def reasons() -> Iterator[None]:
    """Turns what a person can mend into a message on the page."""
    try:
        yield
    except ValueError as error:
        raise refusal(str(error)) from error
    except Unwanted:
        raise refusal(f"It took longer than {SECONDS:g} s and was stopped: ask for less.") from None


def refusal(reason: str) -> gr.Error:
    """A message; gradio shows it as HTML, and reasons quote what was typed."""
    shown = reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."
    return gr.Error(escape(shown), duration=20, print_exception=False)


def check_length(what: str, text: str, most: int) -> None:
    """Raises ValueError: the text is empty or longer than `most` characters."""
    if not text.strip():
        raise ValueError(f"There is no {what}: write one.")
    if len(text) > most:
        raise ValueError(f"The {what} has {len(text)} characters, and at most {most} are taken here.")


def numbers(text: str | None) -> list[float]:
    """What a model is told beside a text: numbers with commas between them.

    Raises:
        ValueError: something else stands there.
    """
    try:
        return [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"{text!r} is no list of numbers with commas between them.") from None

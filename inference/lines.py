"""Generation for each line of a stream, in order. Batches have lines of similar lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .texts import GeneratedText, TextInput, TextSettings, TextTask

# The number of batches that are sorted by length together. With more, a batch has more similar lengths. With fewer, an
# interrupted run loses less.
_BATCHES = 16
# Without a given size, a batch has at most this number of tokens, counted with pads and for each beam or sample. A
# window then has the size for batches of this number of lines.
_TOKENS, _LINES = 4096, 64


class Line(NamedTuple):
    """A source text with its conditions."""

    text: str
    conditions: tuple[float, ...] = ()


class Answer(NamedTuple):
    """The generated texts of a line, best first, or the reason why it is not valid. An empty line has neither."""

    source: str
    outputs: Sequence[GeneratedText] = ()
    problem: str | None = None


def window_of(batch_size: int | None) -> int:
    """Return the number of lines in a window. A sampled text depends on the other lines of its window."""
    return (batch_size or _LINES) * _BATCHES


def answer_lines(
    task: TextTask,
    lines: Iterable[Line],
    settings: TextSettings,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    with_scores: bool = False,
) -> Iterator[list[Answer]]:
    """Generate texts for lines.

    Args:
        task: the text model.
        lines: the lines.
        settings: the settings of generation.
        batch_size: the number of lines in a batch (default: up to 4,096 tokens).
        seed: the seed for sampling. The answer of a line depends on its position.
        with_scores: whether to return the log-probabilities of the texts.

    Yields:
        Lists of answers, one per window of lines, in the order of the lines.
    """
    for items in windows(enumerate(lines), batch_size):
        yield answer_window(task, items, settings, batch_size, seed, with_scores)


def windows(items: Iterable[tuple[int, Line]], batch_size: int | None) -> Iterator[list[tuple[int, Line]]]:
    """Yield the numbered lines of each window, of which some lines may be missing."""
    size = window_of(batch_size)
    for _, window in itertools.groupby(items, key=lambda item: item[0] // size):
        yield list(window)


def answer_row(answer: Answer, candidates: int) -> dict[str, Any]:
    """Return the fields of an answer in JSON lines, with all texts if there are several `candidates`."""
    best = answer.outputs[0] if answer.outputs else None
    row: dict[str, Any] = {"source": answer.source, "text": best.text if best else ""}
    row["score"] = best.score if best else None
    if candidates > 1:
        row["candidates"] = [{"text": output.text, "score": output.score} for output in answer.outputs]
    if best is not None and best.is_cut:
        row["is_cut"] = True
    if answer.problem is not None:
        row["problem"] = answer.problem
    return row


def answer_window(
    task: TextTask,
    items: Sequence[tuple[int, Line]],
    settings: TextSettings,
    batch_size: int | None,
    seed: int,
    with_scores: bool,
) -> list[Answer]:
    """Generate texts for some numbered lines, those of one window if they are sampled. See [`answer_lines`]."""
    if settings.sampling is not None:
        torch.manual_seed(seed + items[0][0] // window_of(batch_size))
    answers = [Answer(line.text) for _, line in items]
    inputs: dict[int, TextInput] = {}
    for place, (_, line) in enumerate(items):
        if line.text.strip():
            try:
                inputs[place] = task.encode(line.text, settings, line.conditions)
            except ValueError as error:
                answers[place] = Answer(line.text, problem=str(error))
    order = sorted(inputs, key=lambda place: len(inputs[place].ids))
    while order:
        # the last line is the longest, so the others have at most as many tokens
        rows = max(settings.beams, settings.candidates)  # of a line
        size = batch_size or max(1, _TOKENS // (len(inputs[order[-1]].ids) * rows))
        order, batch = order[:-size], order[-size:]
        texts = task.generate([inputs[place] for place in batch], with_scores=with_scores)
        for place, outputs in zip(batch, texts, strict=True):
            answers[place] = Answer(answers[place].source, outputs)
    return answers

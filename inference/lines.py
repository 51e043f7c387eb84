"""A text for each line of a stream, in its order: computed in batches of like lengths, in steps that can be taken up again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from .tasks import TextSettings, TextTask, TextWork, Written

# Batches that are formed together: of more, lengths in a batch are more alike; of fewer, less is lost when a run is cut.
_BATCHES = 16


class Line(NamedTuple):
    """A source, and the numbers that the model is told beside it."""

    text: str
    conditions: tuple[float, ...] = ()


class Answer(NamedTuple):
    """What a line gave: texts, best first; or why the model cannot read the line. An empty line has neither."""

    source: str
    written: Sequence[Written] = ()
    problem: str | None = None


def answer_lines(
    task: TextTask,
    lines: Iterable[Line],
    settings: TextSettings,
    *,
    batch_size: int = 32,
    seed: int = 0,
    first: int = 0,
    with_scores: bool = False,
) -> Iterator[list[Answer]]:
    """Answer lines, some hundred at a time.

    Args:
        task: the model.
        lines: what to answer, those that `first` leaves out among them.
        settings: how texts are written.
        batch_size: lines computed at a time.
        seed: of what is drawn. A line's answer depends on its place, and not on where a run began.
        first: lines that have their answer already.
        with_scores: whether texts come with their log-probabilities.

    Yields:
        Answers in the order of the lines, one for each of them.
    """
    lines = iter(lines)
    window = batch_size * _BATCHES
    # whole windows are passed over; the one that was cut is computed again, as a draw depends on its neighbours
    for number in itertools.count():
        taken = list(itertools.islice(lines, window))
        if not taken:
            return
        begin = max(0, first - number * window)
        if begin < len(taken):
            if settings.sampling is not None:
                torch.manual_seed(seed + number)
            yield _answer(task, taken, settings, batch_size, with_scores)[begin:]


def _answer(
    task: TextTask, lines: Sequence[Line], settings: TextSettings, batch_size: int, with_scores: bool
) -> list[Answer]:
    answers = [Answer(line.text) for line in lines]
    works: dict[int, TextWork] = {}
    for index, line in enumerate(lines):
        if line.text.strip():
            try:
                works[index] = task.work(line.text, settings, line.conditions)
            except ValueError as error:
                answers[index] = Answer(line.text, problem=str(error))
    order = sorted(works, key=lambda index: len(works[index].ids))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        written = task.write([works[index] for index in batch], with_scores=with_scores)
        for index, texts in zip(batch, written, strict=True):
            answers[index] = Answer(lines[index].text, texts)
    return answers

"""What a process does with items, here or on a worker, such as to generate texts for lines.

A task is sent to a worker as it is, and loads its model there. Items are pairs of an index in the input and the input
itself. A task yields results, which a command keeps in memory, and a job writes to its parts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..hub.loading import load_generator, use_threads
from ..inference.lines import Answer, Line, answer_row, answer_window, window_of, windows
from ..inference.texts import TextTask

FAILED = "failed"
# The smallest number of batches per worker. With fewer, the last one keeps the other workers waiting.
_SHARES = 4

Items = Sequence[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an item: its plan, the row of its texts or, from a worker, its line in a part."""

    index: int
    item: Any
    state: str
    value: Any


class Task(Protocol):
    """What a job does with its items.

    Attributes:
        command: the name of the command.
        unit: what the items are, such as `lines`.
        window: the number of items that must stay together.
        loading, threads, options: as in [`ModelTask`].
    """

    command: str
    unit: str
    loading: dict[str, Any]
    threads: int | None
    options: dict[str, Any]

    @property
    def window(self) -> int: ...

    def name(self, item: Any) -> str:
        """Return a text that distinguishes an item from others."""

    def load(self) -> None:
        """Load the models."""

    def __call__(self, items: Items, watch: Callable[[], None] | None = None) -> Iterator[list[Result]]:
        """Process some items, and yield the results that are there together. `watch` is called now and then."""

    def failed(self, index: int, item: Any, reason: str) -> Result:
        """Return the result of an item on which workers failed."""

    def line(self, result: Result) -> str:
        """Return the line of a result in a part, which begins with its `number`, counted from 1, and its `state`."""

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        """Return the items in batches for this number of workers, or for this process, in their order."""

    def seconds(self, items: Items) -> float | None:
        """Return the longest time that a batch may take, after which its worker is considered stuck."""


def batches_of(items: Items, cost: Any, max_size: int, workers: int) -> list[Items]:
    """Split items, the most expensive first, into batches that become smaller towards the end.

    Args:
        items: the items.
        cost: the expected cost of an item.
        max_size: the largest number of items in a batch.
        workers: the number of workers, which should finish together.
    """
    queue = sorted(items, key=lambda item: -cost(item[1]))
    batches, start = list[Items](), 0
    while start < len(queue):
        size = max(1, min(max_size, -(-(len(queue) - start) // (_SHARES * workers))))
        batches.append(queue[start : start + size])
        start += size
    return batches


def as_line(row: dict[str, Any]) -> str:
    """Return a row as the line of a part."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


@dataclass
class ModelTask:
    """A task with a model.

    Args:
        model: folder or Hub id.
        loading: other arguments of [`load_generator`], such as `device`.
        threads: the number of torch's threads, as in [`use_threads`].
        options: the options as given by the user.
    """

    model: str
    loading: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def generator(self, kind: str) -> tuple[Any, Any]:
        model, tokenizer = load_generator(self.model, kind, **self.loading)
        use_threads(model, self.threads)
        return model, tokenizer


@dataclass
class GenerateTask(ModelTask):
    """Generates texts for lines, as `weftformer generate` does, into rows. The methods are those of [`Task`].

    Args:
        settings: the arguments of `TextTask.settings`.
        batch_size: lines per batch (default: up to 4,096 tokens).
        seed: the seed for sampling.
        with_scores: whether to compute the log-probabilities of the texts.
        num_conditions: the number of conditions of a line.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    seed: int = 0
    with_scores: bool = False
    num_conditions: int = 0
    command, unit = "generate", "lines"

    @property
    def window(self) -> int:
        """The number of lines that must stay together: sampled texts depend on the others of their window."""
        return 1 if self.settings["sampling"] is None else window_of(self.batch_size)

    def name(self, item: Line) -> str:
        return repr(tuple(item))

    def load(self) -> None:
        self.task = TextTask(*self.generator("texts"))
        self.task.check_conditions(self.num_conditions)

    def __call__(
        self, items: Sequence[tuple[int, Line]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[Result]]:
        settings, start = self.task.settings(**self.settings), time.monotonic()
        answers = answer_window(self.task, items, settings, self.batch_size, self.seed, self.with_scores)
        seconds, results = (time.monotonic() - start) / len(items), list[Result]()
        for (index, line), answer in zip(items, answers, strict=True):
            state = "done" if answer.problem is None else "refused"
            row = {"number": index + 1, "state": state, "seconds": seconds}
            results.append(Result(index, line, state, row | answer_row(answer, settings.candidates)))
        yield results

    def failed(self, index: int, item: Line, reason: str) -> Result:
        row = answer_row(Answer(item.text, problem=reason), self.settings["candidates"])
        return Result(index, item, FAILED, {"number": index + 1, "state": FAILED, "seconds": None} | row)

    def line(self, result: Result) -> str:
        return as_line(result.value)

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        if workers is None or self.settings["sampling"] is not None:  # in the order of the lines
            return list(windows(items, self.batch_size))
        return batches_of(items, lambda line: len(line.text), window_of(self.batch_size), workers)

    def seconds(self, items: Items) -> float | None:
        return None

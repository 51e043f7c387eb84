"""What workers do with items, in this process or another: plan targets or generate texts for lines.

A task is sent to a worker as it is, and loads its model there. Items are pairs of an index in the input and the input
itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..routes.files.targets import Target
from ..routes.planning.settings import PlanSettings
from ..routes.plans import Plan

if TYPE_CHECKING:
    from ..inference.lines import Line

FAILED = "failed"
# The number of targets that a worker gets at once: enough to keep a search full most of the time, few enough to lose.
_TARGETS = 16
# The smallest number of batches per worker. With fewer, the last one keeps the other workers waiting.
_SHARES = 4


@dataclass(frozen=True, slots=True)
class PartRow:
    """The result of an item: its index, its state, and its line in a part."""

    index: int
    state: str
    line: str

    @classmethod
    def of(cls, data: dict[str, Any]) -> PartRow:
        """Return the row of an object with its `number`, counted from 1, and its `state`."""
        line = json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
        return cls(data["number"] - 1, data["state"], line)


Items = Sequence[tuple[int, Any]]


def batches_of(items: Items, cost: Any, max_size: int, workers: int) -> list[Items]:
    """Split items, the most expensive first, into batches that become smaller towards the end.

    Args:
        items: the items.
        cost: the expected cost of an item.
        max_size: the largest number of items in a batch.
        workers: the number of workers, which should finish together.
    """
    ordered = sorted(items, key=lambda item: -cost(item[1]))
    batches, start = list[Items](), 0
    while start < len(ordered):
        size = max(1, min(max_size, -(-(len(ordered) - start) // (_SHARES * workers))))
        batches.append(ordered[start : start + size])
        start += size
    return batches


@dataclass
class PlanTask:
    """Plans targets, as `weftformer routes plan` does.

    Args:
        model: folder or Hub id of a route model.
        settings: the settings of the search and the ranking.
        conditions: `n_steps`, `starting_material` and `stock`, as in [`RoutePlanner.stream`].
        forward_model: as in [`load_forward`].
        loading: other arguments of [`load_generator`], such as `device`.
        options: the options as given by the user.
    """

    model: str
    settings: PlanSettings = field(default_factory=PlanSettings)
    conditions: dict[str, Any] = field(default_factory=dict)
    forward_model: str | None = None
    loading: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    window = 1  # targets need not stay together, as lines that are sampled do

    def load(self) -> None:
        """Load the models."""
        from ..hub.loading import load_generator
        from ..routes.evaluation.round_trip import load_forward
        from ..routes.planning.planner import RoutePlanner

        self._planner = RoutePlanner(*load_generator(self.model, "routes", **self.loading))
        self._forward = load_forward(self.forward_model, self.loading.get("device"), self.loading.get("dtype", "auto"))
        # the settings, which are the same for all targets, are checked with any target
        self._planner.requests(["C"], self.settings, on_error="skip", **self.conditions)

    def __call__(
        self, items: Sequence[tuple[int, Target]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[PartRow]]:
        """Plan some targets, and yield the rows that are done together. `watch` is called before each token."""
        plans = self._planner.stream(
            [target.smiles for _, target in items], self.settings, progress=False, watch=watch, **self.conditions,
            on_error="skip",  # the other targets are still worth planning
            finish=None if self._forward is None else self._forward.with_forward_ranks,
        )  # fmt: skip
        for place, plan in plans:
            index, target = items[place]
            yield [PartRow.of(target.row(index + 1, plan, self.options))]

    def failed(self, index: int, item: Target, reason: str) -> PartRow:
        """Return the row of a target on which workers failed."""
        return PartRow.of(item.row(index + 1, Plan(item.smiles, [], reason), self.options, FAILED))

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        """Return the items in batches for this number of workers, or for this process, in their order."""
        if workers is None:
            return [items]
        return batches_of(items, lambda target: len(target.smiles), _TARGETS, workers)

    def seconds(self, items: Items) -> float | None:
        """Return the longest time that a batch may take, after which its worker is considered stuck."""
        if self.settings.time_limit is None and (self.settings.direct or self.conditions.get("stock") is None):
            return None
        # without a time limit, a second for each molecule that the model expands
        return 120 + 3 * len(items) * (self.settings.time_limit or self.settings.max_expansions)


@dataclass
class GenerateTask:
    """Generates texts for lines, as `weftformer generate` does. The methods are those of [`PlanTask`].

    Args:
        model: folder or Hub id of a text model.
        settings: the arguments of `TextTask.settings`.
        batch_size: lines per batch (default: up to 4,096 tokens).
        seed: the seed for sampling.
        with_scores: whether to compute the log-probabilities of the texts.
        num_conditions: the number of conditions of a line.
        loading: other arguments of [`load_generator`], such as `device`.
        options: the options as given by the user.
    """

    model: str
    settings: dict[str, Any]
    batch_size: int | None = None
    seed: int = 0
    with_scores: bool = False
    num_conditions: int = 0
    loading: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def window(self) -> int:
        """The number of lines that must stay together: sampled texts depend on the others of their window."""
        from ..inference.lines import window_of

        return 1 if self.settings["sampling"] is None else window_of(self.batch_size)

    def load(self) -> None:
        from ..hub.loading import load_generator
        from ..inference import TextTask

        self.task = TextTask(*load_generator(self.model, "texts", **self.loading))
        self.task.check_conditions(self.num_conditions)

    def __call__(
        self, items: Sequence[tuple[int, Line]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[PartRow]]:
        from ..inference.lines import answer_rows

        settings = self.task.settings(**self.settings)
        rows = answer_rows(self.task, items, settings, self.batch_size, self.seed, self.with_scores)
        yield [PartRow.of(row) for row in rows]

    def failed(self, index: int, item: Line, reason: str) -> PartRow:
        from ..inference.lines import Answer, answer_row

        row = answer_row(Answer(item.text, problem=reason), self.settings["candidates"])
        return PartRow.of({"number": index + 1, "state": FAILED, "seconds": None} | row)

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        from ..inference.lines import window_of, windows

        if workers is None or self.settings["sampling"] is not None:  # in the order of the lines
            return list(windows(items, self.batch_size))
        return batches_of(items, lambda line: len(line.text), window_of(self.batch_size), workers)

    def seconds(self, items: Items) -> float | None:
        return None


AnyTask = PlanTask | GenerateTask

"""The work of workers, in this process or another: planning targets or answering lines.

A work is sent to a worker as it is, and loads its model there. Items are pairs of an index in the input and the input
itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..routes.files.targets import Target
from ..routes.planning.settings import PlanSettings
from ..routes.plans import Plan

if TYPE_CHECKING:
    from ..routes.stock import Stock
    from ..routes.tree import Route
    from ..serving.lines import Answer, Line

FAILED = "failed"
# The number of targets that a worker gets at once: enough to keep a search full most of the time, few enough to lose.
_TARGETS = 16
# The smallest number of batches per worker. With fewer, the last one keeps the other workers waiting.
_SHARES = 4


@dataclass(frozen=True, slots=True)
class Row:
    """The result of an item: its index, its state, and its line in a part."""

    index: int
    state: str
    line: str


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
class PlanWork:
    """Plans targets, as `weftformer routes plan` does.

    Args:
        model: folder or Hub id of a route model.
        settings: the settings of the search and the ranking.
        n_steps, starting_material, stock: as in [`RoutePlanner.stream`].
        forward_model: as in [`load_forward`].
        device: the device of the model.
        use_fast_decoding: whether to use `fast_decoding`.
        dtype: the precision of the models, as in `load_task`.
        options: the options as given by the user.
        on_first: as in [`RoutePlanner.stream`], in this process.
    """

    model: str
    settings: PlanSettings = field(default_factory=PlanSettings)
    n_steps: Any = None
    starting_material: str | None = None
    stock: Stock | None = None
    forward_model: str | None = None
    device: str | None = None
    use_fast_decoding: bool = False
    dtype: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    on_first: Callable[[Any, Route], None] | None = None
    window = 1  # targets need not stay together, as lines that are sampled do

    def load(self) -> None:
        """Load the models."""
        from ..routes.serve import load_forward
        from ..serving.tasks import load_on

        self._planner = load_on(self.model, "routes", self.device, self.use_fast_decoding, self.dtype).planner
        self._forward = load_forward(self.forward_model, self.device, self.dtype)
        # the settings, which are the same for all targets, are checked with any target
        self._planner.requests(["C"], self.settings, on_error="skip", **self._asked)

    def __call__(
        self, items: Sequence[tuple[int, Target]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[Row]]:
        """Plan some targets, and yield the rows that are done together. `watch` is called before each token."""
        for index, target in items:
            if target.problem is not None:
                yield [self._row(index, target, Plan(target.smiles, [], target.problem))]
        readable = [item for item in items if item[1].problem is None]
        if not readable:
            return
        stream = self._planner.stream(
            [target.smiles for _, target in readable],
            self.settings,
            on_error="skip",  # the other targets are still worth planning
            progress=False,
            watch=watch,
            on_first=self.on_first,
            finish=None if self._forward is None else self._forward.with_forward_ranks,
            **self._asked,
        )
        for place, plan in stream:
            index, target = readable[place]
            yield [self._row(index, target, plan)]

    def failed(self, index: int, item: Target, reason: str) -> Row:
        """Return the row of a target on which workers failed."""
        return self._row(index, item, Plan(item.smiles, [], reason), FAILED)

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        """Return the items in batches for this number of workers, in the order of their distribution, or for this process."""
        if workers is None:
            return [items]
        return batches_of(items, lambda target: len(target.smiles), _TARGETS, workers)

    def seconds(self, items: Items) -> float | None:
        """Return the longest time that a batch may take, after which its worker is considered stuck."""
        if self.settings.time_limit is None and (self.settings.direct or self.stock is None):
            return None
        # a molecule is expanded in much less than a second
        return 120 + 3 * len(items) * (self.settings.time_limit or self.settings.max_expansions)

    @property
    def _asked(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "starting_material": self.starting_material, "stock": self.stock}

    def _row(self, index: int, target: Target, plan: Plan, state: str | None = None) -> Row:
        state = state or plan.state
        row = {"number": index + 1, "state": state, "id": target.id, "given": target.smiles, "settings": self.options}
        row |= replace(plan, id=target.id).to_dict()
        return Row(index, state, json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


@dataclass
class TextWork:
    """Writes a text for each line, as `weftformer generate` does. The methods are those of [`PlanWork`].

    Args:
        model: folder or Hub id of a text model.
        asked: the arguments of `TextTask.settings`.
        batch_size: lines per batch (default: up to 4,096 tokens).
        seed: the seed for sampling.
        with_scores: whether to compute the log-probabilities of the texts.
        num_conditions: the number of conditions of a line.
        device: the device of the model.
        use_fast_decoding: whether to use `fast_decoding`.
        dtype: the precision of the model, as in `load_task`.
        options: the options as given by the user.
    """

    model: str
    asked: dict[str, Any]
    batch_size: int | None = None
    seed: int = 0
    with_scores: bool = False
    num_conditions: int = 0
    device: str | None = None
    use_fast_decoding: bool = False
    dtype: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def window(self) -> int:
        """The number of lines that must stay together: sampled texts depend on the others of their window."""
        from ..serving.lines import window_of

        return 1 if self.asked["sampling"] is None else window_of(self.batch_size)

    def load(self) -> None:
        from ..serving.tasks import load_on

        self.task = load_on(self.model, "texts", self.device, self.use_fast_decoding, self.dtype)
        self.task.check_conditions(self.num_conditions)
        self.settings = self.task.settings(**self.asked)

    def __call__(
        self, items: Sequence[tuple[int, Line]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[Row]]:
        from ..serving.lines import answer_window

        begun = time.monotonic()
        answers = answer_window(self.task, items, self.settings, self.batch_size, self.seed, self.with_scores)
        seconds = (time.monotonic() - begun) / len(items)
        yield [self._row(index, answer, seconds) for (index, _), answer in zip(items, answers, strict=True)]

    def failed(self, index: int, item: Line, reason: str) -> Row:
        from ..serving.lines import Answer

        return self._row(index, Answer(item.text, problem=reason), None, FAILED)

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        from ..serving.lines import window_of

        size = window_of(self.batch_size)
        if self.asked["sampling"] is not None:
            return [list(window) for _, window in groupby(items, lambda item: item[0] // size)]
        if workers is None:  # in the order of the lines
            return [items[start : start + size] for start in range(0, len(items), size)]
        return batches_of(items, lambda line: len(line.text), size, workers)

    def seconds(self, items: Items) -> float | None:
        return None

    def _row(self, index: int, answer: Answer, seconds: float | None, state: str | None = None) -> Row:
        from ..serving.lines import answer_row

        state = state or ("done" if answer.problem is None else "refused")
        row = {"number": index + 1, "state": state, "seconds": seconds} | answer_row(answer, self.asked["candidates"])
        return Row(index, state, json.dumps(row, ensure_ascii=False) + "\n")


Work = PlanWork | TextWork

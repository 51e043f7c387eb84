"""Planning as a task of a job: here, or shared by workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weftformer.distributed.tasks import FAILED, Items, ModelTask, Result, as_line, batches_of
from weftformer.routes.files.targets import Target
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.planning.settings import PlanSettings
from weftformer.routes.plans import Plan
from weftformer.routes.tree import Route

# The number of targets that a worker gets at once: enough to keep a search full most of the time, few enough to lose.
_TARGETS = 16


@dataclass
class PlanTask(ModelTask):
    """Plans targets, as `weftformer routes plan` does. Its results are plans. The methods are those of
    [`~distributed.tasks.Task`].

    Args:
        settings: the settings of the search and the ranking.
        conditions: `n_steps`, `starting_material` and `stock`, as in [`RoutePlanner.stream`].
        on_first: as in [`RoutePlanner.stream`].
    """

    settings: PlanSettings = field(default_factory=PlanSettings)
    conditions: dict[str, Any] = field(default_factory=dict)
    on_first: Callable[[Any, Route], None] | None = None
    command, unit = "routes plan", "targets"
    window = 1  # targets need not stay together, as lines that are sampled do

    def name(self, item: Target) -> str:
        return f"{item.id}\t{item.smiles}"

    def load(self) -> None:
        self._planner = RoutePlanner(*self.generator("routes"))
        # the settings, which are the same for all targets, are checked with any target
        self._planner.requests(["C"], self.settings, on_error="skip", **self.conditions)

    def __call__(
        self, items: Sequence[tuple[int, Target]], watch: Callable[[], None] | None = None
    ) -> Iterator[list[Result]]:
        plans = self._planner.stream(
            [target.smiles for _, target in items], self.settings, progress=False, watch=watch, **self.conditions,
            on_error="skip",  # the other targets are still worth planning
            on_first=self.on_first,
        )  # fmt: skip
        for place, plan in plans:
            index, target = items[place]
            plan = target.label(plan)
            yield [Result(index, target, plan.state, plan)]

    def failed(self, index: int, item: Target, reason: str) -> Result:
        return Result(index, item, FAILED, Plan(item.smiles, [], reason))

    def line(self, result: Result) -> str:
        return as_line(result.item.row(result.index + 1, result.value, self.options, result.state))

    def batches(self, items: Items, workers: int | None) -> list[Items]:
        if workers is None:
            return [items]
        return batches_of(items, lambda target: len(target.smiles), _TARGETS, workers)

    def seconds(self, items: Items) -> float | None:
        if self.settings.time_limit is None and (self.settings.direct or self.conditions.get("stock") is None):
            return None
        # without a time limit, a second for each molecule that the model expands
        return 120 + 3 * len(items) * (self.settings.time_limit or self.settings.max_expansions)

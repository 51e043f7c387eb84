"""Plan targets that share a running search of the model: jobs of each target -> candidates -> ranking -> plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from ..plans import Plan
from ..stock.stock import Stock
from ..tree import Route
from .expansion import Expansion
from .model_search import Job, RouteSearch, Shared
from .requests import PlanRequest
from .settings import PlanSettings
from .stock_search import StockSearch
from .whole_routes import WholeRoutes

# The default number of beams of one search. More beams take more memory and save little time.
ROWS = 80
# The same for single steps of many targets, when nobody waits for one of them: a tenth more expansions for 115 MB.
ROWS_OF_MANY = 160


@dataclass(eq=False)
class _Target:
    """A target whose searches are not over.

    Args:
        key: the name of the target in the pool.
        request: the request.
        strategy: how its routes are searched.
        seconds: its share of the time of all steps.
        begun: when it joined.
        turn: the place of its latest job among all that have begun.
        is_first_reported: whether its first route to the stock was reported.
    """

    key: Hashable
    request: PlanRequest
    strategy: WholeRoutes | StockSearch | Expansion
    seconds: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    turn: int = 0
    is_first_reported: bool = False


class PlanPool:
    """Plans targets that join and leave a running search. Each target gets the same plan as it would alone.

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
        settings: the settings of the search, see [`PlanSettings.for_search`].
        stock: the purchasable molecules.
        most: the number of concurrent searches; the others wait (default: as many as have 80 beams together, or 160 if
            they are `together` and search to the stock).
        watch: a function that is called before each token. An exception in it ends the search.
        together: whether waiting searches for whole routes join only when all running ones have ended. Whole routes of
            many targets then take less time, because texts at different places need the longest prefix and suffix
            together. A server lets them join at once, so that nobody waits for a long search. The budget of a search
            to the stock is then measured on the clock, because an answer has to come in time. Otherwise, it is the
            target's share of the time.

    Attributes:
        on_first: a function that is called with the key of a target and its first route to the stock, if its search
            continues.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        settings: PlanSettings,
        stock: Stock | None = None,
        most: int | None = None,
        watch: Callable[[], None] | None = None,
        together: bool = False,
    ):
        self.together = together
        self.on_first: Callable[[Hashable, Route], None] | None = None
        rows = ROWS_OF_MANY if together and stock is not None and not settings.direct else ROWS
        self.most = most or max(1, rows // settings.beams)
        self._search = RouteSearch(model, tokenizer, settings, stock, watch)
        self._shared = Shared(self._search, stock, settings.transformations)
        self._targets: dict[Hashable, _Target] = {}
        self._running: dict[int, tuple[_Target, Hashable]] = {}  # by ticket
        self._turns = 0

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, key: Hashable, request: PlanRequest) -> None:
        """Add a target.

        Args:
            key: the name of the target in the pool.
            request: the request, which must not have a problem.
        """
        kind: type[WholeRoutes | StockSearch | Expansion] = StockSearch if request.searches_steps else WholeRoutes
        kind = kind if request.num_proposals is None else Expansion
        self._targets[key] = _Target(key, request, kind(request, self._shared))

    def remove(self, key: Hashable) -> None:
        """Remove a target whose plan is no longer needed."""
        target = self._targets.pop(key)
        tickets = [ticket for ticket, (owner, _) in self._running.items() if owner is target]
        self._search.remove(tickets)
        for ticket in tickets:
            del self._running[ticket]

    def step(self) -> list[tuple[Hashable, Plan]]:
        """Let waiting searches join, write a token of each text, and return the plans whose searches are over."""
        start = time.monotonic()
        self._join()
        running = [target for target, _ in self._running.values()]
        for ticket, candidates in self._search.step():
            target, place = self._running.pop(ticket)
            target.strategy.add_candidates(place, candidates)
        for target in running or self._targets.values():
            target.seconds += (time.monotonic() - start) / len(running or self._targets)
        for target in self._targets.values():
            start = time.monotonic()
            target.strategy.advance()
            target.seconds += time.monotonic() - start
        over = [target for target in self._targets.values() if target.strategy.is_over(self._spent(target))]
        for target in over:
            self.remove(target.key)
        for target in self._targets.values():
            if (
                self.on_first is not None
                and not target.is_first_reported
                and (route := target.strategy.first) is not None
            ):
                target.is_first_reported = True
                self.on_first(target.key, route)
        return [(target.key, self._plan(target)) for target in over]

    def _spent(self, target: _Target) -> float:
        return target.seconds if self.together else time.monotonic() - target.begun

    def _join(self) -> None:
        """Let searches join where there is room."""
        targets = list(self._targets.values())
        is_whole = not any(target.request.searches_steps for target in targets)
        if self.together and self._running and is_whole:
            return
        # Searches of one target are alike and end together, and a finished target is reported at once. If others wait
        # for an answer, the targets take turns, so that one with many searches does not keep them waiting.
        in_order = self.together or (is_whole and not self._search.is_continuous)
        joining: list[tuple[_Target, Hashable, Job]] = []
        while targets and len(self._running) + len(joining) < self.most:
            target = targets[0] if in_order else min(targets, key=lambda target: target.turn)
            job = target.strategy.next_job()
            if job is None:
                targets.remove(target)
                continue
            joining.append((target, *job))
            self._turns += 1
            target.turn = self._turns
        if joining:
            tickets = self._search.add([job for *_, job in joining])
            self._running |= {ticket: entry[:2] for ticket, entry in zip(tickets, joining, strict=True)}

    def _plan(self, target: _Target) -> Plan:
        """Return the plan of a target."""
        start = time.monotonic()
        plan = target.strategy.plan()
        seconds = target.seconds + time.monotonic() - start
        return replace(plan, seconds=seconds, remarks=(*target.request.remarks, *plan.remarks))

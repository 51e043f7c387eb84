"""Plans of targets that join and leave a running search: waiting -> search -> what the stock lacks -> rank -> plan."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..plans import NOTHING_FOUND, Candidate, Plan, pooled, ranked
from .hybrid import LeafExpansion
from .search import Deadline, Job, RouteSearch
from .settings import PlanSettings
from .targets import PlanRequest, check_source

if TYPE_CHECKING:
    from ..stock import Stock

# Beams of one search by default: more of them take more memory and save little time.
ROWS = 80


@dataclass(eq=False)
class _Target:
    """A target whose searches are not over.

    Args:
        key: what names it.
        request: what is searched.
        left: the searches that are not over.
        begun: the searches that have begun.
        deadline: when they end; one that is not given begins with the first of them.
        candidates: what each search has found.
        seconds: its part of the time of all steps.
    """

    key: Hashable
    request: PlanRequest
    left: int
    deadline: Deadline | None = None
    has_begun: bool = False
    begun: int = 0
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)
    seconds: float = 0.0


class PlanPool:
    """Plans of targets that join and leave a running search. Each is what a planner gives for it alone.

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
        settings: those of the search, see [`PlanSettings.for_search`].
        stock: what can be bought.
        most: searches that run at once; the others wait, and join in the order in which they came (default: as many as have
            80 beams together).
        watch: is called before each token; what it raises ends the search.
        together: whether waiting searches join only when all running ones have ended. A plan of many targets then takes less
            time, because texts at different places need the longest prefix and suffix together. A server lets them join at
            once, so that nobody waits for a long search.
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
        self.settings, self.stock, self.most = settings, stock, most or max(1, ROWS // settings.beams)
        self._search = RouteSearch(model, tokenizer, settings, stock, watch)
        self._targets: dict[Hashable, _Target] = {}
        self._waiting: deque[tuple[_Target, int, Job]] = deque()
        self._running: dict[int, tuple[_Target, int]] = {}  # by ticket
        self.ended = 0  # searches that are over, for the progress

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, key: Hashable, request: PlanRequest, deadline: Deadline | None = None) -> None:
        """Let a target join.

        Args:
            key: what names it.
            request: what is searched, which has no problem.
            deadline: when its search ends (default: by the settings of the request, from its first step on).
        """
        target = self._targets[key] = _Target(key, request, len(request.jobs), deadline, deadline is not None)
        self._waiting += [(target, place, job) for place, job in enumerate(request.jobs)]

    def remove(self, key: Hashable) -> None:
        """Remove a target whose plan is no longer needed."""
        target = self._targets.pop(key)
        self._waiting = deque(one for one in self._waiting if one[0] is not target)
        tickets = [ticket for ticket, (owner, _) in self._running.items() if owner is target]
        self._search.remove(tickets)
        for ticket in tickets:
            del self._running[ticket]

    def step(self) -> list[tuple[Hashable, Plan]]:
        """Let waiting searches join, write a token of each text, and return the plans whose searches are over."""
        begun = time.monotonic()
        found = self._join()
        running = [target for target, _ in self._running.values()]
        found += [(*self._running.pop(ticket), candidates) for ticket, candidates in self._search.step()]
        for target in running:
            target.seconds += (time.monotonic() - begun) / len(running)
        over = []
        for target, place, candidates in found:
            target.candidates[place] = candidates
            target.left -= 1
            self.ended += 1
            if not target.left:
                del self._targets[target.key]
                over.append((target.key, self._plan(target)))
        return over

    def _join(self) -> list[tuple[_Target, int, list[Candidate]]]:
        """Let searches join while there is room. Return the results of those whose time is over before they begin."""
        late: list[tuple[_Target, int, list[Candidate]]] = []
        joining: list[tuple[_Target, int, Job]] = []
        if self.together and self._running:
            return late
        while self._waiting and len(self._running) + len(joining) < self.most:
            # a target with many searches does not keep the others waiting
            in_order = self.together or not self._search.is_continuous
            first = 0 if in_order else min(range(len(self._waiting)), key=lambda i: self._waiting[i][0].begun)
            target, place, job = self._waiting[first]
            del self._waiting[first]
            target.begun += 1
            if not target.has_begun:
                target.deadline, target.has_begun = self._search.deadline(target.request.settings.time_limit), True
            if target.deadline is not None and target.deadline.ends():
                late.append((target, place, [self._search.out_of_time(job)]))
            else:
                joining.append((target, place, job))
        if joining:
            tickets = self._search.add(
                [job for _, _, job in joining],
                [target.deadline for target, _, _ in joining],
                [target.request.settings.max_new_tokens for target, _, _ in joining],
            )
            self._running |= {ticket: one[:2] for ticket, one in zip(tickets, joining, strict=True)}
        return late

    def _plan(self, target: _Target) -> Plan:
        """What was found for a target, expanded and ranked."""
        begun, request = time.monotonic(), target.request
        settings, remarks = request.settings, list(request.remarks)
        candidates = [one for place in sorted(target.candidates) for one in target.candidates[place]]
        if len({job.smiles for job in request.jobs}) > 1:
            candidates = pooled(candidates)
        if settings.expand_leaves:
            candidates = self._expanded(candidates, target)
        if settings.time_limit is not None and target.deadline is not None and target.deadline.is_over:
            remarks.append(
                f"The time limit of {settings.time_limit:g} s ended the search: these are the routes that were finished."
            )
        best = ranked(
            candidates,
            self.stock,
            settings.on_impossible,
            per_reaction=settings.per_reaction,
            purchasable_first=settings.expand_leaves > 0,
        )
        if settings.expand_leaves and settings.rules.only_purchasable:
            best = self._purchasable(best, settings)
        if not best and candidates:
            remarks.append(f"All {len(candidates)} routes are impossible, and were left out.")
        seconds = target.seconds + time.monotonic() - begun
        return Plan(request.target, best, seconds=seconds, remarks=tuple(remarks))

    def _expanded(self, candidates: list[Candidate], target: _Target) -> list[Candidate]:
        """The candidates, and routes in which what the stock lacks is made; each once."""
        settings, deadline, search = target.request.settings, target.deadline, self._search
        steps = list(dict.fromkeys(job.n_steps for job in target.request.jobs))
        # the required molecule is a starting material already
        rules = replace(self.settings.rules, required_leaf=None)
        kept = PlanSettings(on_impossible="keep", max_new_tokens=settings.max_new_tokens)

        def plan(molecules: Sequence[str]) -> list[list[Candidate]]:
            below = replace(self.settings, constraints=rules)
            pool = PlanPool(search.model, search.tokenizer, below, self.stock, self.most, search.watch, self.together)
            for smiles in molecules:
                try:
                    check_source(search.model, search.tokenizer, smiles)
                except ValueError:
                    continue  # the model cannot read it
                pool.add(smiles, PlanRequest(smiles, tuple(Job(smiles, count) for count in steps), kept), deadline)
            found: dict[Hashable, list[Candidate]] = {}
            while len(pool):
                found |= {key: one.candidates for key, one in pool.step()}
            return [found.get(smiles, []) for smiles in molecules]

        assert self.stock is not None
        expansion = LeafExpansion(
            plan,
            self.stock,
            depth=settings.expand_leaves,
            is_over=lambda: deadline is not None and deadline.ends(),
            never=() if settings.rules.required_leaf is None else (settings.rules.required_leaf,),
        )
        return pooled(expansion(sorted(candidates, key=lambda candidate: -candidate.score)))

    def _purchasable(self, best: list[Candidate], settings: PlanSettings) -> list[Candidate]:
        """The candidates without routes that begin from what the stock lacks, ranked again."""
        bought = [candidate for candidate in best if candidate.route is None or candidate.purchasable]
        if len(bought) < len(best) and not any(candidate.route for candidate in bought):
            why = (
                f"no route begins from molecules of the stock alone (only_purchasable), also where its starting "
                f"materials were made in their turn, {settings.expand_leaves} deep"
            )
            bought.append(Candidate("", float("-inf"), None, problem=NOTHING_FOUND + why))
        return ranked(bought, self.stock, "keep", purchasable_first=True)

"""Searches for several targets at once, that join a running search one after the other as others end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..plans import Candidate
from .search import Deadline, Job, RunningRoutes


@dataclass
class _Target:
    """A target whose searches are not over.

    Args:
        key: what names it.
        begin: makes its deadline when its first search joins.
        max_new_tokens: bound on what the model writes.
        left: searches that are not over.
    """

    key: Hashable
    begin: Callable[[], Deadline | None]
    max_new_tokens: int | None
    left: int
    has_begun: bool = False
    deadline: Deadline | None = None
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)
    seconds: float = 0.0


class Searched(NamedTuple):
    """What the searches for a target have found.

    Args:
        key: what names the target.
        candidates: what was found, in the order of the searches.
        seconds: its part of the time of all steps.
        deadline: when its searches had to end.
    """

    key: Hashable
    candidates: list[Candidate]
    seconds: float
    deadline: Deadline | None


class Searches:
    """Searches for targets, of which at most some run at once: the others wait and join in the order in which they came.

    Args:
        pool: the running search.
        most: searches that run at once.
        together: whether others join only when all have left. Searches that begin together take less time in all; others
            do not wait for the longest of them.
    """

    def __init__(self, pool: RunningRoutes, most: int, together: bool = False):
        self.pool, self.most, self.together = pool, most, together
        self._waiting: deque[tuple[_Target, int, Job]] = deque()
        self._running: dict[int, tuple[_Target, int]] = {}  # by ticket
        self._targets: dict[Hashable, _Target] = {}
        self.ended = 0  # searches that are over, for the progress

    def __len__(self) -> int:
        return len(self._targets)

    def add(
        self,
        key: Hashable,
        jobs: Sequence[Job],
        begin: Callable[[], Deadline | None],
        max_new_tokens: int | None = None,
    ) -> None:
        """Add the searches for a target.

        Args:
            key: what names the target.
            jobs: its searches.
            begin: makes its deadline when the first of them joins.
            max_new_tokens: bound on what the model writes (default: that of the search).
        """
        target = self._targets[key] = _Target(key, begin, max_new_tokens, len(jobs))
        self._waiting += [(target, place, job) for place, job in enumerate(jobs)]

    def remove(self, key: Hashable) -> None:
        """Forget a target that nobody wants any more."""
        target = self._targets.pop(key)
        self._waiting = deque(one for one in self._waiting if one[0] is not target)
        tickets = [ticket for ticket, (owner, _) in self._running.items() if owner is target]
        self.pool.remove(tickets)
        for ticket in tickets:
            del self._running[ticket]

    def step(self) -> list[Searched]:
        """Let waiting searches join, write a token of each text, and return the targets whose searches are over."""
        begun = time.monotonic()
        found = self._join()
        for ticket, candidates in self.pool.step():
            target, place = self._running[ticket]
            found.append((target, place, candidates))
        running = [target for target, _ in self._running.values()]
        for ticket in [ticket for ticket in self._running if ticket not in self.pool]:
            del self._running[ticket]
        for target in running:
            target.seconds += (time.monotonic() - begun) / len(running)
        over = []
        for target, place, candidates in found:
            target.candidates[place] = candidates
            target.left -= 1
            self.ended += 1
            if not target.left:
                del self._targets[target.key]
                whole = [one for place in sorted(target.candidates) for one in target.candidates[place]]
                over.append(Searched(target.key, whole, target.seconds, target.deadline))
        return over

    def _join(self) -> list[tuple[_Target, int, list[Candidate]]]:
        """Let searches join where there is room. Return what those give whose time is up before they begin."""
        late: list[tuple[_Target, int, list[Candidate]]] = []
        if self.together and len(self.pool):
            return late
        joining: list[tuple[_Target, int, Job]] = []
        while self._waiting and len(self.pool) + len(joining) < self.most:
            target, place, job = self._waiting.popleft()
            if not target.has_begun:
                target.deadline, target.has_begun = target.begin(), True
            if target.deadline is not None and target.deadline.has_passed:
                target.deadline.is_over = True
                (nothing,) = self.pool.search.out_of_time([job])
                late.append((target, place, nothing))
            else:
                joining.append((target, place, job))
        if joining:
            tickets = self.pool.add(
                [job for _, _, job in joining],
                [target.deadline for target, _, _ in joining],
                [target.max_new_tokens for target, _, _ in joining],
            )
            self._running |= {ticket: one[:2] for ticket, one in zip(tickets, joining, strict=True)}
        return late

"""The search for a target whose routes the model writes whole: each of its jobs, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace

from ..plans import TIME_IS_OVER, Candidate, Plan, nothing_found, pooled
from ..ranking import rank
from ..tree import Route
from .model_search import Deadline, Job, Shared
from .requests import PlanRequest


class WholeRoutes:
    """The jobs of a target.

    Args:
        request: the request.
        shared: what the targets of the pool share.
    """

    first: Route | None = None  # these jobs end together, so no route comes first

    def __init__(self, request: PlanRequest, shared: Shared):
        self.request, self._shared = request, shared
        self._waiting = deque(enumerate(request.jobs))
        self._deadline: Deadline | None = None
        self._candidates: dict[Hashable, list[Candidate]] = {}

    def is_over(self, seconds: float) -> bool:
        """Return whether all jobs have ended."""
        return len(self._candidates) == len(self.request.jobs)

    def next_job(self) -> tuple[Hashable, Job] | None:
        """Return the next job with its number, or None."""
        while self._waiting:
            number, job = self._waiting.popleft()
            if number == 0:
                self._deadline = self._shared.search.deadline(self.request.settings.time_limit)
            if self._deadline is None or not self._deadline.ends():
                return number, replace(job, deadline=self._deadline)
            self.add_candidates(number, [nothing_found(TIME_IS_OVER, job.n_steps)])
        return None

    def add_candidates(self, number: Hashable, candidates: list[Candidate]) -> None:
        """Take the candidates of a job that has ended."""
        self._candidates[number] = candidates

    def advance(self) -> None:
        """Do nothing: only the model searches."""

    def candidates(self) -> list[Candidate]:
        """Return the candidates of all jobs, in the order of the jobs."""
        candidates = [candidate for number in range(len(self.request.jobs)) for candidate in self._candidates[number]]
        return pooled(candidates) if len(self.request.jobs) > 1 else candidates

    def plan(self) -> Plan:
        """Return the plan with all candidates, and a remark if the time limit was reached."""
        settings, shared = self.request.settings, self._shared
        plan = rank(
            self.request.target, self.candidates(), shared.stock, shared.library, evidence=settings.evidence,
            by_score=settings.ranking != "log_probability", per_step=True, per_reaction=settings.per_reaction,
        )  # fmt: skip
        if self._deadline is None or not self._deadline.is_over:
            return plan
        limit = f"The time limit of {settings.time_limit:g} s was reached: these are the routes found until then."
        return replace(plan, remarks=(limit,))

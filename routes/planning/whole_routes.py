"""The search for a target whose routes the model writes whole: each of its jobs, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace

from ..plans import TIME_IS_OVER, Candidate, nothing_found, pooled
from ..tree import Route
from .model_search import Deadline, Job, RouteSearch
from .requests import PlanRequest


class WholeRoutes:
    """The jobs of a target.

    Args:
        request: the request.
        search: the search of the model, which other targets share.
    """

    first: Route | None = None  # these jobs end together, so no route comes first

    def __init__(self, request: PlanRequest, search: RouteSearch):
        self.request, self._search = request, search
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
                self._deadline = self._search.deadline(self.request.settings.time_limit)
            if self._deadline is None or not self._deadline.ends():
                return number, replace(job, deadline=self._deadline)
            self.add_candidates(number, [nothing_found(TIME_IS_OVER, job.n_steps)])
        return None

    def add_candidates(self, number: Hashable, candidates: list[Candidate]) -> None:
        """Take the candidates of a job that has ended."""
        self._candidates[number] = candidates

    def advance(self) -> None:
        """Do nothing: only the model searches."""

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return all candidates, and the remarks about them."""
        numbers = range(len(self.request.jobs))  # `pooled` keeps this order among equal scores
        candidates = [candidate for number in numbers for candidate in self._candidates[number]]
        if len(self.request.jobs) > 1:
            candidates = pooled(candidates)
        if self._deadline is None or not self._deadline.is_over:
            return candidates, []
        limit = self.request.settings.time_limit
        return candidates, [f"The time limit of {limit:g} s was reached: these are the routes found until then."]

"""The reactions that make one molecule: those of the library and those that the model proposes, in one list."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import asdict
from typing import Any

from ..plans import Candidate, Plan
from ..ranking import complete
from ..tree import Route
from .merging import merged
from .model_search import Job, Shared
from .requests import PlanRequest
from .retro_star import Proposal
from .stock_search import is_allowed, log_probabilities, model_steps, own_reactants, stock_remarks


class Expansion:
    """A target of a [`PlanPool`] whose last reactions are wanted, and no routes.

    Args:
        request: the request.
        shared: what the targets of the pool share.
    """

    first: Route | None = None  # there are no routes

    def __init__(self, request: PlanRequest, shared: Shared):
        self.request, self._shared = request, shared
        self._found: list[Candidate] = []
        self._jobs = list(request.jobs)
        self._is_over = False

    def is_over(self, seconds: float) -> bool:
        """Return whether the library and the model have proposed their reactions."""
        return self._is_over

    def advance(self) -> None:
        """Take the reactions that the model has proposed before, or none if it cannot read the molecule."""
        target = self.request.target
        if not self._is_over and (target in self._shared.expanded or not self.request.jobs):
            self._end(self._shared.expanded.get(target, ()))

    def next_job(self) -> tuple[Hashable, Job] | None:
        """Return the search of the model, or None."""
        is_next = self._jobs and self.request.target not in self._shared.expanded
        return (0, self._jobs.pop()) if is_next else None

    def add_candidates(self, place: Hashable, candidates: list[Candidate]) -> None:
        """Take the reactions that the model proposes."""
        self._end(model_steps(self._shared, self.request.target, candidates))

    def plan(self) -> Plan:
        """Return the reactions as routes of one step, in their order, and a remark if the target is in the stock."""
        remarks = tuple(stock_remarks(self._shared.stock, self.request.target))
        evidence, version = self.request.settings.evidence, self._shared.library.version
        return Plan(self.request.target, self._found, remarks=remarks, evidence=evidence, library=version)

    def _end(self, steps: Iterable[Proposal]) -> None:
        """Merge the reactions of the model with those of the library, and report the first of them."""
        target, rules, library = self.request.target, self.request.settings.rules, self._shared.library
        of_library = log_probabilities(library, target, rules)
        of_model = {step.reactants: -step.cost for step in steps if is_allowed(target, step.reactants, rules)}
        shares = merged(of_library, of_model, own_reactants(library, target)).items()
        for rank, (reactants, share) in enumerate(list(shares)[: self.request.num_proposals], 1):
            route = Route(target, tuple(map(Route, reactants)))
            candidate = Candidate(route.to_string(), math.log(share), 1, route, rank=rank, group=rank)
            self._found.append(complete(candidate, self._shared.stock, library))
            if self.request.report is not None:
                self.request.report(self._found[-1])
        self._is_over = True


def proposal_row(candidate: Candidate) -> dict[str, Any]:
    """Return a reaction for JSON: the fields of `Candidate.reactions` with its `rank` and `score`, and the
    `reactants`, each with `in_stock` (None without a stock) and the data of the stock.
    """
    assert candidate.route is not None
    [about], missing = candidate.reactions or [], candidate.missing
    del about["step"]
    offers = {offer.smiles: asdict(offer) for offer in candidate.offers}
    reactants = [
        {"smiles": leaf, "in_stock": None if missing is None else leaf not in missing, "offer": offers.get(leaf)}
        for leaf in candidate.route.leaves()
    ]
    return {"rank": candidate.rank, "score": candidate.finite_score} | about | {"reactants": reactants}


def last_row(plan: Plan) -> dict[str, Any]:
    """Return what is known at the end, for JSON: the number of reactions and the remarks."""
    return {"target": plan.target, "found": len(plan.candidates), "remarks": list(plan.remarks)}

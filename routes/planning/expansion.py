"""The reactions that make one molecule: those of the library and those that the model proposes, in one list."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..judging import library_of
from ..plans import Candidate, Plan
from ..stock.stock import Stock
from ..tree import Route
from .merging import merged
from .model_search import Job, RouteSearch
from .requests import PlanRequest
from .retro_star import Step
from .settings import PlanSettings
from .stock_search import UNRECORDED_COST, allowed, model_steps, own_reactants, recorded_steps, stock_remarks


class Expansion:
    """A target of a [`PlanPool`] whose last reactions are wanted, and no routes.

    Args:
        request: the request.
        search: the search of the model, which other targets share.
        stock: the purchasable molecules.
        expanded: the reactions of molecules that the model has searched. It is shared and grows.
    """

    first: Route | None = None  # there are no routes

    def __init__(
        self, request: PlanRequest, search: RouteSearch, stock: Stock | None, expanded: dict[str, Sequence[Step]]
    ):
        self.request, self._stock, self._expanded = request, stock, expanded
        self._library = library_of(request.settings.library)
        self._found: list[Candidate] = []
        self._jobs = list(request.jobs)
        self._is_over = False

    def is_over(self, seconds: float) -> bool:
        """Return whether the library and the model have proposed their reactions."""
        return self._is_over

    def advance(self) -> None:
        """Take the reactions that the model has proposed before, or none if it cannot read the molecule."""
        target = self.request.target
        if not self._is_over and (target in self._expanded or not self.request.jobs):
            self._end(self._expanded.get(target, ()))

    def next_job(self) -> tuple[Hashable, Job] | None:
        """Return the search of the model, or None."""
        is_next = self._jobs and self.request.target not in self._expanded
        return (0, self._jobs.pop()) if is_next else None

    def add_candidates(self, place: Hashable, candidates: list[Candidate]) -> None:
        """Take the reactions that the model proposes."""
        self._end(model_steps(self._expanded, self.request.target, candidates, self._library))

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return the reactions as routes of one step, in their order, and a remark if the target is in the stock."""
        return self._found, stock_remarks(self._stock, self.request.target)

    def _end(self, steps: Iterable[Step]) -> None:
        """Merge the reactions of the model with those of the library, and report the first of them."""
        target, settings = self.request.target, self.request.settings
        recorded = {step.reactants: -step.cost for step in recorded_steps(target, settings)}
        written = {
            step.reactants: (0.0 if step.is_recorded else UNRECORDED_COST) - step.cost
            for step in allowed(target, steps, settings.rules)
        }
        ranked = merged(recorded, written, own_reactants(self._library, target)).items()
        for rank, (reactants, share) in enumerate(list(ranked)[: self.request.num_proposals], 1):
            route = Route(target, tuple(map(Route, reactants)))
            candidate = Candidate(
                route.to_string(), math.log(share), 1, route, rank=rank, group=rank, library=settings.library
            )
            self._found.append(candidate.with_stock(self._stock))
            if self.request.report is not None:
                self.request.report(self._found[-1])
        self._is_over = True


def num_alternatives(step: Route, library: str | None = None) -> int:
    """Return the number of other reactions that the library proposes for the product of the last step of a route.

    Args:
        step: the route.
        library: the file of a user's own reactions, as in [`PlanSettings`].
    """
    reactants = tuple(sorted(child.smiles for child in step.children))
    return sum(other.reactants != reactants for other in recorded_steps(step.smiles, PlanSettings(library=library)))


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


def last_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield what is known at the end: the forward rank and the evidence of each reaction, by its rank, if there is a
    forward model, then the number of reactions and the remarks.
    """
    for candidate in plan.candidates:
        if candidate.forward_ranks is not None:
            yield {"rank": candidate.rank, "forward_rank": candidate.forward_ranks[0], "evidence": candidate.evidence}
    yield {"target": plan.target, "found": len(plan.candidates), "remarks": list(plan.remarks)}

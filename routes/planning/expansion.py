"""The reactions that make one molecule: first those of the library, then those that the model proposes.

They have the costs and the order of a search to the stock, which begins with the same functions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..plans import Candidate, Plan
from ..precedents import library_of
from ..stock import Stock
from ..tree import Route
from .model_search import Job, RouteSearch
from .requests import PlanRequest
from .retro_star import Step
from .settings import PlanSettings
from .stock_search import LIBRARY_STEPS, allowed, model_steps, recorded_steps, stock_remarks

# The library is asked for a few reactions first, because all of them take ten times as long.
_FEW = 3


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
        self._found: dict[tuple[str, ...], Candidate] = {}
        self._asked = [_FEW, LIBRARY_STEPS]  # what the library is still asked for
        self._jobs = list(request.jobs)
        self._is_over = False

    def is_over(self, seconds: float) -> bool:
        """Return whether the library and the model have proposed their reactions."""
        return self._is_over

    def advance(self) -> None:
        """Let the library propose reactions, or take those that the model has proposed before."""
        target = self.request.target
        if self._asked:
            self._take(recorded_steps(target, self.request.settings, self._asked.pop(0)), 0)
        elif target in self._expanded or not self.request.jobs:
            self._end(self._expanded.get(target, ()))

    def next_job(self) -> tuple[Hashable, Job] | None:
        """Return the search of the model after the reactions of the library, else None."""
        is_next = not self._asked and self._jobs and self.request.target not in self._expanded
        return (0, self._jobs.pop()) if is_next else None

    def add_candidates(self, place: Hashable, candidates: list[Candidate]) -> None:
        """Take the reactions that the model proposes."""
        self._end(model_steps(self._expanded, self.request.target, candidates, self._library))

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return the reactions as routes of one step, in their order, and a remark if the target is in the stock."""
        return list(self._found.values()), stock_remarks(self._stock, self.request.target)

    def _end(self, steps: Iterable[Step]) -> None:
        if not self._is_over:
            known = sorted(steps, key=lambda step: step.cost)
            self._take(allowed(self.request.target, known, self.request.settings.rules), len(self._found))
            self._is_over = True

    def _take(self, steps: Iterable[Step], before: int) -> None:
        """Report the reactions that are new, as long as there are not too many after those before."""
        target, most = self.request.target, before + (self.request.num_proposals or 0)
        for step in steps:
            if step.reactants not in self._found and len(self._found) < most:
                route, rank = Route(target, tuple(map(Route, step.reactants))), len(self._found) + 1
                library = self.request.settings.library
                found = Candidate(route.to_string(), -step.cost, 1, route, rank=rank, group=rank, library=library)
                self._found[step.reactants] = found.with_stock(self._stock)
                if self.request.report is not None:
                    self.request.report(self._found[step.reactants])


def num_alternatives(step: Route, library: str | None = None) -> int:
    """Return the number of other reactions that the library proposes for the product of the last step of a route.

    Args:
        step: the route.
        library: the file of a user's own reactions, as in [`PlanSettings`].
    """
    made = tuple(sorted(child.smiles for child in step.children))
    return sum(other.reactants != made for other in recorded_steps(step.smiles, PlanSettings(library=library)))


def proposal_row(found: Candidate) -> dict[str, Any]:
    """Return a reaction for JSON: the fields of `Candidate.reactions` with its `rank`, `score` and `examples`, and the
    `reactants`, each with `in_stock` (None without a stock) and the data of the stock.
    """
    assert found.route is not None
    [about], [judgement], missing = found.reactions or [], found.judgements, found.missing
    del about["step"]
    offers = {offer.smiles: asdict(offer) for offer in found.offers}
    reactants = [
        {"smiles": leaf, "in_stock": None if missing is None else leaf not in missing, "offer": offers.get(leaf)}
        for leaf in found.route.leaves()
    ]
    examples = [example._asdict() for example in judgement.examples]
    return {"rank": found.rank, "score": found.finite_score} | about | {"examples": examples, "reactants": reactants}


def last_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield what is known at the end: the forward rank and the evidence of each reaction, by its rank, if there is a
    forward model, then the number of reactions and the remarks.
    """
    for found in plan.candidates:
        if found.forward_ranks is not None:
            yield {"rank": found.rank, "forward_rank": found.forward_ranks[0], "evidence": found.evidence}
    yield {"target": plan.target, "found": len(plan.candidates), "remarks": list(plan.remarks)}

"""The search for a target whose routes are assembled from single steps until everything is in the stock.

Two searches share the time. One looks for routes of transformations that the library has recorded, the other for
routes of reactions that the model proposes. The first finds more routes that a chemist would try. The second solves
more targets.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

from .. import precedents
from ..faults import step_fault
from ..molecules import read_molecule
from ..plans import Candidate, nothing_found
from ..stock import Stock
from ..tree import Route
from .constraints import broken_by_user
from .model_search import Job, RouteSearch, step_job
from .requests import PlanRequest, check_source
from .retro_star import RetroStarSearch, Solution, Step

# The number of molecules of one target searched at once. More would search reactions that its routes never need.
MAX_CONCURRENT_EXPANSIONS = 8
# Added to the cost of a reaction whose transformation is not recorded.
UNRECORDED_COST = 1.0
# The number of reactions that the library proposes for a molecule: those of the most common transformations.
LIBRARY_STEPS = 40
# The estimated cost of a molecule that is not purchasable: a constant, and a part for each heavy atom. In recorded
# routes (PaRoutes n5), a molecule takes 0.5 + 0.1 * atoms reactions. Four times as much found more purchasable routes
# in a given time than lower estimates.
ESTIMATE = 2.0, 0.4
# The default number of routes with the same last reaction. Without a bound, all ten may share one.
PER_REACTION = 3
# The number of unfinished routes in a plan when no route leads to the stock.
_UNFINISHED = 3
# The number of molecules whose reactions a process caches, for the model and for the library: 13 kB each.
_CACHED_MOLECULES = 1 << 11


class StockSearch:
    """The searches of a target.

    Args:
        request: the request.
        search: the search of the model, which other targets share.
        stock: the purchasable molecules.
        expanded: the reactions of molecules that the model has searched. It is shared and grows.
    """

    def __init__(self, request: PlanRequest, search: RouteSearch, stock: Stock, expanded: dict[str, Sequence[Step]]):
        self.request, self._search, self._stock, self._expanded = request, search, stock, expanded
        self._per_reaction = request.settings.per_reaction or PER_REACTION
        self._recorded, self._proposed = (
            RetroStarSearch(
                request.target,
                stock.without(request.target),
                _estimate,
                most_routes=request.settings.num_routes,
                per_reaction=self._per_reaction,
            )
            for _ in range(2)
        )
        self._library_seconds = 0.0

    def _solutions(self) -> list[Solution]:
        """Return the routes of both searches, each once, and only the best of those with the same last reaction.

        Recorded ones come first, then the cheapest.
        """
        every = [*self._recorded.solutions, *self._proposed.solutions]
        distinct = {solution.route.canonical(): solution for solution in every}.values()
        num_same: Counter[str] = Counter()
        kept = []
        for solution in sorted(distinct, key=lambda solution: (not solution.is_recorded, solution.cost)):
            last_reaction = solution.route.canonical().last_reaction
            num_same[last_reaction] += 1
            if num_same[last_reaction] <= self._per_reaction:
                kept.append(solution)
        return kept

    @property
    def first(self) -> Route | None:
        """A route to the stock by recorded reactions, or None if none is found yet."""
        every = [*self._recorded.solutions, *self._proposed.solutions]
        return next((solution.route for solution in every if solution.is_recorded), None)

    @property
    def _has_enough(self) -> bool:
        if not self._recorded.goes_on and not self._proposed.goes_on:
            return True
        num_routes = self.request.settings.num_routes
        if len(self._recorded.solutions) + len(self._proposed.solutions) < num_routes:
            return False
        solutions = self._solutions()
        return len(solutions) >= num_routes and any(solution.is_recorded for solution in solutions)

    def is_over(self, seconds: float) -> bool:
        """Return whether there are enough routes, nothing is left to search, or the budget is spent."""
        return self._has_enough or seconds >= self.request.settings.budget

    def next_job(self, num_running: int) -> tuple[Hashable, Job] | None:
        """Return a molecule that the model has to expand, or None if no job can start now."""
        search = self._proposed
        while num_running < MAX_CONCURRENT_EXPANSIONS and search.goes_on and not self._has_enough:
            smiles = search.next_molecule()
            if smiles is None:
                return None
            steps = self._expanded.get(smiles)
            if steps is None:
                try:
                    check_source(self._search.model, self._search.tokenizer, smiles)
                except ValueError:
                    steps = ()  # the model cannot read it
            if steps is None:
                return smiles, step_job(self._search.model, smiles, self.request.settings.max_new_tokens)
            search.add_reactions(smiles, steps)
        return None

    def advance(self, seconds: float) -> float:
        """Run the search of the library for half of the time, or for all of it if the other search has ended.

        Args:
            seconds: the target's share of the time so far.

        Returns:
            The seconds that it took.
        """
        taken = 0.0
        while self._recorded.goes_on and not self._has_enough:
            is_alone = not self._proposed.goes_on
            if not is_alone and 2 * self._library_seconds > seconds + taken:
                break
            begun = time.monotonic()
            smiles = self._recorded.next_molecule()
            if smiles is not None:
                steps = _library_steps(precedents.shipped_library(), smiles)
                self._recorded.add_reactions(smiles, [step for step in steps if self._is_allowed(smiles, step)])
            spent = time.monotonic() - begun
            self._library_seconds += spent
            taken += spent
            if is_alone:  # one molecule at a time, so that the budget is checked
                break
        return taken

    def _is_allowed(self, product: str, step: Step) -> bool:
        rules = self.request.settings.rules
        is_forbidden = any(broken_by_user(smiles, rules) for smiles in step.reactants)
        return not is_forbidden and step_fault(product, step.reactants, rules=rules) is None

    def add_candidates(self, smiles: Hashable, candidates: list[Candidate]) -> None:
        """Take the reactions that the model proposes for a molecule."""
        steps: dict[tuple[str, ...], Step] = {}
        for candidate in candidates:
            if candidate.route is not None and candidate.route.children:
                reactants = tuple(sorted(child.smiles for child in candidate.route.children))
                # the grammar has applied the rules, except those that the user has switched off
                is_recorded = precedents.judge(str(smiles), reactants).state == "precedented"
                cost = -candidate.score + (0.0 if is_recorded else UNRECORDED_COST)
                steps.setdefault(reactants, Step(reactants, cost, is_recorded))
        while len(self._expanded) >= _CACHED_MOLECULES:
            del self._expanded[next(iter(self._expanded))]
        self._expanded[str(smiles)] = list(steps.values())
        self._proposed.add_reactions(str(smiles), self._expanded[str(smiles)])

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return the routes to the stock, or a few that come nearest to it, and the remarks about them."""
        settings, solutions, remarks = self.request.settings, self._solutions(), list[str]()
        if offer := self._stock.offer(self.request.target):
            remarks.append(
                f"{self.request.target} itself is in the stock{offer.description and ': '}{offer.description}."
            )
        is_solved = any(solution.is_recorded or settings.evidence == "any" for solution in solutions)
        nearest = [] if is_solved or settings.rules.only_purchasable else self._nearest()
        candidates = [
            Candidate(solution.route.to_string(), -solution.cost, solution.route.depth, solution.route)
            for solution in [*nearest, *solutions][: settings.num_routes]
        ]
        if is_solved:
            return candidates, remarks
        reason = self._why_not()
        if candidates:
            return candidates, [*remarks, reason[0].upper() + reason[1:]]
        return [nothing_found(reason)], remarks

    def _nearest(self) -> list[Solution]:
        """Return the unfinished routes of both searches that come nearest to the stock, each once."""
        every = [*self._recorded.unfinished(_UNFINISHED), *self._proposed.unfinished(_UNFINISHED)]
        distinct = {solution.route.canonical(): solution for solution in every}.values()
        return sorted(distinct, key=lambda solution: solution.distance)[:_UNFINISHED]

    def _why_not(self) -> str:
        searches = (self._recorded, self._proposed)
        expanded = f"{max(search.num_expanded for search in searches):,} molecules were expanded"
        if not all(search.is_exhausted for search in searches):
            return (
                f"no route to the stock was found in {self.request.settings.budget:g} s: {expanded}. Use a longer time limit "
                "or a larger stock."
            )
        limit, end = "", "the model proposes no other reactions"
        if any(search.is_cut for search in searches):
            limit, end = f" of at most {self._proposed.most_reactions} reactions", "longer routes are not searched"
        return f"no route{limit} ends in the stock: {expanded}, and {end}. Use more beams or a larger stock."


@lru_cache(_CACHED_MOLECULES)
def _library_steps(library: precedents.Library, smiles: str) -> list[Step]:
    """Return the reactions of a molecule by recorded transformations.

    A reaction costs minus the logarithm of a share: that of its transformation among the recorded reactions whose
    transformation the molecule allows.
    """
    return [Step(reactants, -math.log(share), True) for reactants, share in library.propose(smiles, LIBRARY_STEPS)]


def _estimate(smiles: str) -> float:
    """Return the estimated cost of a molecule that is not purchasable, from the number of its heavy atoms."""
    molecule = read_molecule(smiles)
    return ESTIMATE[0] + ESTIMATE[1] * sum(molecule.atoms.values()) if molecule else math.inf

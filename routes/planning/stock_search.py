"""The search for a target whose routes are assembled from single steps until everything is in the stock.

The reactions of a molecule come from four sources: first from the recorded transformations that the ranker knows, and
if nothing else is more promising, from rare ones and textbooks, from the model, and where the search is stuck from
further transformations of the ranker. What is searched depends on numbers of molecules alone and never on the time, so
that the same request has the same routes on every machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from .. import judging
from ..chemistry.faults import step_fault
from ..chemistry.molecules import read_molecule
from ..chemistry.stereo import mixture
from ..judging.library import Derived
from ..plans import Candidate, Plan, nothing_found, steps_in_words
from ..ranking import rank
from ..stock.stock import Stock
from ..tree import Route
from .constraints import broken_by_user, is_forbidden
from .model_search import Job, Shared, step_job
from .requests import PlanRequest, check_source
from .retro_star import Proposal, Request, RetroStarSearch, Solution
from .settings import Constraints

# The sources of reactions.
LIBRARY, RARE, MODEL, MORE = range(4)
# The number of molecules of one target whose reactions the model proposes at once. More would search reactions that
# its routes never need.
MAX_CONCURRENT_EXPANSIONS = 8
# The number of molecules whose reactions the library proposes, for each of the model's.
LIBRARY_EXPANSIONS = 4
# The number of them in one call, some tenths of a second.
_AT_A_TIME = 2
# A search that has found a route ends when the reactions of so many molecules have given no other one.
PATIENCE = 20
# The number of reactions by rare transformations and textbooks that are proposed for a molecule, and the probability
# of separating it from its isomer.
_RARE_STEPS, _SEPARATION = 15, 0.02
# What is added to the rank of a molecule before each source is asked for its reactions. Textbooks with a similar
# example are asked earlier.
_DELAY_OF_RARE, _DELAY_OF_MODEL, _DELAY_OF_MORE = 4.0, 5.0, 8.0
# The number of reactions that the library proposes for a molecule, in a search, where it is stuck, and in a list.
SEARCHED_STEPS, MORE_STEPS, LISTED_STEPS = 22, 90, 45
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
    """The search of a target.

    The model's molecules come in rounds: a round is collected, the model proposes reactions for all of it, and the
    search goes on with all of them, in their order.

    Args:
        request: the request.
        shared: what the targets of the pool share. There has to be a stock.
    """

    def __init__(self, request: PlanRequest, shared: Shared):
        assert shared.stock is not None
        self.request, self._shared, self._stock = request, shared, shared.stock
        self._per_reaction = request.settings.per_reaction or PER_REACTION
        self._search = RetroStarSearch(
            request.target,
            self._stock.without(request.target),
            _estimate,
            per_reaction=self._per_reaction,
            delays=partial(_delays, shared.library),
        )
        # the molecules of a round, with their reactions or None, and whether it is complete
        self._round: dict[str, Sequence[Proposal] | None] = {}
        self._is_collected = False
        self._begun = 0
        self._ran_out_of_time = False
        self._num_solutions, self._found_after = 0, 0  # so far, and the molecules that were expanded before
        # the routes, only the best of those with the same last reaction: supported ones first, then the cheapest
        self._solutions: list[Solution] = []
        self.first: Route | None = None  # a route to the stock by supported reactions

    def _take_solutions(self) -> None:
        """Judge the routes that the search has found since the last call."""
        solutions = self._search.solutions[self._num_solutions :]
        if not solutions:
            return
        self._num_solutions, self._found_after = len(self._search.solutions), self._num_expanded
        new = list(map(self._judged, solutions))
        if self.first is None:
            self.first = next((solution.route for solution in new if solution.is_supported), None)
        num_same, best = Counter[tuple[str, ...]](), list[Solution]()
        for solution in sorted([*self._solutions, *new], key=lambda item: (not item.is_supported, item.cost)):
            num_same[solution.route.reactants] += 1
            if num_same[solution.route.reactants] <= self._per_reaction:
                best.append(solution)
        self._solutions = best

    def _judged(self, solution: Solution) -> Solution:
        """Return a solution that counts as supported only if the judgement of each step agrees."""
        if not solution.is_supported:
            return solution
        return replace(solution, is_supported=judging.is_route_supported(solution.route, self._shared.library))

    @property
    def _num_expanded(self) -> int:
        """The number of molecules that were expanded. Rare transformations, which are tried later, do not count."""
        return self._search.num_expanded() - self._search.num_expanded(RARE)

    @property
    def _has_enough(self) -> bool:
        if self._search.is_exhausted:
            return True
        if self.first is None:
            return False
        is_late = self._num_expanded > self._found_after + PATIENCE
        return is_late or len(self._solutions) >= self.request.settings.num_routes

    def is_over(self, seconds: float) -> bool:
        """Return whether there are enough routes, nothing is left to search, or the budget is spent."""
        settings = self.request.settings
        if settings.time_limit is not None and seconds >= settings.time_limit:
            self._ran_out_of_time = True
            return True
        return not self._round and (self._num_left <= 0 or self._has_enough)

    @property
    def _num_left(self) -> int:
        """The number of molecules whose reactions the model may still propose."""
        return self.request.settings.max_expansions - self._search.num_expanded(MODEL)

    def advance(self) -> None:
        """Search with the library until a round of the model is complete, or for some molecules."""
        if self._is_collected:
            if None in self._round.values():
                return
            for smiles, steps in self._round.items():
                self._search.add_reactions(Request(smiles, MODEL), steps or ())
            self._round, self._is_collected, self._begun = {}, False, 0
        for _ in range(_AT_A_TIME):
            if self._has_enough:
                self._round = {}
                return
            is_full = len(self._round) >= min(MAX_CONCURRENT_EXPANSIONS, self._num_left)
            request = None if is_full else self._search.next_request()
            self._take_solutions()
            if request is None:
                self._is_collected = bool(self._round)
                return
            if request.source == MODEL:
                self._round[request.molecule] = self._known_steps(request.molecule)
            else:
                self._search.add_reactions(request, self._recorded_steps(request))

    def _recorded_steps(self, request: Request) -> list[Proposal]:
        """Return the first reactions of the library for a molecule, or the next ones."""
        if self._search.num_expanded(request.source) >= LIBRARY_EXPANSIONS * self.request.settings.max_expansions:
            return []
        library, rules = self._shared.library, self.request.settings.rules
        first = recorded_steps(library, request.molecule, rules, SEARCHED_STEPS)
        if request.source == LIBRARY:
            return first
        if request.source == RARE:
            return rare_steps(library, request.molecule, rules, _derived(library, request.molecule, SEARCHED_STEPS))
        known = {step.reactants for step in first}
        more = recorded_steps(library, request.molecule, rules, MORE_STEPS)
        return [step for step in more if step.reactants not in known]

    def _known_steps(self, smiles: str) -> Sequence[Proposal] | None:
        """Return the reactions that the model has proposed before, none for a molecule that it cannot read, or
        None.
        """
        try:
            check_source(self._shared.search.model, self._shared.search.tokenizer, smiles)
        except ValueError:
            return ()
        return self._shared.expanded.get(smiles)

    def next_job(self) -> tuple[Hashable, Job] | None:
        """Return a molecule of a complete round that the model has to expand, or None."""
        molecules = list(self._round)[self._begun :] if self._is_collected else []
        for number, smiles in enumerate(molecules, self._begun + 1):
            if self._round[smiles] is None:
                self._begun = number
                return smiles, step_job(self._shared.search.model, smiles, self.request.settings.max_new_tokens)
        return None

    def add_candidates(self, smiles: Hashable, candidates: list[Candidate]) -> None:
        """Take the reactions that the model proposes for a molecule."""
        self._round[str(smiles)] = model_steps(self._shared, str(smiles), candidates)

    def plan(self) -> Plan:
        """Return the routes to the stock, or a few that come nearest to it, and the remarks about them."""
        settings, target = self.request.settings, self.request.target
        candidates, remarks = self._result()
        plan = rank(
            target, candidates, self._stock, self._shared.library,
            evidence=settings.evidence, per_reaction=settings.per_reaction,
        )  # fmt: skip
        return replace(plan, remarks=(*stock_remarks(self._stock, target), *remarks))

    def _result(self) -> tuple[list[Candidate], list[str]]:
        settings, solutions = self.request.settings, self._solutions
        is_solved = any(solution.is_supported or settings.evidence == "any" for solution in solutions)
        nearest = [] if is_solved or settings.rules.only_purchasable else self._search.unfinished(_UNFINISHED)
        candidates = [
            Candidate(solution.route.to_string(), -solution.cost, solution.route.depth, solution.route)
            for solution in [*nearest, *solutions][: settings.num_routes]
        ]
        if is_solved:
            return candidates, []
        reason = self._why_not()
        return (candidates, [reason[0].upper() + reason[1:]]) if candidates else ([nothing_found(reason)], [])

    def _why_not(self) -> str:
        settings, search = self.request.settings, self._search
        kind = steps_in_words(settings.evidence if search.solutions else "any")
        counts = [search.num_expanded(source) for source in (LIBRARY, MODEL)]
        work = f"{counts[0]:,} molecules were expanded, {counts[1]:,} of them by the model"
        if self._ran_out_of_time:
            limit = f"{settings.time_limit:g} s"
            what = f"no route by {kind} to the stock was found in {limit}"
            return f"{what}: {work}. Give it more time, or use a larger stock."
        if not search.is_exhausted:
            return f"no route by {kind} to the stock was found: {work}. Use more expansions or a larger stock."
        limit, end = "", "there are no other reactions"
        if search.is_cut:
            limit, end = f" of at most {search.most_reactions} reactions", "longer routes are not searched"
        return f"no route by {kind}{limit} ends in the stock: {work}, and {end}. Use more beams or a larger stock."


def stock_remarks(stock: Stock | None, target: str) -> list[str]:
    """Return a remark if the target is in the stock."""
    offer = None if stock is None else stock.offer(target)
    return [f"{target} itself is in the stock{offer.description and ': '}{offer.description}."] if offer else []


def is_allowed(product: str, reactants: Sequence[str], rules: Constraints) -> bool:
    """Return whether a step is possible and keeps the rules of a search."""
    if any(broken_by_user(smiles, rules) for smiles in reactants) or is_forbidden(product, reactants, rules):
        return False
    return step_fault(product, reactants, rules=rules) is None


def recorded_steps(
    library: judging.Library, smiles: str, rules: Constraints, most: int = LISTED_STEPS
) -> list[Proposal]:
    """Return the reactions of a molecule by recorded transformations, a user's own first. Each is still to be
    checked.
    """
    return [_proposal(derived, rules) for derived in _derived(library, smiles, most) if derived.bound]


def rare_steps(
    library: judging.Library, smiles: str, rules: Constraints, known: Sequence[Derived] = ()
) -> list[Proposal]:
    """Return the reactions of a molecule by rare transformations and those of textbooks, except for known ones. Each
    is still to be checked.
    """
    others = {derived.reactants: derived for derived in known}
    steps = [
        _proposal(derived, rules, others.get(derived.reactants))
        for derived in _derived(library.rare, smiles, _RARE_STEPS)
        if derived.bound
    ]
    isomers = mixture(smiles) if library.textbook is not None else None
    is_known = isomers is not None and (isomers,) in others and others[isomers,].share > 0
    if isomers is not None and not is_known and is_allowed(smiles, (isomers,), rules):
        steps.append(Proposal((isomers,), -math.log(_SEPARATION), True))
    return steps


@lru_cache(_CACHED_MOLECULES)
def _derived(library: judging.Library, smiles: str, most: int) -> list[Derived]:
    return library.derive(smiles, most)


@lru_cache(_CACHED_MOLECULES)
def _delays(library: judging.Library, smiles: str) -> tuple[float, ...]:
    """Return what is added to the rank of a molecule before each source is asked for its reactions. Textbooks are
    asked as soon as their most probable reaction may be worth it.
    """
    of_rare = _DELAY_OF_RARE
    if library.textbook is not None:
        least = _SEPARATION if mixture(smiles) is not None else 0.0
        of_rare = min(of_rare, -math.log(max(least, library.textbook.most_probable(smiles))))
    return 0.0, of_rare, _DELAY_OF_MODEL, _DELAY_OF_MORE


def _proposal(derived: Derived, rules: Constraints, known: Derived | None = None) -> Proposal:
    """Return a reaction of the library. Its check refuses it if the same reaction is known."""

    def check() -> Proposal | None:
        if (known is not None and known.share) or not is_allowed(derived.product, derived.reactants, rules):
            return None
        return Proposal(derived.reactants, -math.log(min(1.0, derived.share)), True) if derived.share else None

    return Proposal(derived.reactants, -math.log(min(1.0, derived.bound)), True, check)


def model_steps(shared: Shared, product: str, candidates: Iterable[Candidate]) -> Sequence[Proposal]:
    """Return the reactions among the candidates of the model, with their costs, and add them to those of other
    molecules. The grammar has applied the rules. Whether they are supported is still to be checked.
    """
    steps: dict[tuple[str, ...], Proposal] = {}
    for candidate in candidates:
        if candidate.route is not None and candidate.route.children:
            reactants, cost = candidate.route.reactants, -candidate.score
            check = partial(_with_support, product, reactants, cost, shared.library)
            steps.setdefault(reactants, Proposal(reactants, cost, True, check))
    while len(shared.expanded) >= _CACHED_MOLECULES:
        del shared.expanded[next(iter(shared.expanded))]
    shared.expanded[product] = list(steps.values())
    return shared.expanded[product]


def _with_support(product: str, reactants: tuple[str, ...], cost: float, library: judging.Library) -> Proposal:
    return Proposal(reactants, cost, judging.is_supported(product, reactants, library))


def log_probabilities(library: judging.Library, smiles: str, rules: Constraints) -> dict[tuple[str, ...], float]:
    """Return the reactants of a molecule by the library, with their log-probabilities, the most probable first."""
    steps = [*recorded_steps(library, smiles, rules), *rare_steps(library, smiles, rules)]
    possible = sorted(filter(None, (step.checked() for step in steps)), key=lambda step: step.cost)
    shares = dict[tuple[str, ...], float]()
    for step in possible:
        shares.setdefault(step.reactants, -step.cost)
    return shares


def own_reactants(library: judging.Library, smiles: str) -> list[tuple[str, ...]]:
    """Return the reactants of a molecule by the transformations of a user, which come before all others."""
    return [] if library.users is None else [reactants for reactants, _ in library.users.propose(smiles, LISTED_STEPS)]


def _estimate(smiles: str) -> float:
    """Return the estimated cost of a molecule that is not purchasable, from the number of its heavy atoms."""
    molecule = read_molecule(smiles)
    return ESTIMATE[0] + ESTIMATE[1] * sum(molecule.atoms.values()) if molecule else math.inf

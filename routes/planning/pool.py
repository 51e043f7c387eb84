"""Plan targets that share a running search of the model: searches of each target -> candidates -> ranking -> plan."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..faults import step_fault
from ..molecules import read_molecule
from ..plans import NOTHING_FOUND, Candidate, Plan, pooled, ranked, standing_out
from .constraints import broken_by_user
from .search import Deadline, Job, RouteSearch
from .settings import PlanSettings
from .shelf_search import Found, ShelfSearch, Step
from .targets import PlanRequest, check_source

if TYPE_CHECKING:
    from ..judging import Library
    from ..stock import Stock
    from ..tree import Route

# The default number of beams of one search. More beams take more memory and save little time.
ROWS = 80
# The same for single steps of many targets, when nobody waits for one of them: a tenth more expansions for 115 MB.
ROWS_OF_MANY = 160
# The number of molecules of one target searched at once. More would search reactions that its routes never need.
AT_ONCE = 8
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
_REMEMBERED = 1 << 11


class _WholeRoutes:
    """The searches of a target whose routes the model writes whole: each of its jobs, once."""

    first: Route | None = None  # these searches end together, so no route comes first

    def __init__(self, request: PlanRequest, search: RouteSearch):
        self.request, self._search = request, search
        self._waiting = deque(enumerate(request.jobs))
        self._left = len(request.jobs)
        self._deadline: Deadline | None = None
        self._has_begun = False
        self._candidates: dict[Hashable, list[Candidate]] = {}

    def is_over(self, seconds: float) -> bool:
        """Return whether all searches have ended."""
        return not self._left

    def next(self, running: int) -> tuple[Hashable, Job, Deadline | None] | None:
        """Return the next job to search, with its place and deadline, or None."""
        while self._waiting:
            place, job = self._waiting.popleft()
            if not self._has_begun:
                self._deadline, self._has_begun = self._search.deadline(self.request.settings.time_limit), True
            if self._deadline is None or not self._deadline.ends():
                return place, job, self._deadline
            self.tell(place, [self._search.out_of_time(job)])
        return None

    def tell(self, place: Hashable, candidates: list[Candidate]) -> None:
        self._candidates[place] = candidates
        self._left -= 1

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return all candidates, and the remarks about them."""
        candidates = [one for place in sorted(self._candidates, key=str) for one in self._candidates[place]]
        if len(self.request.jobs) > 1:
            candidates = pooled(candidates)
        if self._deadline is None or not self._deadline.is_over:
            return candidates, []
        limit = self.request.settings.time_limit
        return candidates, [f"The time limit of {limit:g} s was reached: these are the routes found until then."]


class _ToTheStock:
    """The searches of a target whose routes are assembled from single steps, one molecule at a time.

    Two searches share the time. One looks for routes of transformations that the library has recorded, the other for
    routes of reactions that the model proposes. The first finds more routes that a chemist would try. The second
    solves more targets.
    """

    def __init__(self, request: PlanRequest, search: RouteSearch, stock: Stock, remembered: dict[str, Sequence[Step]]):
        self.request, self._search, self._remembered = request, search, remembered
        self._stock = stock
        self._per_reaction = request.settings.per_reaction or PER_REACTION
        self._recorded, self._proposed = (
            ShelfSearch(
                request.target,
                stock.without(request.target),
                _estimate,
                most_routes=request.settings.num_routes,
                per_reaction=self._per_reaction,
            )
            for _ in range(2)
        )
        self._library_seconds = 0.0
        self._num_found = 0
        self._distinct: list[Found] = []

    def _found(self) -> list[Found]:
        """Return the routes of both searches, each once, and only the best of those with the same last reaction.

        Recorded ones come first, then the cheapest.
        """
        every = [*self._recorded.found, *self._proposed.found]
        if len(every) != self._num_found:
            self._num_found = len(every)
            distinct = {one.route.canonical(): one for one in every}.values()
            seen: Counter[tuple[str, ...]] = Counter()
            self._distinct = []
            for one in sorted(distinct, key=lambda one: (not one.is_recorded, one.cost)):
                last = tuple(sorted(child.smiles for child in one.route.children))
                if seen[last] < self._per_reaction:
                    seen[last] += 1
                    self._distinct.append(one)
        return self._distinct

    @property
    def first(self) -> Route | None:
        """A route to the stock, or None if none is found yet."""
        return next((one.route for one in self._recorded.found or self._proposed.found), None)

    @property
    def _is_enough(self) -> bool:
        if not self._recorded.goes_on and not self._proposed.goes_on:
            return True
        most = self.request.settings.num_routes
        if len(self._recorded.found) + len(self._proposed.found) < most:
            return False
        found = self._found()
        return len(found) >= most and any(one.is_recorded for one in found)

    def is_over(self, seconds: float) -> bool:
        """Return whether there are enough routes, nothing is left to search, or the budget is spent."""
        return self._is_enough or seconds >= self.request.settings.budget

    def next(self, running: int) -> tuple[Hashable, Job, Deadline | None] | None:
        """Return a job to search, with its molecule, or None if no job can start now."""
        search = self._proposed
        while running < AT_ONCE and search.goes_on and not self._is_enough:
            smiles = search.wanted()
            if smiles is None:
                return None
            known = self._remembered.get(smiles)
            if known is None:
                try:
                    check_source(self._search.model, self._search.tokenizer, smiles)
                except ValueError:
                    known = ()  # the model cannot read it
            if known is None:
                return smiles, Job(smiles, self.request.told), None
            search.tell(smiles, known)
        return None

    def advance(self, seconds: float) -> float:
        """Run the search of the library for half of the time, or for all of it if the other search has ended.

        Args:
            seconds: the target's share of the time so far.

        Returns:
            The seconds that it took.
        """
        from ..judging import shipped_library  # needs RDKit, which models of texts do not need

        taken = 0.0
        while self._recorded.goes_on and not self._is_enough:
            is_alone = not self._proposed.goes_on
            if not is_alone and 2 * self._library_seconds > seconds + taken:
                break
            begun = time.monotonic()
            smiles = self._recorded.wanted()
            if smiles is not None:
                steps = _library_steps(shipped_library(), smiles)
                self._recorded.tell(smiles, [step for step in steps if self._is_allowed(smiles, step)])
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

    def tell(self, smiles: Hashable, candidates: list[Candidate]) -> None:
        from ..judging import judge

        steps: dict[tuple[str, ...], Step] = {}
        for one in candidates:
            if one.route is not None and one.route.children:
                reactants = tuple(sorted(child.smiles for child in one.route.children))
                # the grammar has applied the rules, except those that the user has switched off
                is_recorded = judge(str(smiles), reactants).state == "precedented"
                cost = -one.score + (0.0 if is_recorded else UNRECORDED_COST)
                steps.setdefault(reactants, Step(reactants, cost, is_recorded))
        while len(self._remembered) >= _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[str(smiles)] = known = list(steps.values())
        self._proposed.tell(str(smiles), known)

    def result(self) -> tuple[list[Candidate], list[str]]:
        """Return the routes to the stock, or a few that come nearest to it, and the remarks about them."""
        settings, found = self.request.settings, self._found()
        offer = self._stock.offer(self.request.target)
        told = (
            [f"{self.request.target} itself is in the stock{offer.in_words and ': '}{offer.in_words}."]
            if offer
            else []
        )
        routes = found or ([] if settings.rules.only_purchasable else self._proposed.unfinished(_UNFINISHED))
        candidates = [
            Candidate(one.route.to_string(), -one.cost, one.route.depth, one.route)
            for one in routes[: settings.num_routes]
        ]
        if found:
            return candidates, told
        why = self._why_not()
        if candidates:
            return candidates, [*told, why[0].upper() + why[1:]]
        return [Candidate("", float("-inf"), None, problem=NOTHING_FOUND + why)], told

    def _why_not(self) -> str:
        searches = (self._recorded, self._proposed)
        molecules = f"{max(search.num_expanded for search in searches):,} molecules were expanded"
        is_exhausted = all(search.is_exhausted for search in searches)
        if is_exhausted and any(search.is_cut for search in searches):
            return (
                f"no route of at most {self._proposed.most_reactions} reactions ends in the stock: {molecules}, and longer routes "
                "are not searched. Use a larger stock or more beams to find a shorter route."
            )
        if is_exhausted:
            return (
                f"no route ends in the stock: {molecules}, and the model proposes no other reactions. Use more beams "
                "or a larger stock."
            )
        return (
            f"no route to the stock was found in {self.request.settings.budget:g} s: {molecules}. Use a longer time limit or "
            "a larger stock."
        )


@lru_cache(_REMEMBERED)
def _library_steps(library: Library, smiles: str) -> list[Step]:
    """Return the reactions of a molecule by recorded transformations.

    A reaction costs minus the logarithm of a share: that of its transformation among the recorded reactions whose
    transformation the molecule allows.
    """
    return [Step(reactants, -math.log(share), True) for reactants, share in library.propose(smiles, LIBRARY_STEPS)]


def _estimate(smiles: str) -> float:
    """Return the estimated cost of a molecule that is not purchasable, from the number of its heavy atoms."""
    molecule = read_molecule(smiles)
    return ESTIMATE[0] + ESTIMATE[1] * sum(molecule.atoms.values()) if molecule else math.inf


@dataclass(eq=False)
class _Target:
    """A target whose searches are not over.

    Args:
        key: the name of the target in the pool.
        request: the request.
        wants: the searches of the target.
        running: the number of its running searches.
        seconds: its share of the time of all steps.
        begun: when it joined.
        turn: the place of its latest search among all that have begun.
        is_told: whether its first route to the stock was reported.
    """

    key: Hashable
    request: PlanRequest
    wants: _WholeRoutes | _ToTheStock
    running: int = 0
    seconds: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    turn: int = 0
    is_told: bool = False


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
        remembered: the reactions of molecules that were searched before with the same model and settings.

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
        remembered: dict[str, Sequence[Step]] | None = None,
    ):
        self.together = together
        self.on_first: Callable[[Hashable, Route], None] | None = None
        rows = ROWS_OF_MANY if together and stock is not None and not settings.direct else ROWS
        self.settings, self.stock, self.most = settings, stock, most or max(1, rows // settings.beams)
        self._search = RouteSearch(model, tokenizer, settings, stock, watch)
        self._remembered = {} if remembered is None else remembered
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
        wants: _WholeRoutes | _ToTheStock
        if request.searches_steps:
            assert self.stock is not None
            wants = _ToTheStock(request, self._search, self.stock, self._remembered)
        else:
            wants = _WholeRoutes(request, self._search)
        self._targets[key] = _Target(key, request, wants)

    def remove(self, key: Hashable) -> None:
        """Remove a target whose plan is no longer needed."""
        target = self._targets.pop(key)
        tickets = [ticket for ticket, (owner, _) in self._running.items() if owner is target]
        self._search.remove(tickets)
        for ticket in tickets:
            del self._running[ticket]

    def step(self) -> list[tuple[Hashable, Plan]]:
        """Let waiting searches join, write a token of each text, and return the plans whose searches are over."""
        begun = time.monotonic()
        self._join()
        running = [target for target, _ in self._running.values()]
        for ticket, candidates in self._search.step():
            target, place = self._running.pop(ticket)
            target.running -= 1
            target.wants.tell(place, candidates)
        for target in running or self._targets.values():
            target.seconds += (time.monotonic() - begun) / len(running or self._targets)
        for target in self._targets.values():
            if isinstance(target.wants, _ToTheStock):
                target.seconds += target.wants.advance(target.seconds)
        over = [target for target in self._targets.values() if target.wants.is_over(self._spent(target))]
        for target in over:
            self.remove(target.key)
        for target in self._targets.values():
            if self.on_first is not None and not target.is_told and (route := target.wants.first) is not None:
                target.is_told = True
                self.on_first(target.key, route)
        return [(target.key, self._plan(target)) for target in over]

    def _spent(self, target: _Target) -> float:
        return target.seconds if self.together else time.monotonic() - target.begun

    def _join(self) -> None:
        """Let searches join where there is room."""
        asked = list(self._targets.values())
        is_whole = not any(target.request.searches_steps for target in asked)
        if self.together and self._running and is_whole:
            return
        # Searches of one target are alike and end together, and a finished target is reported at once. If others wait
        # for an answer, the targets take turns, so that one with many searches does not keep them waiting.
        in_order = self.together or (is_whole and not self._search.is_continuous)
        joining: list[tuple[_Target, Hashable, Job, Deadline | None]] = []
        while asked and len(self._running) + len(joining) < self.most:
            target = asked[0] if in_order else min(asked, key=lambda one: one.turn)
            wanted = target.wants.next(target.running)
            if wanted is None:
                asked.remove(target)
                continue
            joining.append((target, *wanted))
            target.running += 1
            self._turns += 1
            target.turn = self._turns
        if joining:
            tickets = self._search.add(
                [job for _, _, job, _ in joining],
                [deadline for *_, deadline in joining],
                [target.request.settings.max_new_tokens for target, *_ in joining],
            )
            self._running |= {ticket: one[:2] for ticket, one in zip(tickets, joining, strict=True)}

    def _plan(self, target: _Target) -> Plan:
        """Return the plan of a target, with its candidates ranked."""
        begun, settings = time.monotonic(), target.request.settings
        candidates, told = target.wants.result()
        best = ranked(
            candidates,
            self.stock,
            settings.on_fail,
            per_reaction=settings.per_reaction,
            by_evidence=settings.ranking == "log_probability",
            per_step=isinstance(target.wants, _WholeRoutes),
        )
        remarks = [*target.request.remarks, *told, *standing_out(best)]
        if not best and candidates:
            remarks.append(f"All {len(candidates)} routes have a step that fails, and were left out.")
        seconds = target.seconds + time.monotonic() - begun
        return Plan(target.request.target, best, seconds=seconds, remarks=tuple(remarks))

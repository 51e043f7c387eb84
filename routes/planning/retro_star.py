"""Searches for routes to purchasable molecules, best first, one step at a time.

A state is the set of molecules that still have to be made. The most promising state is taken up first. For each
reaction of one of its molecules, a new state has the reactants that are not purchasable in place of the molecule. A
state without molecules is a route. The cost of a reaction is its negative log-probability plus [`STEP_COST`], and
[`UNRECORDED_COST`] if it is not supported: neither recorded nor in textbooks. A state ranks by the cost of its
reactions plus an estimate of the remaining cost of its molecules (A*, Hart et al. 1968; Retro*, Chen et al. 2020,
arXiv:2006.15820, ranks the same way). Without an estimate, the first route is the cheapest of all that the expansions
allow.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import NamedTuple

from ..tree import Route

# Added to the cost of each reaction, because a step of probability 1 would be free. 0.3 is the cost of a step of
# probability 0.74. It was not tuned.
STEP_COST = 0.3
# Added to the cost of a reaction whose transformation is neither recorded nor in textbooks.
UNRECORDED_COST = 1.0
# The number of states with the same molecules left to make that are pursued. They differ in the reactions so far.
_ALIKE = 3
# The number of states that one call examines, in some tenths of a second.
_AT_A_TIME = 2_000


class Proposal(NamedTuple):
    """A reaction that a model or a library proposes.

    Args:
        reactants: canonical SMILES, sorted.
        cost: the negative log-probability, or the least that it can be.
        is_supported: whether a recorded reaction, or one of textbooks, has the same transformation, or may have it.
        check: returns the reaction as it is, or None if it is refused. This takes time, and a search needs few of the
            reactions that are proposed. None if there is nothing to check.
    """

    reactants: tuple[str, ...]
    cost: float
    is_supported: bool = False
    check: Callable[[], Proposal | None] | None = None

    def checked(self) -> Proposal | None:
        """Return the reaction as it is, or None if it is refused."""
        return self if self.check is None else self.check()

    @property
    def step_cost(self) -> float:
        """What the reaction adds to the cost of a route."""
        return self.cost + STEP_COST + (0.0 if self.is_supported else UNRECORDED_COST)


# The molecules of a route with the reactions that make them.
Steps = tuple[tuple[str, Proposal], ...]


class _State(NamedTuple):
    rank: float  # the cost plus the estimate for open molecules
    tie: int
    cost: float
    open: tuple[str, ...]  # molecules still to be made, the longest SMILES first
    steps: Steps  # molecules with the reactions that make them, the target first
    source: int = 0  # the source of reactions that comes next for the first open molecule
    is_checked: bool = True  # whether the last of the steps is


class Request(NamedTuple):
    """The reactions that a search needs.

    Args:
        molecule: canonical SMILES of the molecule to make.
        source: the number of the source of reactions.
    """

    molecule: str
    source: int


@dataclass(frozen=True)
class Solution:
    """A route, with its total cost, whether each of its reactions is supported, and the estimated cost of making the
    molecules that are not purchasable.
    """

    route: Route
    cost: float
    is_supported: bool
    remaining: float = 0.0

    @property
    def distance(self) -> tuple[bool, float]:
        """The key that sorts unfinished routes: supported ones first, then those that cost little with what is left to
        make. A longer search would else put a detour in place of a short route.
        """
        return not self.is_supported, self.cost + self.remaining


class RetroStarSearch:
    """The search for one target. [`next_request`] returns a molecule whose reactions the search needs,
    [`add_reactions`] receives them, and `solutions` collects the routes.

    Reactions come from one source or several, such as a library and a model. The later sources of a molecule wait
    until their delays have been spent elsewhere.

    Args:
        target: canonical SMILES. Its reactions are searched even if it is purchasable.
        is_bought: returns whether a molecule, a canonical SMILES, is purchasable.
        estimate: the estimated cost of making a molecule that is not purchasable. Defaults to 0.
        most_reactions: the largest number of reactions in a route.
        per_reaction: the largest number of routes with the same last reaction, of supported steps alone and of others.
            After these, the search turns to other reactions. Defaults to all.
        most_states: the number of states that are kept. The least promising are dropped first.
        delays: returns what is added to the rank of a state before each source of reactions is used for a molecule.
            No source has a smaller delay than the one before it.
    """

    def __init__(
        self,
        target: str,
        is_bought: Callable[[str], bool],
        estimate: Callable[[str], float] = lambda molecule: 0.0,
        most_reactions: int = 15,
        per_reaction: int | None = None,
        most_states: int = 50_000,
        delays: Callable[[str], Sequence[float]] = lambda molecule: (0.0,),
    ):
        self.target, self._is_bought, self._estimate, self._delays = target, is_bought, estimate, delays
        self.most_reactions, self._most_states = most_reactions, most_states
        self._per_reaction = per_reaction
        # the routes that were found, by the reactants of their last reaction, and whether all steps are supported
        self._of_reaction: Counter[tuple[bool, tuple[str, ...]]] = Counter()
        self.is_cut = False  # whether a longer route might have been found
        self._tie = count()
        self._queue: list[_State] = [_State(0.0, next(self._tie), 0.0, (target,), ())]
        self._steps: dict[Request, Sequence[Proposal]] = {}
        self._waiting: dict[Request, list[_State]] = {}
        self._expanded: list[_State] = []  # the reactions of their first molecule are known
        self._alike: Counter[tuple[bool, tuple[str, ...]]] = Counter()
        self._checked: dict[tuple[str, Proposal], Proposal | None] = {}  # the reactions of a molecule
        self.solutions: list[Solution] = []

    @property
    def is_exhausted(self) -> bool:
        """Whether no state is left to search or waits for reactions."""
        return not self._queue and not self._waiting

    def num_expanded(self, source: int | None = None) -> int:
        """Return the number of molecules whose reactions are known from a source, or from each of them."""
        return sum(request.source == source for request in self._steps) if source is not None else len(self._steps)

    def next_request(self) -> Request | None:
        """Return the next molecule whose reactions the search needs, and their source.

        Return None if the search needs the reactions of earlier molecules first, or has examined many states, so that
        the caller can check the time. Routes that are found on the way are added to `solutions`.
        """
        for _ in range(_AT_A_TIME):
            if not self._queue:
                break
            state = heapq.heappop(self._queue)
            if not state.is_checked:
                self._check(state)
                continue
            if state.steps and self._per_reaction is not None:
                _, last_step = state.steps[0]
                group = _is_supported(state.steps), last_step.reactants
                if self._of_reaction[group] >= self._per_reaction:
                    continue
                if not state.open:
                    self._of_reaction[group] += 1
            if not state.open:
                self.solutions.append(self._solution(state))
                continue
            request = Request(state.open[0], state.source)
            steps = self._steps.get(request)
            if steps is not None:
                self._expand(state, steps)
            elif request in self._waiting:
                self._waiting[request].append(state)
            else:
                self._waiting[request] = [state]
                return request
        return None

    def unfinished(self, most: int) -> list[Solution]:
        """Return the unfinished routes that come nearest to purchasable molecules, by [`Solution.distance`].

        Each is cut at its reactions that are not supported, unless its last reaction is one: a step to a molecule that
        can be bought is worth nothing if it does not work.
        """
        queue = [state for state in self._queue if state.is_checked]
        states = [*queue, *self._expanded, *(state for waiting in self._waiting.values() for state in waiting)]
        routes = {_supported(state.steps) or state.steps for state in states if state.steps}
        is_bought = cache(self._is_bought)  # many routes share their molecules

        def solution(steps: Steps) -> Solution:
            leaves = {reactant for _, step in steps for reactant in step.reactants} - {product for product, _ in steps}
            remaining = sum(self._estimate(leaf) for leaf in leaves if not is_bought(leaf))
            cost = sum(step.step_cost for _, step in steps)
            return Solution(_route(self.target, dict(steps)), cost, _is_supported(steps), remaining)

        return heapq.nsmallest(most, map(solution, routes), key=lambda solution: solution.distance)

    def add_reactions(self, request: Request, steps: Sequence[Proposal]) -> None:
        """Give the search the reactions that [`next_request`] asked for."""
        self._steps[request] = steps
        for state in self._waiting.pop(request, ()):
            heapq.heappush(self._queue, state)

    def _solution(self, state: _State) -> Solution:
        return Solution(_route(self.target, dict(state.steps)), state.cost, _is_supported(state.steps))

    def _expand(self, state: _State, steps: Sequence[Proposal]) -> None:
        molecule, rest = state.open[0], state.open[1:]
        by_product = dict(state.steps)
        if len(by_product) >= self.most_reactions:
            steps, self.is_cut = (), self.is_cut or bool(steps)
        for step in steps:
            if any(_needs(reactant, molecule, by_product) for reactant in step.reactants):
                continue  # a molecule would be made from itself
            new = {smiles for smiles in step.reactants if smiles not in by_product and not self._is_bought(smiles)}
            molecules = tuple(sorted(new.union(rest), key=lambda smiles: (-len(smiles), smiles)))
            route = (*state.steps, (molecule, step))
            # Routes of supported steps alone are not crowded out by cheaper ones.
            if self._alike[_is_supported(route), molecules] >= _ALIKE and molecules:
                continue
            cost = state.cost + step.step_cost
            rank = cost + sum(map(self._estimate, molecules))
            heapq.heappush(self._queue, _State(rank, next(self._tie), cost, molecules, route, is_checked=False))
        if len(self._queue) > 2 * self._most_states:
            self._queue = heapq.nsmallest(self._most_states, self._queue)
        delays, source = self._delays(state.open[0]), state.source + 1
        if source < len(delays):
            rank = state.rank + delays[source] - delays[state.source]
            heapq.heappush(self._queue, state._replace(rank=rank, tie=next(self._tie), source=source))
        self._expanded.append(state)
        if len(self._expanded) > 2 * self._most_states:
            self._expanded = heapq.nsmallest(self._most_states, self._expanded, key=self._distance)

    def _check(self, state: _State) -> None:
        """Put a state back into the queue if its last reaction is possible, with what that really costs."""
        *earlier, (molecule, step) = state.steps
        if (molecule, step) not in self._checked:
            self._checked[molecule, step] = step.checked()
        if (checked := self._checked[molecule, step]) is None:
            return
        steps, more = (*earlier, (molecule, checked)), checked.step_cost - step.step_cost
        kind = _is_supported(steps), state.open
        if self._alike[kind] < _ALIKE or not state.open:
            self._alike[kind] += 1
            state = state._replace(rank=state.rank + more, cost=state.cost + more, steps=steps, is_checked=True)
            heapq.heappush(self._queue, state)

    def _distance(self, state: _State) -> float:
        """Return the cost of a state with what is left to make. Its rank also has the delays of sources."""
        return state.cost + sum(map(self._estimate, state.open))


def _is_supported(steps: Steps) -> bool:
    return all(step.is_supported for _, step in steps)


def _supported(steps: Steps) -> Steps:
    """Return the supported reactions that lead to the target through supported ones alone. The first makes the
    target.
    """
    molecules, chain = {steps[0][0]}, []
    for molecule, step in steps:
        if molecule in molecules and step.is_supported:
            molecules.update(step.reactants)
            chain.append((molecule, step))
    return tuple(chain)


def _route(molecule: str, steps: dict[str, Proposal]) -> Route:
    step = steps.get(molecule)
    return Route(molecule, tuple(_route(reactant, steps) for reactant in step.reactants) if step else ())


def _needs(molecule: str, other: str, steps: dict[str, Proposal]) -> bool:
    """Return whether a molecule is the other, or is made from it."""
    if molecule == other:
        return True
    step = steps.get(molecule)
    return step is not None and any(_needs(reactant, other, steps) for reactant in step.reactants)

"""Search beyond the longest route that the model writes: what cannot be bought becomes a target again.

The model writes a whole route at once, up to the length that it was trained on. Where such a route ends in molecules that the
stock lacks, routes to these are searched in their turn, and so on to a given depth. Routes are then joined at these molecules.

[`LeafExpansion`] is the logic alone: a function gives it candidates, so it can be tested without a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..molecules import canonical_smiles
from ..plans import Candidate
from ..tree import MAX_DEPTH, Route

if TYPE_CHECKING:
    from ..stock import Stock

# The candidates of each of these molecules, best first; a molecule that cannot be searched has none.
Search = Callable[[Sequence[str]], list[list[Candidate]]]


@dataclass(frozen=True)
class Joined:
    """A route that was put together.

    Args:
        route: the whole of it.
        texts: the molecules that were searched for it, apart from the target, and the score of the text that was taken for
            each. A molecule that stands in several places is made in the same way in all of them, and is here once.
    """

    route: Route
    texts: tuple[tuple[str, float], ...] = ()

    @property
    def cost(self) -> float:
        return -sum(score for _, score in self.texts)

    @cached_property
    def molecules(self) -> frozenset[str]:
        return frozenset(map(canonical_smiles, self.route.molecules()))


class LeafExpansion:
    """Makes routes whose starting materials can be bought out of routes whose starting materials cannot.

    The score of a joined route is the sum of the log-probabilities of the texts that it consists of: that of the route to the
    target, and that of the route to each molecule where another was joined, once for each molecule. It is the
    log-probability that the model writes all of these texts, each told its own target. (With the ranking "sqrt_length" it is
    the sum of these scores, which is no probability.)

    A molecule is replaced by a route of its own only where that route begins from molecules of the stock; otherwise it stays
    the starting material that it was. In a joined route no molecule is made from itself: no molecule below a joint is one of
    those above it.

    Args:
        search: gives the candidates of molecules. It is called once for each level, with all molecules of that level.
        stock: what can be bought.
        depth: how often a starting material may become a target, one below the other.
        most_molecules: molecules that are searched at each level, those of the best routes first.
        most_routes: routes that are kept for each molecule, and joined routes for each candidate.
        is_over: whether the time is up; no level is begun then.
        never: molecules that are not replaced, such as one that every route has to begin from.
    """

    def __init__(
        self,
        search: Search,
        stock: Stock,
        *,
        depth: int,
        most_molecules: int = 20,
        most_routes: int = 5,
        is_over: Callable[[], bool] = lambda: False,
        never: Sequence[str] = (),
    ):
        self.search, self.stock, self.depth = search, stock, depth
        self.most_molecules, self.most_routes, self.is_over = most_molecules, most_routes, is_over
        self.never = {canonical_smiles(smiles) for smiles in never}
        # routes to each molecule that was searched, best first
        self.known: dict[str, list[Candidate]] = {}
        self._made: dict[tuple[str, int], list[Joined]] = {}

    def __call__(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Search what is missing, and join.

        Args:
            candidates: of the target, best first.

        Returns:
            The candidates, and behind them the joined routes, whose `joined_at` names the molecules where routes were joined.
            Ranks, and what the stock lacks, are not set.
        """
        self._search(candidates)
        self._made.clear()
        joined = []
        for candidate in candidates:
            if candidate.route is None:
                continue
            for one in self._ways(candidate.route, self.depth):
                if one.texts:
                    joined.append(
                        replace(
                            candidate,
                            text=one.route.to_string(),
                            score=candidate.score - one.cost,
                            route=one.route,
                            missing=None,
                            joined_at=tuple(smiles for smiles, _ in one.texts),
                        )
                    )
        return [*candidates, *joined]

    def _search(self, candidates: Sequence[Candidate]) -> None:
        routes = [candidate.route for candidate in candidates if candidate.route is not None]
        targets = {canonical_smiles(route.smiles) for route in routes}
        for _ in range(self.depth):
            missing = dict.fromkeys(canonical_smiles(leaf) for route in routes for leaf in self._missing(route))
            asked = [smiles for smiles in missing if smiles not in self.known and smiles not in targets]
            asked = asked[: self.most_molecules]
            if not asked or self.is_over():
                return
            routes = []
            for smiles, found in zip(asked, self.search(asked), strict=True):
                self.known[smiles] = _distinct(found)[: self.most_routes]
                routes += [candidate.route for candidate in self.known[smiles] if candidate.route is not None]

    def _missing(self, route: Route) -> list[str]:
        """The starting materials that may be replaced."""
        return [smiles for smiles in self.stock.missing(route) if canonical_smiles(smiles) not in self.never]

    def _ways(self, route: Route, depth: int) -> list[Joined]:
        """The route with its starting materials replaced where they can be, cheapest first; as it is where none can."""
        missing = {canonical_smiles(smiles) for smiles in self._missing(route)} if depth else set()
        # one route for all places of a molecule: what is made from it in any of them may not stand in that route
        above: dict[str, set[str]] = {}
        for *path, leaf in _paths(route):
            if leaf in missing:
                above.setdefault(leaf, set()).update(path)
        options: dict[str, list[Joined]] = {}
        for smiles, ancestors in above.items():
            ways = [way for way in self._purchasable(smiles, depth - 1) if ancestors.isdisjoint(way.molecules)]
            if ways:
                options[smiles] = ways[: self.most_routes]
        if not options:
            return [Joined(route)]
        joined = []
        for choice in _cheapest(list(options.values()), self.most_routes):
            one = _join(route, dict(zip(options, choice, strict=True)))
            joined += [] if one is None else [one]
        return sorted(joined, key=lambda one: one.cost) or [Joined(route)]

    def _purchasable(self, smiles: str, depth: int) -> list[Joined]:
        """Ways to make a molecule from the stock alone, cheapest first."""
        if (smiles, depth) not in self._made:
            ways = [
                Joined(way.route, ((smiles, candidate.score), *way.texts))
                for candidate in self.known.get(smiles, ())
                if candidate.route is not None
                for way in self._ways(candidate.route, depth)
                if not self.stock.missing(way.route)
            ]
            # more than are taken, because some may need what is made from the molecule
            self._made[smiles, depth] = sorted(ways, key=lambda one: one.cost)[: 2 * self.most_routes]
        return self._made[smiles, depth]


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Each route once, best first, without those that cannot be."""
    found: dict[Route, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        if candidate.route is not None and candidate.possible is not False:
            found.setdefault(candidate.route.canonical(), candidate)
    return list(found.values())


def _paths(route: Route, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The canonical molecules from the target down to each starting material."""
    path = (*above, canonical_smiles(route.smiles))
    if not route.children:
        yield path
    for child in route.children:
        yield from _paths(child, path)


def _cheapest(options: list[list[Joined]], most: int) -> list[tuple[Joined, ...]]:
    """The choices of one from each list with the least sum of costs."""
    found: list[tuple[Joined, ...]] = [()]
    for option in options:  # the cheapest choices begin with the cheapest of the lists before
        longer = [(*choice, one) for choice in found for one in option]
        found = sorted(longer, key=lambda choice: sum(one.cost for one in choice))[:most]
    return found


def _join(route: Route, chosen: dict[str, Joined]) -> Joined | None:
    """The route with these starting materials replaced; None where it is too deep, or makes a molecule in two ways."""
    texts: dict[str, float] = {}
    for part in chosen.values():
        for smiles, score in part.texts:
            if texts.setdefault(smiles, score) != score:
                return None
    joined = _replaced(route, {smiles: part.route for smiles, part in chosen.items()})
    return None if joined.depth > MAX_DEPTH else Joined(joined, tuple(texts.items()))


def _replaced(route: Route, parts: dict[str, Route]) -> Route:
    if route.children:
        return Route(route.smiles, tuple(_replaced(child, parts) for child in route.children))
    part = parts.get(canonical_smiles(route.smiles))
    return route if part is None else Route(route.smiles, part.children)

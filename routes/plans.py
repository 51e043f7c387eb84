"""What a search finds for a target: ranked candidates, those that are no routes among them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .tree import Route

if TYPE_CHECKING:
    from .feasibility import RouteCheck
    from .stock import Stock


@dataclass(frozen=True)
class Candidate:
    """One text the model wrote: `route`, or `problem` when the text is none. `score` is its log-probability,
    -inf (None in JSON) where a search found nothing and `problem` says why.

    With the ranking "sqrt_length", that divided by the root of the length. `rank` counts from 1 among all candidates of the
    target. `missing` holds the starting materials that the stock lacks, None where no stock was given or there is no route.
    """

    text: str
    score: float
    n_steps: int | None
    route: Route | None = None
    problem: str | None = None
    missing: tuple[str, ...] | None = None
    rank: int = 0

    @property
    def purchasable(self) -> bool | None:
        """Whether all starting materials can be bought; None without a stock. It does not say that the route works."""
        return None if self.missing is None else not self.missing

    @cached_property
    def check(self) -> RouteCheck | None:
        """What is wrong with the route: atoms from nowhere, circles, molecules that cannot be read; None without one."""
        from .feasibility import check_route  # needs RDKit

        return None if self.route is None else check_route(self.route)

    @property
    def possible(self) -> bool | None:
        """Whether the route passes that check; None without a route."""
        return None if self.check is None else self.check.is_possible

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the route as `Route.to_dict` gives it. Needs RDKit."""
        return {
            "rank": self.rank,
            "score": self.score if math.isfinite(self.score) else None,  # JSON has no infinity
            "n_steps": self.n_steps,
            "purchasable": self.purchasable,
            "possible": self.possible,
            "impossible_because": None if self.check is None else self.check.reason,
            "missing": None if self.missing is None else list(self.missing),
            "route": self.route and self.route.to_dict(),
            "problem": self.problem,
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Candidate:
        """Read what `to_dict` gives, also where it says `solved` for `purchasable`, as it did before."""
        missing = data.get("missing")
        return cls(
            text=data["text"],
            score=float("-inf") if data["score"] is None else data["score"],
            n_steps=data.get("n_steps"),
            route=None if data.get("route") is None else Route.from_dict(data["route"]),
            problem=data.get("problem"),
            missing=None if missing is None else tuple(missing),
            rank=data.get("rank", 0),
        )


@dataclass(frozen=True)
class Plan:
    """The candidates for one target, best first, failed ones in their place; or why it could not be planned, `problem`."""

    target: str
    candidates: list[Candidate] = field(default_factory=list)
    problem: str | None = None

    @property
    def distinct(self) -> list[Candidate]:
        """The candidates that are routes, best first, without those that repeat a better one in another order."""
        found: dict[Route, Candidate] = {}
        for candidate in self.candidates:
            if candidate.route is not None:
                found.setdefault(candidate.route.canonical(), candidate)
        return list(found.values())

    @property
    def routes(self) -> list[Route]:
        """The distinct routes among the candidates, best first."""
        return [candidate.route for candidate in self.distinct if candidate.route is not None]

    @property
    def failed(self) -> list[Candidate]:
        """The candidates that are no routes, each with its `problem`."""
        return [candidate for candidate in self.candidates if candidate.route is None]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "target": self.target,
            "problem": self.problem,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """Read what `to_dict` gives."""
        return cls(data["target"], [Candidate.from_dict(item) for item in data["candidates"]], data.get("problem"))


def pooled(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each route once, whatever the order of its reactants, with its best candidate; texts that are no routes as they are.

    The best log-probability is kept, and not the sum over the texts that led to a route: it stays the log-probability of a
    text that the model wrote, comparable with a search of one text, and does not depend on which texts a beam had room for.
    """
    found: dict[Route, Candidate] = {}
    others = []
    for candidate in candidates:
        if candidate.route is None:
            others.append(candidate)
            continue
        key = candidate.route.canonical()
        if key not in found or candidate.score > found[key].score:
            found[key] = candidate
    return [*found.values(), *others]


# What becomes of routes that cannot be: see `ranked`.
IMPOSSIBLE = ("behind", "keep", "drop")


def ranked(
    candidates: Iterable[Candidate], stock: Stock | None = None, impossible: Literal["behind", "keep", "drop"] = "keep"
) -> list[Candidate]:
    """Best first, numbered, and held against a stock.

    Args:
        candidates: in any order.
        stock: what can be bought.
        impossible: routes that cannot be are ranked "behind" all others, "keep" the place of their score, or "drop" out.
    """
    best = sorted(candidates, key=lambda candidate: -candidate.score)
    if impossible != "keep":
        fine = [candidate for candidate in best if candidate.possible is not False]
        rest = [candidate for candidate in best if candidate.possible is False]
        best = fine + (rest if impossible == "behind" else [])
    return [
        replace(candidate, rank=rank, missing=_missing(candidate, stock)) for rank, candidate in enumerate(best, 1)
    ]


def _missing(candidate: Candidate, stock: Stock | None) -> tuple[str, ...] | None:
    if stock is None or candidate.route is None:
        return None
    return tuple(stock.missing(candidate.route))

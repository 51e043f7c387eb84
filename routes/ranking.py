"""Ranks the routes of a search: the only place where what is known of a route is filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from .chemistry.forms import parent_form
from .judging import Library, count_detours, judge_route, shipped_library
from .plans import Candidate, Plan
from .stock.stock import Stock
from .tree import Route

# The cost of a route with a starting material that is common but perhaps not sold: it stands behind one of sold
# materials that is at least 1 / e times as probable.
_COMMON_COST = 1.0


def complete(
    candidate: Candidate,
    stock: Stock | None = None,
    library: Library | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Candidate:
    """Return a candidate with its judged steps, if it has none, and the missing materials and offers of the stock.

    Args:
        candidate: the candidate.
        stock: the purchasable molecules.
        library, watch: as in [`~judging.judge_route`].
    """
    if candidate.route is not None and not candidate.steps:
        candidate = replace(candidate, steps=judge_route(candidate.route, library, watch))
    return candidate if stock is None else candidate.with_stock(stock)


def rank(
    target: str,
    candidates: Iterable[Candidate],
    stock: Stock | None = None,
    library: Library | None = None,
    *,
    evidence: str = "textbook",
    by_score: bool = False,
    per_step: bool = False,
    per_reaction: int | None = None,
) -> Plan:
    """Return the plan of a target: its candidates best first, judged, numbered, grouped by their last reaction, and
    compared with a stock.

    Routes with a step that fails come last.

    Args:
        target: SMILES of the target.
        candidates: in any order.
        stock: the purchasable molecules.
        library: the recorded transformations with which steps are judged. Defaults to the included ones.
        evidence: what routes need to solve a target, see [`Plan`]. "recorded" and "textbook" put routes whose steps
            all have this evidence first; among equals, those from molecules of the stock alone; among these, those
            whose steps are all recorded; among these, those with fewer detours, as in [`~judging.count_detours`].
            "any" compares the stock before the records. The score decides last, where a route whose starting
            materials are not all sold costs 1 more.
        by_score: let the score decide alone.
        per_step: let the score per step decide, because the whole score favours short texts.
        per_reaction: largest number of distinct routes with the same last reaction, the best of them (default: all).
    """
    library = shipped_library() if library is None else library

    def place(candidate: Candidate) -> tuple[Any, ...]:
        fails, cost = candidate.fails_because is not None, -candidate.score
        if by_score:
            return fails, cost
        if per_step and candidate.route is not None:
            cost /= max(1, candidate.route.num_reactions)
        if candidate.common:
            cost += _COMMON_COST
        is_supported = candidate.has("textbook" if evidence == "any" else evidence)
        shortcomings = not is_supported, not candidate.purchasable
        return (
            fails,
            *(shortcomings[::-1] if evidence == "any" else shortcomings),
            not candidate.is_recorded,
            count_detours(candidate.steps),
            cost,
        )

    best = sorted((complete(candidate, stock, library) for candidate in candidates), key=place)
    return Plan(target, list(_numbered(best, per_reaction)), evidence=evidence, library=library.version)


def _numbered(candidates: list[Candidate], per_reaction: int | None) -> Iterator[Candidate]:
    """Yield the candidates with rank and group, without the surplus routes of a group."""
    ranks: dict[Route, int | None] = {}
    groups: dict[tuple[str, ...], int] = {}
    members: Counter[int] = Counter()
    drawings: dict[Route, Route] = {}
    for candidate in candidates:
        if candidate.route is None:
            yield replace(candidate, rank=0, group=0)
            continue
        key = candidate.route.canonical()
        if drawings.setdefault(_of_parents(candidate.route).canonical(), key) != key:
            continue  # with an acid as its anion, or an amine as its salt
        group = groups.setdefault(candidate.route.reactants, len(groups) + 1)
        if key not in ranks:
            is_kept = per_reaction is None or members[group] < per_reaction
            ranks[key] = 1 + sum(members.values()) if is_kept else None
            members[group] += is_kept
        rank = ranks[key]
        if rank is not None:
            yield replace(candidate, rank=rank, group=group)


def _of_parents(route: Route) -> Route:
    """Return a route of the molecules' parent forms."""
    return Route(parent_form(route.smiles), tuple(map(_of_parents, route.children)))

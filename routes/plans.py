"""The result of a search for a target: ranked candidates, including texts that are not routes.

These are records: what they say of their routes was computed when the routes were ranked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..common.words import counted
from .stock.offers import PER_GRAM, Offer, price_in_words, price_sum
from .tree import Route

if TYPE_CHECKING:
    from .judging.judged_step import Evidence, JudgedStep
    from .stock.stock import Stock

# The beginning of the reason why a search found no route.
NOTHING_FOUND = "no route was found: "
TIME_IS_OVER = "the time limit was reached"
# The number of reasons that are given if searches have different ones.
_MOST_REASONS = 3
# The title of the routes that come last.
IDEAS = "Ideas: a step of each of these routes lacks the required evidence"


@dataclass(frozen=True)
class Candidate:
    """A route to a target, or a text that is not a route, with its `problem`. `score` is the log-probability of the
    text, or -inf (None in JSON) if a search found nothing; `problem` then has the reason.

    In a search to the stock, `score` is minus the cost of the route. With the ranking "sqrt_length", it is the
    log-probability divided by the root of the length. `rank` counts from 1 among the distinct routes to the target. A
    route that repeats a better one in another order shares its rank. One with other salts or charges is left out. A
    text that is not a route has 0 (None in JSON). Routes with the same last reaction, the same reactants of the
    target, have the same number `group`, counted from 1 by their best rank. `missing` has the starting materials that
    are not in the stock, None without a stock or a route. `offers` has the stock's data for the others: another form,
    a price, a vendor, how common it is. `steps` has the reactions with their judgements, in the order of
    `Route.steps`. [`~ranking.rank`] fills in what a search does not know: `steps`, `missing`, `offers`, `rank` and
    `group`.
    """

    text: str
    score: float
    n_steps: int | None
    route: Route | None = None
    problem: str | None = None
    missing: tuple[str, ...] | None = None
    rank: int = 0
    group: int = 0
    offers: tuple[Offer, ...] = ()
    steps: tuple[JudgedStep, ...] = field(default=(), repr=False)

    @property
    def purchasable(self) -> bool | None:
        """Whether all starting materials are in the stock; None without a stock. The route may still not work."""
        return None if self.missing is None else not self.missing

    @property
    def finite_score(self) -> float | None:
        """The score, or None if it is infinite or unknown, which JSON cannot express."""
        return self.score if math.isfinite(self.score) else None

    @property
    def common(self) -> tuple[str, ...]:
        """The starting materials of an included stock of which only is known that recorded reactions use them."""
        return tuple(offer.smiles for offer in self.offers if offer.kind == "common")

    @property
    def sold(self) -> bool | None:
        """Whether somebody sells all starting materials: they are in your own stock, a catalogue or ZINC20; None
        without a stock.
        """
        return None if self.missing is None else not self.missing and not self.common

    def with_stock(self, stock: Stock) -> Candidate:
        """Return the candidate with the missing materials and the offers of this stock."""
        if self.route is None:
            return self
        return replace(self, missing=tuple(stock.missing(self.route)), offers=tuple(stock.offers(self.route)))

    @property
    def price(self) -> float | None:
        """The sum of the known prices of starting materials; None if none is known, or if their units differ."""
        return price_sum(self.offers)

    @property
    def price_in_words(self) -> str | None:
        """The price as a text, with the number of priced materials; None without a price."""
        if self.price is None or self.route is None:
            return None
        offers = [offer for offer in self.offers if offer.price is not None]
        number, total = len(set(self.route.leaves())), price_in_words(self.price, offers[0].unit)
        amount = "one gram" if (offers[0].unit or "").endswith(PER_GRAM) else "one listed pack"
        return f"{total} for {len(offers)} of {number} starting materials, {amount} of each"

    @property
    def fails_because(self) -> str | None:
        """The reason why steps of the route fail (see [`~judging.JudgedStep`]); None if none fails."""
        reasons = (step.reason for step in self.steps if step.reason)
        return "; ".join(dict.fromkeys(reasons)) or None

    @property
    def num_recorded(self) -> int:
        """The number of reactions that are recorded."""
        return sum(step.evidence == "recorded" for step in self.steps)

    @property
    def is_recorded(self) -> bool | None:
        """Whether every reaction is recorded; None without a route."""
        return None if self.route is None else self.num_recorded == self.route.num_reactions

    @property
    def recorded_in_words(self) -> str:
        """The number of recorded reactions as a text, such as `2 of 3 steps recorded, 1 from textbooks`."""
        named = sum(step.evidence == "textbook" for step in self.steps)
        return f"{self.num_recorded} of {counted(len(self.steps), 'step')} recorded" + (
            f", {named} from textbooks" if named else ""
        )

    @property
    def evidence(self) -> Evidence | None:
        """The evidence for the weakest step: "recorded" if every step is recorded, else the weakest of "textbook",
        "two at once", "related" and "none", as in [`~judging.JudgedStep.evidence`]. None without a route or its
        judged steps.
        """
        if self.route is None or len(self.steps) != self.route.num_reactions:
            return None
        weakest: tuple[Evidence, ...] = ("none", "related", "two at once", "textbook")
        kinds = {step.evidence for step in self.steps}
        return next((kind for kind in weakest if kind in kinds), "recorded")

    def has(self, evidence: str) -> bool:
        """Return whether each step has the evidence: `"recorded"`, `"textbook"` (recorded, or in textbooks) or
        `"any"`.
        """
        return evidence == "any" or self.evidence == "recorded" or self.evidence == evidence

    def solves(self, evidence: str) -> bool:
        """Return whether the route starts from the stock alone and each step has the evidence, as in [`has`]."""
        return bool(self.purchasable) and self.fails_because is None and self.has(evidence)

    @property
    def reactions(self) -> list[dict[str, Any]] | None:
        """The judgement of each reaction, for JSON; None without a route.

        For each one, in the order of `Route.steps`: `step` (its number from 1), and the fields of
        [`~judging.JudgedStep.to_dict`].
        """
        if self.route is None:
            return None
        return [{"step": number, **step.to_dict()} for number, step in enumerate(self.steps, 1)]

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate for JSON, with the route as in `Route.to_dict`. This needs RDKit and rdchiral."""
        return {
            "rank": self.rank or None,
            "group": self.group or None,
            "score": self.finite_score,
            "n_steps": self.n_steps,
            "purchasable": self.purchasable,
            "sold": self.sold,
            "precedented": self.is_recorded,
            "evidence": self.evidence,
            "fails_because": self.fails_because,
            "missing": None if self.missing is None else list(self.missing),
            "offers": [asdict(offer) for offer in self.offers],
            "price": self.price,
            "price_covers": self.price_in_words,
            "reactions": self.reactions,
            "route": self.route and self.route.to_dict(),
            "problem": self.problem,
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Candidate:
        """Read the result of `to_dict`. Those of earlier versions have no steps: [`~ranking.complete`] judges them.

        Raises:
            ImportError: rdchiral is not installed.
            KeyError, TypeError, ValueError: `data` is something else.
        """
        missing, score = data.get("missing"), data["score"]
        route = None if data.get("route") is None else Route.from_dict(data["route"])
        return cls(
            text=data["text"],
            # a route that no search has found has no score
            score=float(score) if score is not None else -math.inf if route is None else math.nan,
            n_steps=data.get("n_steps"),
            route=route,
            problem=data.get("problem"),
            missing=None if missing is None else tuple(missing),
            rank=data.get("rank") or 0,
            group=data.get("group") or 0,
            offers=tuple(Offer(**offer) for offer in data.get("offers") or ()),
            steps=() if route is None else _steps_of(route, data.get("reactions") or []),
        )


def _steps_of(route: Route, rows: list[dict[str, Any]]) -> tuple[JudgedStep, ...]:
    """Return the steps of a route from `Candidate.reactions`, or none for a file of an earlier version.

    Raises:
        KeyError, TypeError, ValueError: the rows are not those of this route.
    """
    from .judging import JudgedStep  # needs rdchiral

    if not any("findings" in row for row in rows):
        return ()
    if len(rows) != route.num_reactions:
        raise ValueError(f"{len(rows)} reactions are given for a route of {route.num_reactions}")
    steps = zip(route.steps(), rows, strict=True)
    return tuple(
        JudgedStep.from_dict(row, step.smiles, tuple(child.smiles for child in step.children)) for step, row in steps
    )


@dataclass(frozen=True, repr=False)
class Plan:
    """The candidates for one target, best first, including failed ones, or the `problem` that prevents planning it.

    A loop over a plan visits its distinct routes.

    `id` is the name of the target in its file. `seconds` is the time of its searches, including its share of batches
    with other targets. Plans that differ only in `seconds` are equal. `remarks` are notes for the reader, such as that
    the time limit ended the search or that a salt was stripped. `evidence` is what each step of a route needs to solve
    the target: `"recorded"`, a recorded reaction with the same transformation, `"textbook"`, a recorded one or one of
    textbooks, or `"any"`. `library` is the version of the transformations with which its routes were judged, None if
    they were not.
    """

    target: str
    candidates: list[Candidate] = field(default_factory=list)
    problem: str | None = None
    id: str | None = None
    seconds: float | None = field(default=None, compare=False)
    remarks: tuple[str, ...] = ()
    evidence: str = "textbook"
    library: str | None = None

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.distinct)

    def __repr__(self) -> str:
        what = self.problem or f"{counted(len(self.distinct), 'route')}, solved={self.solved}"
        return f"Plan({self.target!r}: {what})"

    @cached_property
    def distinct(self) -> list[Candidate]:
        """The candidates that are routes, best first, without repetitions in another order."""
        distinct: dict[Route, Candidate] = {}
        for candidate in self.candidates:
            if candidate.route is not None:
                distinct.setdefault(candidate.route.canonical(), candidate)
        return list(distinct.values())

    @property
    def found(self) -> list[tuple[Candidate, Route]]:
        """The distinct routes among the candidates, best first, each with its candidate."""
        return [(candidate, candidate.route) for candidate in self.distinct if candidate.route is not None]

    @property
    def routes(self) -> list[Route]:
        """The distinct routes among the candidates, best first."""
        return [route for _, route in self.found]

    @property
    def failed(self) -> list[Candidate]:
        """The candidates that are not routes, each with its `problem`."""
        return [candidate for candidate in self.candidates if candidate.route is None]

    @property
    def state(self) -> str:
        """The outcome: "done"; "unfinished" if the target is not solved; "no route"; or "refused"."""
        if self.problem is not None:
            return "refused"
        if not self.routes:
            return "no route"
        return "unfinished" if self.solved is False else "done"

    @cached_property
    def solved(self) -> bool | None:
        """Whether a route starts from the stock alone, no step fails, and each has the required evidence; None if that
        is unknown, because there was no stock.
        """
        routes = self.distinct
        if {candidate.purchasable for candidate in routes} == {None}:
            return None
        return any(candidate.solves(self.evidence) for candidate in routes)

    @cached_property
    def ideas(self) -> list[Candidate]:
        """The distinct routes with a step that lacks the required evidence. They follow all others."""
        return [candidate for candidate in self.distinct if not candidate.has(self.evidence)]

    @property
    def nothing_because(self) -> str | None:
        """The reason why there is no route, as a sentence; None if there is one."""
        if self.problem is not None or self.routes:
            return self.problem
        reasons = Counter(candidate.problem for candidate in self.failed if candidate.problem)
        texts = [reason.removeprefix(NOTHING_FOUND) for reason, _ in reasons.most_common(_MOST_REASONS)]
        if not texts and self.remarks:
            return self.remarks[-1]
        return NOTHING_FOUND + ("; ".join(texts) or "the search returned no candidates")

    @property
    def summary(self) -> dict[str, Any]:
        """A row of a table: whether the target is solved, the numbers of distinct routes and of last reactions, the
        numbers of routes that are purchasable (None without a stock or without a route), recorded, of recorded steps
        and at least one from textbooks, and with a failing step, the score of the first route, and the seconds of the
        searches.
        """
        routes = self.distinct
        purchasable = [route.purchasable for route in routes]
        return {
            "id": self.id,
            "target": self.target,
            "solved": self.solved,
            "routes": len(routes),
            "groups": len({route.group for route in routes}),
            "purchasable": None if None in purchasable or not routes else sum(map(bool, purchasable)),
            "precedented": sum(route.is_recorded is True for route in routes),
            "textbook": sum(route.evidence == "textbook" for route in routes),
            "failing": sum(route.fails_because is not None for route in routes),
            "best_score": routes[0].finite_score if routes else None,
            "seconds": self.seconds,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {
            "id": self.id,
            "target": self.target,
            "solved": self.solved,
            "problem": self.problem,
            "seconds": self.seconds,
            "remarks": list(self.remarks),
            "evidence": self.evidence,
            "library": self.library,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """Read the result of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: `data` is something else.
        """
        return cls(
            data["target"],
            [Candidate.from_dict(item) for item in data["candidates"]],
            data.get("problem"),
            data.get("id"),
            data.get("seconds"),
            tuple(data.get("remarks") or ()),
            data.get("evidence", "any"),
            data.get("library"),
        )


def steps_in_words(evidence: str) -> str:
    """Return the steps that have an evidence, as in [`Candidate.has`], in words."""
    return {"textbook": "recorded or textbook steps", "recorded": "recorded steps"}.get(evidence, "any steps")


def nothing_found(why: str, n_steps: int | None = None) -> Candidate:
    """Return the candidate of a search that has found nothing."""
    return Candidate("", float("-inf"), n_steps, problem=NOTHING_FOUND + why)


def pooled(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return each route once, whatever the order of its reactants, with its best candidate, and all other texts.

    A route keeps its best log-probability, not the sum over the texts that led to it. This is still the
    log-probability of a text that the model wrote, comparable with a search of one text. It does not depend on which
    texts the beams still had.
    """
    best: dict[Route, Candidate] = {}
    others = []
    for candidate in candidates:
        if candidate.route is None:
            others.append(candidate)
            continue
        key = candidate.route.canonical()
        if key not in best or candidate.score > best[key].score:
            best[key] = candidate
    return [*best.values(), *others]

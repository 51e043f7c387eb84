"""Compares plans with recorded routes: every metric is a share of targets with its 95% interval, also by depth.

The intervals are Wilson's, which have a width even if all targets agree.

A candidate that is not a route takes a rank, because readers of the list see it. A candidate that repeats an earlier
one takes none.

    exact                   the recorded route, ignoring the order of children
    last_reaction           a route with the last reaction of the recorded one
    purchasable             a route to the target whose starting materials are all in stock; `any` among all candidates
    purchasable_precedented the same, and every step is recorded (`routes.judge`): otherwise, a route from
                            unrelated molecules of the stock counts as much as a good one
    purchasable_textbook    the same, and every step is recorded or a named reaction of textbooks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...common.statistics import Estimate, wilson_interval
from ..chemistry.molecules import canonical_route, canonical_smiles
from ..judging import Library
from ..plans import Candidate, Plan
from ..ranking import complete
from ..stock.stock import Stock
from ..tree import Route

KS = (1, 5, 10, 50)

# Estimates by metric and statistic: metrics["exact"]["top-5"].
Estimates = dict[str, dict[str, Estimate]]


@dataclass(frozen=True)
class Evaluation:
    """The metrics over all targets, and by the depth of the recorded route.

    `targets` has the rank that each metric found for each target, and `not_planned` the reason why a target has no
    candidates.
    """

    overall: Estimates
    by_depth: dict[int, Estimates]
    targets: list[dict[str, Any]] = field(default_factory=list)
    not_planned: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as a dictionary for JSON."""
        return {"num_targets": len(self.targets)} | asdict(self)


def evaluate(
    plans: Sequence[Plan],
    references: Sequence[Route],
    *,
    stock: Stock | None = None,
    starting_materials: Sequence[str | None] | None = None,
    ks: Iterable[int] = KS,
    library: Library | None = None,
) -> Evaluation:
    """Score plans against the recorded routes of their targets.

    Args:
        plans: one for each reference, in the same order. A target that could not be planned counts as not found.
        references: the recorded routes; molecules are canonicalised here.
        stock: the purchasable molecules, for `purchasable`; a strict stock counts like other programs.
        starting_materials: the materials given to the model, for `Evaluation.targets`.
        ks: ranks to report, up to the largest number of candidates of a target; the smallest is always reported.
        library: the recorded transformations with which steps are judged (default: the judgements of the plans, or
            the included ones).

    Raises:
        ValueError: the lists differ in length or are empty, a plan has another target than its reference, a k is not
            positive, or RDKit cannot read a reference.
    """
    ks = sorted(set(ks))
    materials = [None] * len(references) if starting_materials is None else list(starting_materials)
    if not references or not len(plans) == len(references) == len(materials):
        counts = f"{len(plans)} plans, {len(materials)} starting materials and {len(references)} references"
        raise ValueError(f"got {counts}: give as many of each, at least one")
    if not ks or ks[0] < 1:
        raise ValueError(f"every k must be at least 1, got {ks}")
    references = [canonical_route(reference) for reference in references]
    num_ranks = max(len(plan.candidates) for plan in plans)
    ks = [k for k in ks if k <= max(num_ranks, ks[0])]
    targets: list[dict[str, Any]] = []
    for plan, reference, material in zip(plans, references, materials, strict=True):
        if plan.target != reference.smiles and canonical_smiles(plan.target) != reference.smiles:
            raise ValueError(f"a plan for {plan.target} cannot be compared with a route to {reference.smiles}")
        condition = {} if material is None else {"starting_material": material}
        ranks = _ranks(plan, reference, stock, library)
        targets.append({"target": reference.smiles, "depth": reference.depth, **condition, "ranks": ranks})
    return Evaluation(
        overall=_metrics([target["ranks"] for target in targets], ks),
        by_depth={
            depth: _metrics([target["ranks"] for target in targets if target["depth"] == depth], ks)
            for depth in sorted({target["depth"] for target in targets})
        },
        targets=targets,
        not_planned={plan.target: plan.problem for plan in plans if plan.problem is not None},
    )


def _metrics(ranks: Sequence[dict[str, int | None]], ks: Sequence[int]) -> Estimates:
    """Return the metrics of some targets, given the rank of each metric for each of them."""
    metrics: Estimates = {}
    for name in ranks[0]:
        hits = [rank for target in ranks if (rank := target[name]) is not None]
        counts = {f"top-{k}": sum(rank <= k for rank in hits) for k in ks}
        if name.startswith("purchasable"):
            counts["any"] = len(hits)
        total = len(ranks)
        metrics[name] = {
            title: Estimate(count / total, *wilson_interval(count, total), total) for title, count in counts.items()
        }
    return metrics


def _ranks(plan: Plan, reference: Route, stock: Stock | None, library: Library | None) -> dict[str, int | None]:
    """Return the rank of each metric."""
    routes = [_readable(candidate) for candidate in plan.candidates]
    canonical_reference, last_step = reference.canonical(), reference.last_step().canonical()
    ranks = {
        "exact": first_rank(routes, lambda route: route == canonical_reference),
        "last_reaction": first_rank(routes, lambda route: route.last_step().canonical() == last_step),
    }
    if stock is not None:
        pairs = reversed(list(zip(plan.candidates, routes, strict=True)))
        candidates = {route.canonical(): candidate for candidate, route in pairs if route is not None}

        def has(evidence: str, route: Route) -> bool:
            candidate = candidates[route] if library is None else replace(candidates[route], steps=())
            return complete(candidate, library=library).has(evidence)

        def is_purchasable(route: Route) -> bool:
            return route.smiles == reference.smiles and not stock.missing(route)

        ranks["purchasable"] = first_rank(routes, is_purchasable)
        ranks["purchasable_precedented"] = first_rank(routes, lambda r: is_purchasable(r) and has("recorded", r))
        ranks["purchasable_textbook"] = first_rank(routes, lambda r: is_purchasable(r) and has("textbook", r))
    return ranks


def first_rank(ranked: Sequence[Route | None], is_right: Callable[[Route], bool]) -> int | None:
    """Return the rank of the first right prediction, counted from 1, or None.

    Args:
        ranked: the predictions, best first, None for a text that is not a route. A route that equals an earlier one,
            apart from the order of children, takes no rank.
        is_right: called with each distinct canonical prediction until it returns True.
    """
    # each text that is not a route keeps its place under a key of its own
    keys = (number if route is None else route.canonical() for number, route in enumerate(ranked))
    for rank, route in enumerate(dict.fromkeys(keys), 1):
        if isinstance(route, Route) and is_right(route):
            return rank
    return None


def _readable(candidate: Candidate) -> Route | None:
    """Return the route in canonical SMILES, or None if it cannot be read."""
    try:
        return None if candidate.route is None else canonical_route(candidate.route)
    except ValueError:
        return None

"""Compares plans with recorded routes: every metric with its 95 % interval, by depth and by shape.

Shares of targets have Wilson's intervals, which have a width even if all targets agree. Means have bootstrapped
intervals, except means of shares that are 0 or 1, which also have Wilson's.

A candidate that is not a route takes a rank, because readers of the list see it. A candidate that repeats an earlier
one takes none.

    exact                   the recorded route, ignoring the order of children
    last_reaction           a route with the last reaction of the recorded one
    purchasable             a route to the target whose starting materials are all in stock; `any` among all candidates
    purchasable_precedented the same, and every step has a recorded precedent (`routes.judge`): otherwise, a route from
                            unrelated molecules of the stock counts as much as a good one
    validity                shares of a target's candidates: well-formed routes, those that RDKit can read as a whole
                            (`readable`), that also make the target (`right_target`), and that also have no step that
                            fails (`unfailing`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...common.statistics import Estimate, bootstrap_means, of_shares, wilson_interval
from ..faults import why_it_fails
from ..molecules import canonical_route, canonical_smiles
from ..plans import Candidate, Plan
from ..precedents import judge_route
from ..stock import Stock
from ..tree import Route

KS = (1, 5, 10, 50)
SHAPES = ("linear", "convergent")

# Estimates by metric and statistic: metrics["exact"]["top-5"].
Metrics = dict[str, dict[str, Estimate]]


@dataclass(frozen=True)
class Evaluation:
    """The metrics over all targets, by the depth of the recorded route, and by its shape ("linear", "convergent").

    `targets` has the rank that each metric found for each target, and `not_planned` the reason why a target has no candidates.
    """

    overall: Metrics
    by_depth: dict[int, Metrics]
    by_shape: dict[str, Metrics]
    targets: list[dict[str, Any]] = field(default_factory=list)
    not_planned: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as a dictionary for JSON."""
        return {
            "num_targets": len(self.targets),
            "not_planned": self.not_planned,
            "overall": _to_dict(self.overall),
            "by_depth": {str(depth): _to_dict(metrics) for depth, metrics in self.by_depth.items()},
            "by_shape": {shape: _to_dict(metrics) for shape, metrics in self.by_shape.items()},
            "targets": self.targets,
        }


def evaluate(
    plans: Sequence[Plan],
    references: Sequence[Route],
    *,
    stock: Stock | None = None,
    starting_materials: Sequence[str | None] | None = None,
    ks: Iterable[int] = KS,
    resamples: int = 10_000,
    seed: int = 0,
) -> Evaluation:
    """Score plans against the recorded routes of their targets.

    Args:
        plans: one for each reference, in the same order. A target that could not be planned counts as not found.
        references: the recorded routes; molecules are canonicalised here.
        stock: the purchasable molecules, for `purchasable`; a strict stock counts like other programs.
        starting_materials: the materials given to the model, for `Evaluation.targets`.
        ks: ranks to report, up to the largest number of candidates of a target; the smallest is always reported.
        resamples, seed: the number of resamples and the seed of the bootstrap.

    Raises:
        ValueError: the lists differ in length or are empty, a plan has another target than its reference, a k is not
            positive, or RDKit cannot read a reference.
    """
    ks = sorted(set(ks))
    materials = [None] * len(references) if starting_materials is None else list(starting_materials)
    if not references or not len(plans) == len(references) == len(materials):
        raise ValueError(
            f"expected as many plans (and starting materials) as references and at least one, got {len(plans)}, "
            f"{len(materials)} and {len(references)}"
        )
    if not ks or ks[0] < 1:
        raise ValueError(f"every k must be at least 1, got {ks}")
    references = [canonical_route(reference) for reference in references]
    num_ranks = max(len(plan.candidates) for plan in plans)
    ks = [k for k in ks if k <= max(num_ranks, ks[0])]
    targets, rows = [], []
    for plan, reference, material in zip(plans, references, materials, strict=True):
        if plan.target != reference.smiles and canonical_smiles(plan.target) != reference.smiles:
            raise ValueError(f"a plan for {plan.target} cannot be compared with a route to {reference.smiles}")
        ranks, others = _score(plan, reference, stock)
        rows.append(_counted(ranks, ks) | others)
        shape = "convergent" if is_convergent(reference) else "linear"
        condition = {} if material is None else {"starting_material": material}
        targets.append(
            {"target": reference.smiles, "depth": reference.depth, "shape": shape, **condition, "ranks": ranks}
        )
    names = list(rows[0])
    table = np.array([[row[name] for name in names] for row in rows])

    def estimates(chosen: Sequence[int]) -> Metrics:
        metrics: Metrics = {}
        means = bootstrap_means(table[list(chosen)], n=resamples, seed=seed)
        for column, ((name, what), estimate) in enumerate(zip(names, means, strict=True)):
            is_share = what.startswith("top-") or what == "any"
            of_targets = share(table[list(chosen), column].tolist()) if is_share else of_shares(estimate)
            metrics.setdefault(name, {})[what] = of_targets
        return metrics

    def grouped(keys: list[Any], order: Iterable[Any]) -> dict[Any, Metrics]:
        groups = {key: [i for i, other in enumerate(keys) if other == key] for key in order}
        return {key: estimates(chosen) for key, chosen in groups.items() if chosen}

    depths, shapes = ([target[name] for target in targets] for name in ("depth", "shape"))
    return Evaluation(
        overall=estimates(range(len(rows))),
        by_depth=grouped(depths, sorted(set(depths))),
        by_shape=grouped(shapes, SHAPES),
        targets=targets,
        not_planned={plan.target: plan.problem for plan in plans if plan.problem is not None},
    )


def _counted(ranks: dict[str, int | None], ks: Sequence[int]) -> dict[tuple[str, str], float]:
    """Return the values of each rank that are averaged over targets."""
    values: dict[tuple[str, str], float] = {}
    for name, rank in ranks.items():
        for k in ks:
            values[name, f"top-{k}"] = float(rank is not None and rank <= k)
        if name.startswith("purchasable"):
            values[name, "any"] = float(rank is not None)
    return values


def _score(
    plan: Plan, reference: Route, stock: Stock | None
) -> tuple[dict[str, int | None], dict[tuple[str, str], float]]:
    """Return the rank of each metric, and the values of the metrics without a rank."""
    routes = [_readable(candidate) for candidate in plan.candidates]
    wanted, last_step = reference.canonical(), reference.last_step().canonical()
    ranks = {
        "exact": first_rank(routes, lambda route: route == wanted),
        "last_reaction": first_rank(routes, lambda route: route.last_step().canonical() == last_step),
    }
    if stock is not None:

        def is_purchasable(route: Route) -> bool:
            return route.smiles == reference.smiles and not stock.missing(route)

        ranks["purchasable"] = first_rank(routes, is_purchasable)
        ranks["purchasable_precedented"] = first_rank(
            routes,
            lambda route: (
                is_purchasable(route) and all(judgement.state == "precedented" for judgement in judge_route(route))
            ),
        )
    right = [route for route in routes if route is not None and route.smiles == reference.smiles]
    counts = {
        "well_formed": sum(map(_is_well_formed, plan.candidates)),
        "readable": len(routes) - routes.count(None),
        "right_target": len(right),
        "unfailing": sum(why_it_fails(route) is None for route in right),
    }
    return ranks, {
        ("validity", name): count / len(routes) if routes else float("nan") for name, count in counts.items()
    }


def is_convergent(route: Route) -> bool:
    """Return whether a reaction joins at least two reactants that are made themselves. Otherwise the route is linear.

    The definition is the one of DirectMultiStep (`directmultistep.utils.pre_process.is_convergent`) and of RetroCast's
    benchmarks.
    """
    made = [child for child in route.children if child.children]
    return len(made) > 1 or any(is_convergent(child) for child in made)


def first_rank(ranked: Sequence[Route | None], is_right: Callable[[Route], bool]) -> int | None:
    """Return the rank of the first right prediction, counted from 1, or None.

    Args:
        ranked: the predictions, best first, None for a text that is not a route. A route that equals an earlier one, apart from the
            order of children, takes no rank.
        is_right: called with each distinct canonical prediction until it returns True.
    """
    seen: set[Route] = set()
    rank = 0
    for prediction in ranked:
        route = None if prediction is None else prediction.canonical()
        if route in seen:
            continue
        rank += 1
        if route is not None:
            seen.add(route)
            if is_right(route):
                return rank
    return None


def share(found: Sequence[bool]) -> Estimate:
    """Return the share of true values, with its 95 % Wilson interval."""
    successes, n = sum(map(bool, found)), len(found)
    return Estimate(successes / n, *wilson_interval(successes, n), n)


def _readable(candidate: Candidate) -> Route | None:
    """Return the route in canonical SMILES, or None if it cannot be read."""
    try:
        return None if candidate.route is None else canonical_route(candidate.route)
    except ValueError:
        return None


def _is_well_formed(candidate: Candidate) -> bool:
    try:
        return candidate.route is not None or bool(Route.from_string(candidate.text))
    except ValueError:
        return False


def _to_dict(metrics: Metrics) -> dict[str, Any]:
    return {name: {what: estimate.to_dict() for what, estimate in found.items()} for name, found in metrics.items()}

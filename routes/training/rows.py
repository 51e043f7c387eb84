"""Rows of text made from routes, for training and evaluation."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from ..tree import Route
from .arguments import Preparation


def training_pairs(
    routes: Iterable[Route], *, starting_material: str = "none", permutations: int = 1, aligned: int = 0, seed: int = 0
) -> list[dict[str, Any]]:
    """Make rows for `datasets.Dataset.from_list`. For files of routes see `routes.training.preparation`.

    Args:
        routes: routes of at least one reaction.
        starting_material: `"random"` adds the column `starting_material` with a starting material that is drawn for
            each row. `"all"` makes one row for each starting material of the route. `"none"` leaves the column out.
        permutations: the largest number of orders per route: the route as it is, and distinct random orders of its
            children. A route with fewer distinct orders gives fewer rows.
        aligned: the largest number of aligned texts per route, each from a different atom of the target. In these
            texts, the part that does not react is written alike in product and reactants (see
            `routes.chemistry.alignment`; needs RDKit). 0 keeps the molecules as they are. The reactants of an aligned
            text have one order, so `permutations` must be 1.
        seed: the seed of all random choices.

    Returns:
        Rows with `source` (SMILES of the target), `target` (`Route.to_string`), `n_steps` (`Route.depth`) and, if
        requested, `starting_material`.

    Raises:
        ValueError: a number is not allowed, `starting_material` is unknown, or a route has no reaction.
    """
    settings = Preparation(permutations=permutations, starting_material=starting_material, aligned=aligned)
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for index, route in enumerate(routes):
        if not route.children:
            raise ValueError(f"route {index} is the single molecule {route.smiles}: a row needs at least one reaction")
        rows += route_rows(route, rng, settings)
    return rows


def route_rows(route: Route, rng: random.Random, settings: Preparation) -> list[dict[str, Any]]:
    """Make the rows of one route, as [`training_pairs`] does.

    Args:
        route: a route of at least one reaction.
        rng: draws the orders and the starting materials.
        settings: the rules for orders, aligned texts and starting materials.

    Returns:
        The rows.
    """
    if settings.aligned:
        from ..chemistry.alignment import aligned_routes  # needs RDKit, which other rows do not need

        orders = aligned_routes(route, settings.aligned, rng)
    else:
        orders = _orders(route, settings.permutations, rng)
    rows: list[dict[str, Any]] = []
    for order in orders:
        row: dict[str, Any] = {"source": order.smiles, "target": order.to_string(), "n_steps": route.depth}
        if settings.starting_material == "none":
            rows.append(row)
        else:
            leaves = route.leaves()
            materials = [rng.choice(leaves)] if settings.starting_material == "random" else dict.fromkeys(leaves)
            rows += [{**row, "starting_material": leaf} for leaf in materials]
    return rows


def _orders(route: Route, count: int, rng: random.Random) -> list[Route]:
    """Return the route as it is and up to `count - 1` further distinct orders."""
    variants = {route: None}
    # A small tree may have fewer than `count` orders, so the number of tries is limited.
    for _ in range(4 * (count - 1)):
        if len(variants) == count:
            break
        variants[route.shuffled(rng)] = None
    return list(variants)

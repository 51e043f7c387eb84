"""Routes as rows of text for training and evaluation."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from ..tree import Route

# Which starting material a row tells of: none, one of the route's drawn at random, or each in a row of its own.
STARTING_MATERIALS = ("none", "random", "all")


def training_pairs(
    routes: Iterable[Route],
    *,
    starting_material: str = "none",
    permutations: int = 1,
    aligned: int = 0,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list`; for files of routes see `routes.preparation`.

    Args:
        routes: routes of at least one reaction.
        starting_material: `"none"`; `"random"` for the column `starting_material`, a leaf of the route drawn for each row;
            `"all"` for a row with each of its leaves.
        permutations: most orders a route: the route as given and distinct random orders of its children. A route with
            fewer distinct orders gives fewer rows.
        aligned: most texts a route in which what does not react is written alike in product and reactant, each from
            another atom of the target (see `routes.data.alignment`; needs RDKit); 0 for molecules as they are given.
            Their reactants have one order: `permutations` must be 1.
        seed: seed of the draws.

    Returns:
        Dictionaries with `source` (SMILES of the target), `target` (`Route.to_string`), `n_steps` (`Route.depth`) and,
        when asked for, `starting_material`.

    Raises:
        ValueError: a number is not allowed, `starting_material` is unknown, or a route has no reaction.
    """
    check_choices(permutations, starting_material, aligned)
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for index, route in enumerate(routes):
        if not route.children:
            raise ValueError(f"route {index} is the single molecule {route.smiles}: nothing to learn from")
        rows += route_rows(route, rng, permutations=permutations, starting_material=starting_material, aligned=aligned)
    return rows


def route_rows(
    route: Route,
    rng: random.Random,
    *,
    permutations: int = 1,
    starting_material: str = "none",
    aligned: int = 0,
    leaves: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows of one route, as [`training_pairs`] gives them.

    Args:
        route: a route of at least one reaction.
        rng: source of the orders and of the leaves.
        permutations, starting_material, aligned: as in [`training_pairs`].
        leaves: the starting materials to tell of (default: all of the route's).
    """
    leaves = route.leaves() if leaves is None else leaves
    rows: list[dict[str, Any]] = []
    for order in _aligned(route, aligned, rng) if aligned else _orders(route, permutations, rng):
        row: dict[str, Any] = {"source": order.smiles, "target": order.to_string(), "n_steps": route.depth}
        if starting_material == "none":
            rows.append(row)
        else:
            told = [rng.choice(leaves)] if starting_material == "random" else dict.fromkeys(leaves)
            rows += [{**row, "starting_material": leaf} for leaf in told]
    return rows


def check_choices(permutations: int, starting_material: str, aligned: int = 0) -> None:
    """Raises ValueError for values that [`training_pairs`] does not take."""
    if aligned < 0:
        raise ValueError(f"aligned must be at least 1, or 0 for molecules as they are given, got {aligned}")
    if aligned and permutations > 1:
        raise ValueError(
            f"aligned={aligned} and permutations={permutations} exclude each other: the reactants of aligned texts have "
            "one order"
        )
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    if starting_material not in STARTING_MATERIALS:
        raise ValueError(
            f"starting_material must be one of {', '.join(STARTING_MATERIALS)}, got {starting_material!r}"
        )


def drop_shared_targets(train: Iterable[Route], test: Iterable[Route]) -> list[Route]:
    """The routes of `train` whose target is no target of `test`.

    Targets are compared as text: both sides must have been canonicalised by the same program.

    Args:
        train: routes to filter; their order is kept.
        test: routes whose targets must not be trained on.
    """
    held_out = {route.smiles for route in test}
    return [route for route in train if route.smiles not in held_out]


def _aligned(route: Route, count: int, rng: random.Random) -> Sequence[Route]:
    from .alignment import aligned_routes  # needs RDKit, which rows of routes as they are given do not

    return aligned_routes(route, count, rng)


def _orders(route: Route, count: int, rng: random.Random) -> Sequence[Route]:
    """The route as given and up to `count - 1` further distinct orders."""
    found = {route: None}
    # Small trees have fewer orders than asked for, so the number of tries is bounded.
    for _ in range(4 * (count - 1)):
        if len(found) == count:
            break
        found[route.shuffled(rng)] = None
    return list(found)

"""Routes as rows of text for training and evaluation."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from .tree import Route


def training_pairs(
    routes: Iterable[Route],
    *,
    starting_material: str = "none",
    permutations: int = 1,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list`.

    Args:
        routes: routes of at least one reaction.
        starting_material: `"none"`, or `"random"` for the column `starting_material`, a leaf of the route drawn for each row.
        permutations: most rows a route: the route as given and distinct random orders of its children. A route with
            fewer distinct orders gives fewer rows.
        seed: seed of the draws.

    Returns:
        Dictionaries with `source` (SMILES of the target), `target` (`Route.to_string`), `n_steps` (`Route.depth`) and,
        when asked for, `starting_material`.

    Raises:
        ValueError: `permutations` is not positive, `starting_material` is unknown, or a route has no reaction.
    """
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    if starting_material not in ("none", "random"):
        raise ValueError(f"starting_material must be 'none' or 'random', got {starting_material!r}")
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for index, route in enumerate(routes):
        if not route.children:
            raise ValueError(f"route {index} is the single molecule {route.smiles}: nothing to learn from")
        for order in _orders(route, permutations, rng):
            row: dict[str, Any] = {"source": route.smiles, "target": order.to_string(), "n_steps": route.depth}
            if starting_material == "random":
                row["starting_material"] = rng.choice(route.leaves())
            rows.append(row)
    return rows


def drop_shared_targets(train: Iterable[Route], test: Iterable[Route]) -> list[Route]:
    """The routes of `train` whose target is no target of `test`.

    Targets are compared as text: both sides must have been canonicalised by the same program.

    Args:
        train: routes to filter; their order is kept.
        test: routes whose targets must not be trained on.
    """
    held_out = {route.smiles for route in test}
    return [route for route in train if route.smiles not in held_out]


def _orders(route: Route, count: int, rng: random.Random) -> Sequence[Route]:
    """The route as given and up to `count - 1` further distinct orders."""
    found = {route: None}
    # Small trees have fewer orders than asked for, so the number of tries is bounded.
    for _ in range(4 * (count - 1)):
        if len(found) == count:
            break
        found[route.shuffled(rng)] = None
    return list(found)

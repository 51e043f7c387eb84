"""The recorded routes that come with the package: data for a first training and for tests, without any download.

`README.md` of this folder explains their source and sampling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from ..chemistry.molecules import canonical_smiles
from ..family import source_key
from ..files import read_routes
from ..tree import Route

SAMPLE = Path(__file__).parent / "sample.jsonl.gz"


def sample_routes(count: int | None = None) -> list[Route]:
    """Return recorded routes of PaRoutes (Genheden and Bjerrum 2022, https://doi.org/10.1039/D2DD00015F).

    They are 4,000 distinct routes of one or two reactions in a row, in a random order. A target has at most 36
    characters. No molecule that a route makes is a target of PaRoutes' set n1.

    Args:
        count: the number of routes, from the first. Defaults to all.

    Returns:
        The routes.

    Raises:
        ValueError: there are too few routes.
    """
    routes = list(read_routes(SAMPLE))
    if count is not None and not 1 <= count <= len(routes):
        raise ValueError(f"The sample has {len(routes)} routes: give a number from 1 to {len(routes)}, not {count}.")
    return routes[:count]


def train_test_split(
    routes: Sequence[Route], test_size: int | float, trained: Collection[int] = ()
) -> tuple[list[Route], list[Route]]:
    """Split routes so that no test target is a target or an intermediate of a training route.

    The test routes are of those whose target, as canonical SMILES, occurs in no other route. The hashes of their
    targets decide which they are, as for pairs of texts, so that they are the same in each training. Their own
    intermediates and building blocks may occur in training, because a planner is expected to know smaller molecules.

    Args:
        routes: the routes to split.
        test_size: the number of test routes, or their share of all routes if below 1.
        trained: the numbers of targets that are not tested ([`source_key`]), because a model was trained on them.

    Returns:
        The training and the test routes, both in the given order.

    Raises:
        ValueError: `test_size` is not positive, or too few targets occur in only one route.
    """
    count = round(test_size * len(routes)) if test_size < 1 else int(test_size)
    occurrences = Counter(smiles for route in routes for smiles in set(map(canonical_smiles, route.molecules())))
    keys = [source_key(canonical_smiles(route.smiles)) for route in routes]
    eligible = [
        i for i, route in enumerate(routes)
        if occurrences[canonical_smiles(route.smiles)] == 1 and keys[i] not in trained
    ]  # fmt: skip
    if not 1 <= count <= min(len(eligible), len(routes) - 1):
        which = f"{len(eligible)} have a target that occurs in no other route and that no training has seen"
        raise ValueError(f"test_size={test_size} requests {count} of {len(routes)} routes: {which}")
    places = set(sorted(eligible, key=keys.__getitem__)[:count])
    train = [route for i, route in enumerate(routes) if i not in places]
    return train, [route for i, route in enumerate(routes) if i in places]

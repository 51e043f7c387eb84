"""Synthetic multi-step routes, grown forward from building blocks: data for training and tests without any download.

By the priority rule of `templates`, a target has exactly one route, so a model can in principle get all of them right.
Without the rule, a target may have more routes. A search with the same templates and building blocks, in any order and
up to four steps, was run on 4,000 targets (of 20,000 routes of seed 0, RDKit 2026.9.1): 7.7 % have another route, and
1.1 % have another route with the same number of steps. Growing takes about 2 ms per route.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rdkit import Chem

from ...common.progress import Progress
from ..tree import Route
from .disconnections import Disconnector, Step
from .reactions import Template
from .templates import TEMPLATES

# The shares of routes of one step, two steps and so on. Most are short, so that a small model can learn them.
_DEPTH_SHARES = (0.55, 0.37, 0.08)
# Half of the products are used in further steps. The others are only targets. So a test set of molecules that are not
# an intermediate of another route (`train_test_split`) is similar to the training set.
_EXTENSION_SHARE = 0.5
# How often the partner of a grown reactant is a grown molecule too, so that the route branches.
_CONVERGENT_SHARE = 0.15
_TRIES_PER_ROUTE = 40


@dataclass(frozen=True)
class _Grown:
    route: Route
    molecule: Chem.Mol
    counts: dict[str, int]


class _Pool:
    """Molecules that are made in a given number of steps, listed by the template and role that they fit."""

    def __init__(self) -> None:
        self._members: dict[tuple[int, int], list[_Grown]] = {}

    def add(self, grown: _Grown, purchased: bool) -> None:
        for t, template in enumerate(TEMPLATES):
            for role in range(len(template.roles)):
                if (purchased or role not in template.purchased) and template.accepts(role, grown.counts):
                    self._members.setdefault((t, role), []).append(grown)

    def get(self, template: int, role: int) -> list[_Grown]:
        return self._members.get((template, role), [])


class _Grower:
    """Grows routes level by level: the routes of depth d extend those of depth d - 1."""

    def __init__(self, seed: int, max_depth: int, max_smiles_length: int) -> None:
        self._rng = random.Random(seed)
        self._max_smiles_length = max_smiles_length
        self._retro = Disconnector()
        self._tried: set[tuple[int, tuple[str, ...]]] = set()
        self._targets: set[str] = set()
        # One pool for each number of steps. The first contains the building blocks.
        self._pools = [_Pool() for _ in range(max_depth)]
        for smiles in self._retro.building_blocks:
            self._pools[0].add(_Grown(Route(smiles), *self._retro.molecule(smiles)), purchased=True)

    def grow(self, depth: int, count: int, bar: Progress) -> list[Route]:
        """Grow up to `count` new routes of `depth` steps from routes with one step less.

        There are fewer if new ones are hard to find.
        """
        slots, weights = self._slots(depth)
        routes: list[Route] = []
        tries_left = _TRIES_PER_ROUTE * count if slots else 0
        while len(routes) < count and tries_left > 0:
            tries_left -= 1
            grown = self._try(depth, *self._rng.choices(slots, weights)[0])
            if grown is None:
                continue
            routes.append(grown.route)
            bar.update()
            if self._rng.random() < _EXTENSION_SHARE and depth < len(self._pools):
                self._pools[depth].add(grown, purchased=False)
        return routes

    def _slots(self, depth: int) -> tuple[list[tuple[int, int]], list[float]]:
        """Return the roles of templates that a molecule of `depth - 1` steps can take, and their weights."""
        slots, weights = [], []
        for t, template in enumerate(TEMPLATES):
            roles = [role for role in range(len(template.roles)) if self._pools[depth - 1].get(t, role)]
            # At depth 1, all roles are filled with building blocks. One slot per template keeps the weights right.
            for role in roles[:1] if depth == 1 else roles:
                slots.append((t, role))
                weights.append(template.weight)
        return slots, weights

    def _try(self, depth: int, t: int, role: int) -> _Grown | None:
        """Try a random reaction of template `t`, with a molecule of `depth - 1` steps in `role`.

        Return None if it has no suitable product.
        """
        template = TEMPLATES[t]
        reactants: list[_Grown] = []
        for other in range(len(template.roles)):
            candidates = self._pools[depth - 1].get(t, role) if other == role else self._partners(depth, t, other)
            if not candidates:
                return None
            reactants.append(self._rng.choice(candidates))
        names = tuple(reactant.route.smiles for reactant in reactants)
        if (t, names) in self._tried:
            return None
        self._tried.add((t, names))
        return self._product(template, names, reactants)

    def _partners(self, depth: int, t: int, role: int) -> list[_Grown]:
        grown = self._pools[1:depth]
        if grown and self._rng.random() < _CONVERGENT_SHARE:
            found = self._rng.choice(grown).get(t, role)
            if found:
                return found
        return self._pools[0].get(t, role)

    def _product(self, template: Template, names: tuple[str, ...], reactants: list[_Grown]) -> _Grown | None:
        smiles = template.run(tuple(reactant.molecule for reactant in reactants))
        if smiles is None or len(smiles) > self._max_smiles_length:
            return None
        if smiles in self._retro.building_blocks or smiles in self._targets:
            return None
        # The rule must undo exactly this step first. Then the target alone determines the whole route.
        if self._retro.last_steps(smiles) != (Step(template, names),):
            return None
        self._targets.add(smiles)
        route = Route(smiles, tuple(reactant.route for reactant in reactants))
        return _Grown(route, *self._retro.molecule(smiles))


def generate_routes(
    n: int, *, seed: int = 0, max_depth: int = 3, max_smiles_length: int = 48, progress: bool = True
) -> list[Route]:
    """
    Grow routes from the embedded building blocks with the embedded reaction templates.

    Every target occurs once and is not a building block. Every starting material is a building block. Each route is
    the one that the priority rule of `templates` finds for its target (`Disconnector.route`). Children are in the
    order of the template's reactants.

    Args:
        n (`int`):
            The number of routes.
        seed (`int`, *optional*, defaults to 0):
            The seed. With the same other arguments and the same RDKit version, it gives the same list on every
            machine.
        max_depth (`int`, *optional*, defaults to 3):
            The largest number of reactions on a path, at least 1. About 55 % of the routes have one step, 37 % have
            two, and the rest have more.
        max_smiles_length (`int`, *optional*, defaults to 48):
            The longest SMILES of a target, in characters.
        progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `list[Route]`: the routes in random order.

    Raises:
        ValueError: an argument is out of range, or there are not enough routes within these limits.
    """
    if n < 1 or max_depth < 1:
        raise ValueError(f"n and max_depth must be at least 1, got n={n}, max_depth={max_depth}")
    shares = [_DEPTH_SHARES[min(level, len(_DEPTH_SHARES) - 1)] for level in range(max_depth)]
    grower = _Grower(seed, max_depth, max_smiles_length)
    routes: list[Route] = []
    with Progress("growing routes", n, "routes", is_shown=progress) as bar:
        for level, share in enumerate(shares):
            # If one depth gives too few routes, the next depths give more.
            wanted = round((n - len(routes)) * share / sum(shares[level:]))
            routes += grower.grow(level + 1, wanted, bar)
        for depth in range(1, max_depth + 1):
            routes += grower.grow(depth, n - len(routes), bar)
    if len(routes) < n:
        raise ValueError(
            f"found only {len(routes)} of {n} routes with max_depth={max_depth} and "
            f"max_smiles_length={max_smiles_length}: ask for fewer or allow longer ones"
        )
    random.Random(seed).shuffle(routes)
    return routes


def train_test_split(
    routes: Sequence[Route], test_size: int | float, seed: int = 0
) -> tuple[list[Route], list[Route]]:
    """
    Split routes so that no test target is a target or an intermediate of a training route.

    The test routes are drawn from the routes whose target, as canonical SMILES, occurs in no other route. Their own
    intermediates and building blocks may occur in training, because a planner is expected to know smaller molecules.

    Args:
        routes (`Sequence[Route]`):
            The routes to split.
        test_size (`int` or `float`):
            The number of test routes, or their share of all routes if below 1.
        seed (`int`, *optional*, defaults to 0):
            The seed of the draw.

    Returns:
        `tuple[list[Route], list[Route]]`: the training and the test routes, both in the given order.

    Raises:
        ValueError: `test_size` is not positive, or too few targets occur in only one route.
    """
    count = round(test_size * len(routes)) if test_size < 1 else int(test_size)
    occurrences: dict[str, int] = {}
    for route in routes:
        for smiles in dict.fromkeys(map(_canonical, route.molecules())):
            occurrences[smiles] = occurrences.get(smiles, 0) + 1
    eligible = [i for i, route in enumerate(routes) if occurrences[_canonical(route.smiles)] == 1]
    if not 1 <= count <= min(len(eligible), len(routes) - 1):
        raise ValueError(
            f"test_size={test_size} asks for {count} of {len(routes)} routes; "
            f"{len(eligible)} have a target that occurs in no other route"
        )
    chosen = set(random.Random(seed).sample(eligible, count))
    train = [route for i, route in enumerate(routes) if i not in chosen]
    test = [route for i, route in enumerate(routes) if i in chosen]
    return train, test


def _canonical(smiles: str) -> str:
    return Chem.CanonSmiles(smiles)

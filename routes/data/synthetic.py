"""Synthetic multi-step routes, grown forward from building blocks: data to train and test on without any download.

By the priority rule of `templates` a target has exactly one route, so that a model can in principle get all of them
right. Who does not know the rule finds more: with the same templates and building blocks, in whatever order, up to four
steps, 7.7 % of 4,000 targets (of 20,000 routes of seed 0) have another route, 1.1 % one of the same number of steps (RDKit
2026.9.1). Growing them takes about 2 ms a route.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rdkit import Chem
from tqdm.auto import tqdm

from ..tree import Route
from .disconnections import Disconnector, Step
from .reactions import Template
from .templates import TEMPLATES

# Share of routes of one step, two steps and so on: mostly short, as a small model has to learn them.
_DEPTH_SHARES = (0.55, 0.37, 0.08)
# Every other product goes on to further steps. The rest stay targets only, so that a test set of molecules that are no
# intermediate of another route (`train_test_split`) is like the training set.
_EXTENSION_SHARE = 0.5
# How often the partner of a grown reactant is grown as well, which makes the route branch.
_CONVERGENT_SHARE = 0.15
_TRIES_PER_ROUTE = 40


@dataclass(frozen=True)
class _Grown:
    route: Route
    molecule: Chem.Mol
    counts: dict[str, int]


class _Pool:
    """Molecules made in a given number of steps, listed by the template and role they are fit for."""

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
        # By the number of steps; the first holds the building blocks.
        self._pools = [_Pool() for _ in range(max_depth)]
        for smiles in self._retro.building_blocks:
            self._pools[0].add(_Grown(Route(smiles), *self._retro.molecule(smiles)), purchased=True)

    def grow(self, depth: int, count: int, bar: tqdm) -> list[Route]:
        """Up to `count` new routes of `depth` steps from those of one step less; fewer when new ones are hard to find."""
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
        """Which role of which template a molecule of `depth - 1` steps can take, and how often to choose it."""
        slots, weights = [], []
        for t, template in enumerate(TEMPLATES):
            roles = [role for role in range(len(template.roles)) if self._pools[depth - 1].get(t, role)]
            # From building blocks all slots of a template mean the same; counting one keeps the weights right.
            for role in roles[:1] if depth == 1 else roles:
                slots.append((t, role))
                weights.append(template.weight)
        return slots, weights

    def _try(self, depth: int, t: int, role: int) -> _Grown | None:
        """A random reaction of template `t`, with a molecule of `depth - 1` steps in `role`; `None` if it is no good."""
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
        # The rule must undo this very step first; then the target alone decides the whole route.
        if self._retro.last_steps(smiles) != (Step(template, names),):
            return None
        self._targets.add(smiles)
        route = Route(smiles, tuple(reactant.route for reactant in reactants))
        return _Grown(route, *self._retro.molecule(smiles))


def generate_routes(
    n: int, *, seed: int = 0, max_depth: int = 3, max_smiles_length: int = 48, progress: bool = True
) -> list[Route]:
    """Grow routes from the embedded building blocks with the embedded reaction templates.

    Every target occurs once and is no building block; every leaf is one. Each route is the one that the priority rule of
    `templates` finds for its target (`Disconnector.route`). Children stand in the order of the template's reactants.

    Args:
        n: number of routes.
        seed: the same seed, other arguments and RDKit version give the same list on every machine.
        max_depth: the most reactions on a path, at least 1; about 55 % of the routes have one step, 37 % two, the rest more.
        max_smiles_length: longest SMILES of a target, in characters.
        progress: show a progress bar.

    Returns:
        The routes in random order.

    Raises:
        ValueError: an argument is out of range, or there are not as many routes within these limits.
    """
    if n < 1 or max_depth < 1:
        raise ValueError(f"n and max_depth must be at least 1, got n={n}, max_depth={max_depth}")
    shares = [_DEPTH_SHARES[min(level, len(_DEPTH_SHARES) - 1)] for level in range(max_depth)]
    grower = _Grower(seed, max_depth, max_smiles_length)
    routes: list[Route] = []
    with tqdm(total=n, desc="growing routes", unit="route", disable=not progress) as bar:
        for level, share in enumerate(shares):
            # What one depth could not give, the next ones make up for.
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
    """Split by target: no test target is a target or an intermediate of any training route.

    Test routes are drawn from the routes whose target, as canonical SMILES, occurs in no other route. Their own
    intermediates and building blocks may occur in training: a planner is expected to know smaller molecules.

    Args:
        routes: routes to split.
        test_size: number of test routes, or their share of all routes if below 1.
        seed: seed of the draw.

    Returns:
        Training and test routes, both in the given order.

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

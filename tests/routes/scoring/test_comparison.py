import itertools
import random

import pytest

from weftformer.routes.scoring.comparison import edit_distance, is_convergent
from weftformer.routes.tree import Route


def random_route(rng: random.Random, molecules: int, labels: str = "CNO") -> Route:
    """A tree of that many molecules; few labels, so that equal siblings are common."""
    parents = [None, *(rng.randrange(i) for i in range(1, molecules))]
    names = [rng.choice(labels) for _ in parents]

    def grow(i: int) -> Route:
        return Route(names[i], tuple(grow(j) for j in range(molecules) if parents[j] == i))

    return grow(0)


# Zhang's definition of the distance, in place of his recurrences: the cheapest of all mappings that keep ancestors and
# the place of the lowest common ancestor of each two.


def _flat(route: Route) -> tuple[list[str], list[tuple[int, ...]]]:
    """Labels, and for each molecule its path from the target: its ancestors are the beginnings of the path."""
    labels, paths = [], []

    def walk(node, path):
        labels.append(node.smiles)
        paths.append(path)
        for i, child in enumerate(node.children):
            walk(child, (*path, i))

    walk(route, ())
    return labels, paths


def _is_above(a, b) -> bool:
    return len(a) < len(b) and b[: len(a)] == a


def _common(a, b):
    return tuple(x for x, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def naive_distance(a: Route, b: Route) -> int:
    (labels, paths), (other_labels, other_paths) = _flat(a), _flat(b)
    best = len(paths) + len(other_paths)

    def fits(pairs) -> bool:
        triples = itertools.product(pairs, repeat=3)
        return all(
            _is_above(_common(paths[i], paths[k]), paths[m])
            == _is_above(_common(other_paths[j], other_paths[n]), other_paths[o])
            for (i, j), (k, n), (m, o) in triples
        )

    def extend(i, pairs):
        nonlocal best
        if i == len(paths):
            changed = sum(labels[s] != other_labels[t] for s, t in pairs)
            best = min(best, changed + len(paths) + len(other_paths) - 2 * len(pairs))
            return
        extend(i + 1, pairs)
        for j in set(range(len(other_paths))) - {t for _, t in pairs}:
            if fits([*pairs, (i, j)]):
                extend(i + 1, [*pairs, (i, j)])

    extend(0, [])
    return best


@pytest.mark.parametrize("seed", range(25))
def test_edit_distance_is_that_of_the_definition(seed):
    rng = random.Random(seed)
    a, b = (random_route(rng, rng.randint(1, 5)) for _ in range(2))
    assert edit_distance(a, b) == edit_distance(b, a.shuffled(rng)) == naive_distance(a, b)


@pytest.mark.parametrize("seed", range(8))
def test_convergent_as_directmultistep_has_it(seed):
    theirs = pytest.importorskip("directmultistep.utils.pre_process").is_convergent
    route = random_route(random.Random(seed), 9)
    assert is_convergent(route) == theirs(route.to_dict())

"""How one route stands to another: is it its beginning, how many edits lie between them, is it linear or convergent.

Nothing here looks at the order of the children. Molecules are compared as text: canonicalise both routes with the same
program first (`weftformer.routes.molecules.canonical_route`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..tree import Route


def is_prefix(prefix: Route, route: Route) -> bool:
    """Whether every reaction of `prefix` is in `route` at the same place; where `prefix` has a leaf, `route` may go on.

    The reactants of a reaction are a multiset: two equal ones in `prefix` need two of their own in `route`. Every route is
    a prefix of itself, and a single molecule is a prefix of every route that makes it.

    Args:
        prefix: the route that may end earlier.
        route: the route that may go further back.
    """
    if prefix.smiles != route.smiles:
        return False
    if not prefix.children:
        return True
    if len(prefix.children) != len(route.children):
        return False
    rows = [[is_prefix(ours, theirs) for theirs in route.children] for ours in prefix.children]
    return _assignment_cost([[int(not fits) for fits in row] for row in rows]) == 0


def truncated(route: Route, depth: int) -> Route:
    """The route without the reactions that lie more than `depth` reactions before the target.

    Args:
        route: the route.
        depth: reactions on a path that are kept; 0 leaves the target alone, 1 the last reaction.

    Raises:
        ValueError: `depth` is negative.
    """
    if depth < 0:
        raise ValueError(f"depth must be at least 0, got {depth}")
    return Route(route.smiles, tuple(truncated(child, depth - 1) for child in route.children) if depth else ())


def is_convergent(route: Route) -> bool:
    """Whether some reaction joins two or more reactants that are made themselves; otherwise the route is linear.

    The definition of DirectMultiStep (`directmultistep.utils.pre_process.is_convergent`) and of RetroCast's benchmarks.
    """
    made = [child for child in route.children if child.children]
    return len(made) > 1 or any(is_convergent(child) for child in made)


def edit_distance(a: Route, b: Route) -> int:
    """Fewest edits that turn one route into the other: insert, delete or replace a molecule, each at a cost of 1.

    The constrained edit distance between unordered labelled trees of K. Zhang, Algorithmica 15 (1996) 205-222, doi
    10.1007/BF01975866. Separate subtrees go to separate subtrees, which makes it a metric that is computed exactly in
    polynomial time; without that constraint the problem is NP-hard. It is 0 for routes that are equal but for the order
    of their children, and never more than the molecules of both.

    Args:
        a, b: the routes; the order of the two does not matter.
    """
    ours, theirs = _Nodes(a), _Nodes(b)
    trees = [[0] * len(theirs.size) for _ in ours.size]
    forests = [[0] * len(theirs.size) for _ in ours.size]
    # Children come before their parents, so that what a cell reads is there. Zhang's recurrences: (forests) all below i
    # goes into one child of j, or one child of i takes all below j, or children are paired; (trees) the same with the roots.
    for i, (label, below) in enumerate(zip(ours.labels, ours.children, strict=True)):
        for j, (other, others) in enumerate(zip(theirs.labels, theirs.children, strict=True)):
            inserted, deleted = theirs.size[j], ours.size[i]
            forests[i][j] = min(
                [inserted - 1 + forests[i][t] - (theirs.size[t] - 1) for t in others]
                + [deleted - 1 + forests[s][j] - (ours.size[s] - 1) for s in below]
                + [_pair(below, others, trees, ours.size, theirs.size)]
            )
            trees[i][j] = min(
                [inserted + trees[i][t] - theirs.size[t] for t in others]
                + [deleted + trees[s][j] - ours.size[s] for s in below]
                + [forests[i][j] + (label != other)]
            )
    return trees[-1][-1]


class _Nodes:
    """Molecules of a route, each after its children, so that the target is the last: labels, children, size of subtree."""

    def __init__(self, route: Route):
        self.labels: list[str] = []
        self.children: list[list[int]] = []
        self.size: list[int] = []
        self._add(route)

    def _add(self, route: Route) -> int:
        children = [self._add(child) for child in route.children]
        self.labels.append(route.smiles)
        self.children.append(children)
        self.size.append(1 + sum(self.size[child] for child in children))
        return len(self.size) - 1


def _pair(
    ours: list[int], theirs: list[int], trees: list[list[int]], our_size: list[int], their_size: list[int]
) -> int:
    """Least cost of turning the subtrees of one side into those of the other, one into one; the rest is deleted, inserted."""
    all_edits = sum(our_size[s] for s in ours) + sum(their_size[t] for t in theirs)
    if not ours or not theirs:
        return all_edits
    # What pairing two saves is never negative, so that the shorter side is paired as a whole.
    saved = [[trees[s][t] - our_size[s] - their_size[t] for t in theirs] for s in ours]
    return all_edits + _assignment_cost(saved)


def _assignment_cost(costs: Sequence[Sequence[int]]) -> int:
    """Least sum of costs that gives every row of the shorter side a partner of its own on the other."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("Comparing routes needs SciPy: pip install weftformer[chem].") from error
    table = np.array(costs)
    return int(table[linear_sum_assignment(table)].sum())

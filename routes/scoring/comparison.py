"""Comparison of routes: the edit distance, and whether a route is linear or convergent.

All functions ignore the order of the children. Molecules are compared as text, so canonicalise both routes with the
same program first (`weftformer.routes.molecules.canonical_route`).
"""

from __future__ import annotations

import numpy as np

from ..tree import Route


def is_convergent(route: Route) -> bool:
    """Return whether a reaction joins at least two reactants that are made themselves. Otherwise the route is linear.

    The definition is the one of DirectMultiStep (`directmultistep.utils.pre_process.is_convergent`) and of RetroCast's
    benchmarks.
    """
    made = [child for child in route.children if child.children]
    return len(made) > 1 or any(is_convergent(child) for child in made)


def edit_distance(a: Route, b: Route) -> int:
    """
    Return the smallest number of edits (insert, delete or replace a molecule) that turn one route into the other.

    This is the constrained edit distance between unordered labelled trees of K. Zhang, Algorithmica 15 (1996) 205-222,
    doi 10.1007/BF01975866. Separate subtrees are mapped to separate subtrees, so the distance is a metric and can be
    computed exactly in polynomial time. Without that constraint, the problem is NP-hard. The distance is 0 for routes
    that differ only in the order of their children. It is at most the number of molecules in both routes.

    Args:
        a ([`Route`]):
            One route.
        b ([`Route`]):
            The other route. The distance is symmetric.

    Returns:
        `int`: the distance.

    Raises:
        ImportError: SciPy is not installed.
    """
    ours, theirs = _Nodes(a), _Nodes(b)
    trees = [[0] * len(theirs.size) for _ in ours.size]
    forests = [[0] * len(theirs.size) for _ in ours.size]
    # Children come before their parents, so a cell depends only on earlier cells. Zhang's recurrences for forests:
    # everything below i is mapped into one child of j, or one child of i takes everything below j, or the children are
    # paired. The recurrences for trees are the same with the roots.
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
    """The molecules of a route, each after its children, so that the target is last.

    Each has a label, the indices of its children, and the size of its subtree.
    """

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
    """Return the least cost of turning the subtrees of one side into those of the other, each paired with at most one.

    Subtrees without a partner are deleted or inserted.
    """
    all_edits = sum(our_size[s] for s in ours) + sum(their_size[t] for t in theirs)
    if not ours or not theirs:
        return all_edits
    # Pairing two subtrees never costs more than deleting one and inserting the other, so every subtree of the shorter
    # side gets a partner.
    saved = [[trees[s][t] - our_size[s] - their_size[t] for t in theirs] for s in ours]
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("The comparison of routes needs SciPy: pip install weftformer[chem].") from error
    table = np.array(saved)
    return all_edits + int(table[linear_sum_assignment(table)].sum())

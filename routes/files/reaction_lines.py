"""A route on one line of reaction SMILES: `CC=O.O>>CC(=O)O CC(=O)O.CO>>COC(C)=O`.

The reactions are separated by a space, each after those that make its reactants; the last makes the target. What is read
may be more: reactions in any order, agents between the two `>` (ignored), and after a tab whatever stands there (ignored).
Atom maps are taken off; in a reaction with maps, reactants of which no atom is in the product are agents, and ignored.

Reactions alone say which molecules are made, not where each goes, so they are read like this: a molecule that some
reaction makes is made wherever it is used, and written twice, its reaction may stand there twice. A molecule that several
different reactions make must follow the order above: each is for the next reaction that wants it. A molecule that is made
in one place of a route and bought in another cannot be told, and is not written. A molecule of several parts, such as a
salt, stands in parentheses among the reactants, `(Cl.CCN).CO>>...`, as SMARTS groups the parts of one molecule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..tree import MAX_DEPTH, Route

# Not the arrow of a dative bond, `->`.
_ARROW = re.compile(r"(?<!-)>")
_ATOM_MAP = re.compile(r":(\d+)(?=\])")
# A molecule that is used again and again makes a tree of any size out of a few reactions.
_MOST_MOLECULES = 10_000


class _Reaction(NamedTuple):
    product: str
    reactants: tuple[str, ...]


def to_reaction_line(route: Route) -> str:
    """The line of a route.

    Raises:
        ValueError: the route has no reaction, or would not read back as it is.
    """
    if not route.children:
        raise ValueError(f"{route.smiles} is a single molecule: there is no reaction to write")
    line = " ".join(_write(route))
    try:
        same = from_reaction_line(line) == route
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"the route to {route.smiles} cannot be told from its reactions alone: a molecule is made in one place and "
            "bought or made otherwise in another, or is no SMILES; write it in another form"
        )
    return line


def from_reaction_line(line: str) -> Route:
    """Read a line of reactions, see the top of this file.

    Raises:
        ValueError: something is no reaction, or the reactions are not those of one route; the message names the
            reaction or the molecule.
    """
    words = line.split("\t", 1)[0].split()
    if not words:
        raise ValueError("there is no reaction")
    steps = [_read(word, number) for number, word in enumerate(words, 1)]
    ways: dict[str, tuple[str, ...]] = {}
    for product, reactants in steps:
        if ways.setdefault(product, reactants) != reactants:
            return _in_order(steps)
    return _in_any_order(ways)


def _write(route: Route) -> list[str]:
    if not route.children:
        return []
    reactants = ".".join(f"({child.smiles})" if "." in child.smiles else child.smiles for child in route.children)
    return [word for child in route.children for word in _write(child)] + [f"{reactants}>>{route.smiles}"]


def _read(word: str, number: int) -> _Reaction:
    parts = _ARROW.split(word)
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise ValueError(f"reaction {number}: expected reactants>>product, found {word[:80]!r}")
    reactants, mapped = _molecules(parts[0]), set(_ATOM_MAP.findall(parts[2]))
    if mapped:
        reactants = [smiles for smiles in reactants if not mapped.isdisjoint(_ATOM_MAP.findall(smiles))]
        if not reactants:
            raise ValueError(
                f"reaction {number}: by its atom maps nothing of the product is in a reactant: {word[:80]!r}"
            )
    return _Reaction(_ATOM_MAP.sub("", parts[2]), tuple(_ATOM_MAP.sub("", smiles) for smiles in reactants))


def _molecules(text: str) -> list[str]:
    """The parts between dots, a group in parentheses kept together."""
    if "(" not in (text[0], *re.findall(r"\.(.)", text)):
        return text.split(".")
    found, depth, start = [], 0, 0
    for position, character in enumerate(text + "."):
        depth += (character == "(") - (character == ")")
        if character == "." and depth == 0:
            found.append(text[start:position])
            start = position + 1
    return [part[1:-1] if part.startswith("(") and part.endswith(")") else part for part in found]


def _in_any_order(ways: dict[str, tuple[str, ...]]) -> Route:
    """The tree of molecules that are each made in one way."""
    used = {smiles for reactants in ways.values() for smiles in reactants}
    targets = [product for product in ways if product not in used]
    if len(targets) != 1:
        found = f"{', '.join(targets[:3])} are made and not used" if targets else "they go round in a circle"
        raise ValueError(f"the reactions are not those of one route: {found}")
    known: dict[str, tuple[Route, int]] = {}
    route, _ = _grow(targets[0], ways, known, MAX_DEPTH)
    if unused := [product for product in ways if product not in known]:
        raise ValueError(f"the reactions are not those of one route: {unused[0]} has no part in it")
    if route.depth > MAX_DEPTH:
        raise ValueError(f"{route.smiles}: more than {MAX_DEPTH} reactions in a row")
    return route


def _grow(
    smiles: str, ways: dict[str, tuple[str, ...]], known: dict[str, tuple[Route, int]], depth_left: int
) -> tuple[Route, int]:
    """The route to a molecule and its size; a molecule met again is not grown again."""
    if smiles not in known:
        reactants = ways.get(smiles, ())
        if reactants and depth_left <= 0:
            raise ValueError(f"{smiles}: more reactions in a row than allowed, or they go round in a circle")
        children = [_grow(reactant, ways, known, depth_left - 1) for reactant in reactants]
        size = 1 + sum(size for _, size in children)
        if size > _MOST_MOLECULES:
            raise ValueError(f"{smiles}: the route has more than {_MOST_MOLECULES} molecules")
        known[smiles] = Route(smiles, tuple(child for child, _ in children)), size
    return known[smiles]


def _in_order(steps: list[_Reaction]) -> Route:
    """The tree of reactions that stand each after those that make its reactants, from left to right."""
    made: list[Route] = []
    for product, reactants in steps:
        # the last that was made belongs to the reactant furthest to the right
        children = [
            made.pop() if made and made[-1].smiles == smiles else Route(smiles) for smiles in reversed(reactants)
        ]
        made.append(Route(product, tuple(reversed(children))))
    if len(made) != 1:
        raise ValueError(
            f"the reactions are not those of one route: {made[0].smiles} is made and not used by the next reaction"
        )
    return made[0]

"""A route on one line of reaction SMILES: `CC=O.O>>CC(=O)O CC(=O)O.CO>>COC(C)=O`.

Spaces separate the reactions. Each reaction comes after the reactions that make its reactants, and the last one makes
the target. The reader accepts more: reactions in any order, agents between the two `>`, an extension between bars
(CXSMILES) after each reaction, any text after a tab, and Retro*'s `product>score>reactants|...`. It ignores the agents
and the text after the tab, and of an extension all but the parts of molecules, `f:0.1`. It removes atom maps. In a
reaction with atom maps, a reactant without an atom in the product is an agent, and an agent with one is a reactant. In
a route of such reactions, RDKit determines which molecules are the same, and the first spelling of each is used.
Without atom maps, a molecule must be spelled alike everywhere.

Reactions alone show which molecules are made, but not where each is used. The reader follows these rules:

- A molecule that a reaction makes is made wherever it is used. The reaction may be repeated for each use.
- A route in which a molecule is made in two ways, or made in one place and purchased in another, cannot be expressed,
  so it is not written.
- A molecule of several parts, such as a salt, is written in parentheses among the reactants, `(Cl.CCN).CO>>...`.
  SMARTS groups the parts of one molecule in the same way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..tree import ATOM_MAP, MAX_DEPTH, Route, split_parts

# Does not match the arrow of a dative bond, `->`.
_ARROW = re.compile(r"(?<!-)>")
_WORD = re.compile(r"(\S+)(?:\s+(\|[^|]*\|))?")
_FRAGMENTS = re.compile(r"(?<=[|,])f:([\d.,]+)")
# Retro* writes the score of a reaction where others write agents, and bars between the reactions.
_SCORE = re.compile(r"(?:\d*\.)?\d+(?:[eE][+-]?\d+)?")
_SCORED = re.compile(rf"(?<!-)>{_SCORE.pattern}>")
# A few reactions can make a tree of any size if their products are used repeatedly.
_MOST_MOLECULES = 10_000


class Reaction(NamedTuple):
    """A product and its reactants, as SMILES."""

    product: str
    reactants: tuple[str, ...]


def to_reaction_line(route: Route) -> str:
    """Write a route as one line of reactions.

    Raises:
        ValueError: the route has no reaction, or the line would not be read back as the same route.
    """
    if not route.children:
        raise ValueError(f"{route.smiles} is a single molecule: there is no reaction to write")
    line = " ".join(_write(route))
    with contextlib.suppress(ValueError):
        if from_reaction_line(line) == route:
            return line
    reason = "a molecule is made in two ways, or also purchased, or is no SMILES"
    raise ValueError(f"the reactions alone do not give the route to {route.smiles}: {reason}. Use another form")


def from_reaction_line(line: str) -> Route:
    """Read a line of reactions, as the docstring of this module describes it.

    Raises:
        ValueError: a word is not a reaction, or the reactions do not form one route. The message names the reaction or
            the molecule.
        ImportError: several reactions have atom maps, and RDKit is not installed.
    """
    text = line.split("\t", 1)[0]
    words = _WORD.findall(text.replace("|", " ") if _SCORED.search(text) else text)
    if not words:
        raise ValueError("no reaction found")
    steps = [_read(word, extension, number) for number, (word, extension) in enumerate(words, 1)]
    if len(steps) > 1 and ATOM_MAP.search(text):
        steps = _spelled_alike(steps)
    ways: dict[str, tuple[str, ...]] = {}
    for product, reactants in steps:
        if ways.setdefault(product, reactants) != reactants:
            raise ValueError(f"the reactions do not form one route: {product} is made in two ways")
    return _tree_of(ways)


def _write(route: Route) -> list[str]:
    if not route.children:
        return []
    reactants = ".".join(f"({child.smiles})" if "." in child.smiles else child.smiles for child in route.children)
    return [word for child in route.children for word in _write(child)] + [f"{reactants}>>{route.smiles}"]


def read_reaction(text: str) -> tuple[list[str], list[str], str]:
    """Return the reactants, the agents and the product of a reaction SMILES, with its atom maps.

    Raises:
        ValueError: the text is not a reaction.
    """
    word, extension = _WORD.findall(text)[0] if text.strip() else ("", "")
    parts = _ARROW.split(word)
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise ValueError(f"expected reactants>>product, found {word[:80]!r}")
    if _SCORE.fullmatch(parts[1]):
        parts = [parts[2], "", parts[0]]
    reactants, product = _molecules(parts[0]), parts[2].replace("~", ".")
    whole = _whole([*reactants, *(_molecules(parts[1]) if parts[1] else ())], extension)
    reactants, agents = (list(filter(None, some)) for some in (whole[: len(reactants)], whole[len(reactants) :]))
    return reactants, agents, product


def _read(word: str, extension: str, number: int) -> Reaction:
    try:
        reactants, agents, product = read_reaction(f"{word} {extension}")
        if _is_backwards(reactants, product):
            raise ValueError(f"{word[:80]!r} is written backwards, as product>>reactants; write reactants>>product")
        return without_maps(product, reactants, agents)
    except ValueError as error:
        raise ValueError(f"reaction {number}: {error}") from None


def _whole(parts: list[str], extension: str) -> list[str]:
    """Join the parts of a molecule that an extension groups, such as `f:0.2`, at the place of the first. The others
    become empty.
    """
    whole = list(parts)
    for group in (text for groups in _FRAGMENTS.findall(extension) for text in groups.split(",")):
        places = [place for place in map(int, filter(None, group.split("."))) if place < len(parts)]
        for place in reversed(places):
            whole[place] = ".".join(parts[other] for other in places) if place == places[0] else ""
    return whole


def _is_backwards(reactants: list[str], product: str) -> bool:
    """Return whether a molecule is made of several smaller ones in the other direction."""
    if len(reactants) != 1 or "." in reactants[0] or "." not in product:
        return False
    from ..chemistry.molecules import missing_atoms, read_molecule  # needs RDKit

    molecule, *molecules = map(read_molecule, (reactants[0], *_molecules(product)))
    parts = [part for part in molecules if part is not None]
    if molecule is None or len(parts) < len(molecules) or missing_atoms(molecule.atoms, parts):
        return False
    return all(sum(part.atoms.values()) < sum(molecule.atoms.values()) for part in parts)


def without_maps(product: str, reactants: Iterable[str], agents: Iterable[str] = ()) -> Reaction:
    """Remove the atom maps of a reaction. If the product has maps, the reactants are the molecules with an atom in it.

    Raises:
        ValueError: no reactant is left.
    """
    if numbers := set(ATOM_MAP.findall(product)):
        reactants = [smiles for smiles in (*reactants, *agents) if not numbers.isdisjoint(ATOM_MAP.findall(smiles))]
        if not reactants:
            raise ValueError(f"according to the atom maps, no reactant has an atom of the product {product[:80]}")
    return Reaction(ATOM_MAP.sub("", product), tuple(ATOM_MAP.sub("", smiles) for smiles in reactants))


def _spelled_alike(steps: list[Reaction]) -> list[Reaction]:
    """Give each molecule its first spelling. Its text depends on the atom maps, which differ between reactions."""
    from ..chemistry.molecules import canonical_or_given  # needs RDKit

    first: dict[str, str] = {}

    def spelled(smiles: str) -> str:
        return first.setdefault(canonical_or_given(smiles), smiles)

    return [Reaction(spelled(product), tuple(map(spelled, reactants))) for product, reactants in steps]


def _molecules(text: str) -> list[str]:
    """Split a text at its dots, and take molecules of several parts out of their parentheses.

    RXN4Chemistry joins the parts of one molecule with `~`.
    """
    if "(" not in (text[0], *re.findall(r"\.(.)", text)):
        return [part.replace("~", ".") for part in text.split(".")]
    return [part[1:-1] if part.startswith("(") and part.endswith(")") else part for part in split_parts(text)]


def _tree_of(ways: dict[str, tuple[str, ...]]) -> Route:
    """Build the tree of molecules that are each made in one way."""
    reactants = {smiles for parts in ways.values() for smiles in parts}
    targets = [product for product in ways if product not in reactants]
    if len(targets) != 1:
        reason = f"{', '.join(targets[:3])} are made but not used" if targets else "they form a cycle"
        raise ValueError(f"the reactions do not form one route: {reason}")
    routes: dict[str, tuple[Route, int]] = {}
    route, _ = _grow(targets[0], ways, routes, MAX_DEPTH)
    if product := next((product for product in ways if product not in routes), None):
        raise ValueError(f"the reactions do not form one route: {product} is not used in it")
    if route.depth > MAX_DEPTH:
        raise ValueError(f"{route.smiles}: more than {MAX_DEPTH} reactions in a row")
    return route


def _grow(
    smiles: str, ways: dict[str, tuple[str, ...]], routes: dict[str, tuple[Route, int]], depth_left: int
) -> tuple[Route, int]:
    """Return the route to a molecule and its size. The route to each molecule is built once."""
    if smiles not in routes:
        reactants = ways.get(smiles, ())
        if reactants and depth_left <= 0:
            raise ValueError(f"{smiles}: more reactions in a row than allowed, or the reactions form a cycle")
        children = [_grow(reactant, ways, routes, depth_left - 1) for reactant in reactants]
        size = 1 + sum(size for _, size in children)
        if size > _MOST_MOLECULES:
            raise ValueError(f"{smiles}: the route has more than {_MOST_MOLECULES} molecules")
        routes[smiles] = Route(smiles, tuple(child for child, _ in children)), size
    return routes[smiles]

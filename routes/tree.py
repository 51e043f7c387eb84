"""The route tree, and the text DirectMultiStep writes it in.

A `Route` is a molecule and the molecules it is made from in one reaction; a molecule without children is a starting
material. The text form is DirectMultiStep's (https://github.com/batistagroup/DirectMultiStep): Python's `repr` of nested
dictionaries without spaces. That project reads it back with `eval`; here it is read by a parser of exactly that grammar:

    route    := "{'smiles':'" smiles "'" [ ",'children':[" route { "," route } "]" ] "}"
    smiles   := one or more characters of `SMILES_CHARACTERS`, a backslash written twice
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# What RDKit and PaRoutes write; no quote, brace, comma or space, so that the text form needs no other escape than `\\`.
SMILES_CHARACTERS = frozenset(string.ascii_letters + string.digits + "@+-[]()/\\%=#$.:*~<>")
MAX_DEPTH = 64
MAX_LENGTH = 20_000

_SMILES_KEY = "{'smiles':'"
_CHILDREN_KEY = ",'children':["


@dataclass(frozen=True)
class Route:
    """A molecule and how it is made; immutable and hashable.

    Two routes are equal when they agree in the order of the children too; compare `canonical()` to ignore the order.

    Args:
        smiles: SMILES of the molecule, only characters of `SMILES_CHARACTERS`.
        children: the reactants of the one reaction that makes it; empty for a starting material.

    Raises:
        ValueError: `smiles` is empty or holds a character that no SMILES has.
    """

    smiles: str
    children: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        _check_smiles(self.smiles)

    @property
    def depth(self) -> int:
        """Number of reactions on the longest path from the target to a starting material; 0 for a leaf."""
        return 1 + max(child.depth for child in self.children) if self.children else 0

    @property
    def num_reactions(self) -> int:
        """Number of reactions in the whole tree."""
        return sum(child.num_reactions for child in self.children) + bool(self.children)

    def molecules(self) -> list[str]:
        """SMILES of every molecule, the target first, depth first; repeated where a molecule is used twice."""
        return [self.smiles, *(smiles for child in self.children for smiles in child.molecules())]

    def leaves(self) -> list[str]:
        """SMILES of the starting materials from left to right; repeated where one is used twice."""
        return [smiles for child in self.children for smiles in child.leaves()] if self.children else [self.smiles]

    def sub_routes(self) -> list[Route]:
        """The route to each molecule that is made, the whole route first, depth first; each once."""
        if not self.children:
            return []
        return list(dict.fromkeys([self, *(part for child in self.children for part in child.sub_routes())]))

    def canonical(self) -> Route:
        """The same route with children sorted by their text at every level: equal for equal routes, whatever the order."""
        return Route(self.smiles, tuple(sorted((child.canonical() for child in self.children), key=Route.to_string)))

    def shuffled(self, rng: random.Random) -> Route:
        """The same route with the children of every molecule in a random order.

        Args:
            rng: source of the order; the same state gives the same order.
        """
        children = [child.shuffled(rng) for child in self.children]
        rng.shuffle(children)
        return Route(self.smiles, tuple(children))

    def to_dict(self) -> dict[str, Any]:
        """`{"smiles": ..., "children": [...]}`; a leaf has no `children`."""
        if not self.children:
            return {"smiles": self.smiles}
        return {"smiles": self.smiles, "children": [child.to_dict() for child in self.children]}

    @classmethod
    def from_dict(cls, data: Any, *, max_depth: int = MAX_DEPTH) -> Route:
        """Read nested dictionaries; fields other than `smiles` and `children` are ignored.

        Args:
            data: what `to_dict` gives, or the same with further fields; `children` may be missing or empty on a leaf.
            max_depth: the most reactions on a path.

        Raises:
            ValueError: a field is missing, of a wrong type or no SMILES, or the tree is too deep; the message names
                the place, e.g. `children[1].smiles`.
        """
        return _from_dict(data, "", max_depth)

    def to_string(self) -> str:
        """The DirectMultiStep text: `str(self.to_dict()).replace(" ", "")`, in which a backslash stands twice."""
        return str(self.to_dict()).replace(" ", "")

    @classmethod
    def from_string(cls, text: str, *, max_depth: int = MAX_DEPTH, max_length: int = MAX_LENGTH) -> Route:
        """Parse the DirectMultiStep text; what it accepts, `to_string` gives back character for character.

        Args:
            text: the text, no spaces.
            max_depth: the most reactions on a path.
            max_length: the most characters.

        Raises:
            ValueError: the text is not of this grammar; the message names the position and what was expected there.
        """
        if len(text) > max_length:
            raise ValueError(f"route text has {len(text)} characters, at most {max_length} are allowed")
        route, end = _parse(text, 0, max_depth)
        if end != len(text):
            raise _unexpected(text, end, "the end of the text")
        return route

    def format_tree(self, *, leaf_mark: str = "•") -> str:
        """A tree to read in a terminal, one molecule a line, and a last line that counts reactions and leaves.

        Args:
            leaf_mark: what stands before a starting material.
        """
        count, leaves = self.num_reactions, len(self.leaves())
        lines = list(self._tree_lines("", "", leaf_mark))
        lines.append(
            f"{count} reaction{'' if count == 1 else 's'}, longest path {self.depth}; "
            f"{leaf_mark} {leaves} starting material{'' if leaves == 1 else 's'}"
        )
        return "\n".join(lines)

    def _tree_lines(self, first: str, rest: str, leaf_mark: str) -> Iterator[str]:
        yield first + (self.smiles if self.children else f"{leaf_mark} {self.smiles}")
        for i, child in enumerate(self.children):
            last = i == len(self.children) - 1
            yield from child._tree_lines(
                rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "), leaf_mark
            )


def _check_smiles(smiles: Any) -> None:
    if not isinstance(smiles, str):
        raise ValueError(f"expected a SMILES string, got {type(smiles).__name__}")
    if not smiles:
        raise ValueError("expected a SMILES string, got an empty one")
    if not SMILES_CHARACTERS.issuperset(smiles):
        wrong = next(character for character in smiles if character not in SMILES_CHARACTERS)
        raise ValueError(f"{smiles[:80]!r} is no SMILES: it contains {wrong!r}")


def _from_dict(data: Any, place: str, depth_left: int) -> Route:
    if not isinstance(data, dict):
        raise ValueError(f"{place or 'route'}: expected an object, got {type(data).__name__}")
    prefix = f"{place}." if place else ""
    if "smiles" not in data:
        raise ValueError(f"{prefix}smiles: missing")
    children = data.get("children", [])
    if not isinstance(children, list | tuple):
        raise ValueError(f"{prefix}children: expected a list, got {type(children).__name__}")
    if children and depth_left <= 0:
        raise ValueError(f"{prefix}children: nested deeper than the allowed number of reactions")
    try:
        _check_smiles(data["smiles"])
    except ValueError as error:
        raise ValueError(f"{prefix}smiles: {error}") from None
    return Route(
        data["smiles"],
        tuple(_from_dict(child, f"{prefix}children[{i}]", depth_left - 1) for i, child in enumerate(children)),
    )


def _parse(text: str, position: int, depth_left: int) -> tuple[Route, int]:
    """One route that starts at `position`; returns it and the position after it."""
    smiles, position = _parse_smiles(text, _expect(text, position, _SMILES_KEY))
    children: list[Route] = []
    if text.startswith(",", position):
        start = _expect(text, position, _CHILDREN_KEY)
        if depth_left <= 0:
            raise ValueError(f"position {position}: nested deeper than the allowed number of reactions")
        child, position = _parse(text, start, depth_left - 1)
        children.append(child)
        while text.startswith(",", position):
            child, position = _parse(text, position + 1, depth_left - 1)
            children.append(child)
        position = _expect(text, position, "]")
    return Route(smiles, tuple(children)), _expect(text, position, "}")


def _parse_smiles(text: str, position: int) -> tuple[str, int]:
    """The characters up to the closing quote, doubled backslashes undone; returns them and the position after it."""
    start, characters = position, []
    while position < len(text) and text[position] in SMILES_CHARACTERS:
        if text[position] == "\\":
            position = _expect(text, position + 1, "\\") - 1
        characters.append(text[position])
        position += 1
    if position == start:
        raise _unexpected(text, position, "a SMILES")
    return "".join(characters), _expect(text, position, "'")


def _expect(text: str, position: int, wanted: str) -> int:
    if text.startswith(wanted, position):
        return position + len(wanted)
    # Point at the first character that differs rather than at the start of a long keyword.
    agreed = 0
    while position + agreed < len(text) and text[position + agreed] == wanted[agreed]:
        agreed += 1
    raise _unexpected(text, position + agreed, repr(wanted[agreed:]))


def _unexpected(text: str, position: int, wanted: str) -> ValueError:
    found = repr(text[position : position + 12]) if position < len(text) else "the end of the text"
    return ValueError(f"position {position}: expected {wanted}, found {found}")

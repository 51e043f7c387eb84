"""The route tree, and its text form in DirectMultiStep.

A `Route` is a molecule together with the molecules that it is made from in one reaction. A molecule without children
is a starting material. The text form is that of DirectMultiStep (https://github.com/batistagroup/DirectMultiStep):
Python's `repr` of nested dictionaries, without spaces. DirectMultiStep reads it back with `eval`. This module reads it
as JSON with other quotes, and accepts exactly this grammar:

    route    := "{'smiles':'" smiles "'" [ ",'children':[" route { "," route } "]" ] "}"
    smiles   := one or more characters of `SMILES_CHARACTERS`; each backslash is written twice
"""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..common.words import counted

# The characters that RDKit and PaRoutes write. A quote, brace, comma or space is not among them, so the text form
# needs only one escape: a backslash is written twice.
SMILES_CHARACTERS = frozenset(string.ascii_letters + string.digits + "@+-[]()/\\%=#$.:*~<>")
# Names of columns with molecules, compared by `find_column`. The first that a table has is taken. PubChem's canonical
# SMILES has no stereochemistry, and a SMILES beside a CXSMILES not its relative configurations.
SMILES_COLUMNS = (
    "cxsmiles", "extended_smiles", "isomeric_smiles", "iso_smiles", "smiles", "canonical_smiles", "smiles_canonical",
    "target_smiles", "target", "structure", "mol", "molfile", "molblock",
    "inchi",
)  # fmt: skip
# The number of an atom in a reaction. It is no part of the molecule.
ATOM_MAP = re.compile(r":(\d+)(?=\])")
MAX_DEPTH = 64

_TOKEN = r"\[(?=[^\]\s]*[A-Za-z])[^\]\s]*\]|Br|Cl|[BCNOPSFIbcnops]|%\d\d|[-=#$:/\\().+@~\d]"


def smiles_and_name(line: str) -> tuple[str, str]:
    """Return the SMILES of a line of a list, with its extension between bars (CXSMILES), and the name after it."""
    if inchi := re.match(r"(InChI=\S+)\s*(.*)", line.strip()):  # which has commas
        return inchi[1], inchi[2].strip('"')
    first, tab, rest = line.strip().partition("\t")
    if " " in first and " " not in (smiles := joined_tokens(first)):
        return smiles, rest.strip()
    parts = re.fullmatch(r"([^\s,;]*)(\s+\|[^|]*\|)?[\s,;]*((?s:.*))", f"{first}{tab}{rest}")
    assert parts is not None  # any text matches
    smiles, extension, name = parts.groups("")
    return smiles + extension, name.strip().strip('"')


def with_whole_extension(row: list[str], column: int) -> list[str]:
    """Join the cells of a CXSMILES that was written to a table without quotes: its extension may contain commas.

    Args:
        row: a row of a table.
        column: the index of the cell where the SMILES begins.
    """
    if row[column].count("|") != 1:
        return row
    end = next((place for place in range(column + 1, len(row)) if "|" in row[place]), column)
    return [*row[:column], ",".join(row[column : end + 1]), *row[end + 1 :]]


def joined_tokens(text: str) -> str:
    """Join the tokens of a SMILES that is written with blanks between them, such as `C C ( = O ) O`.

    A text with a name behind its SMILES, and any other, is returned as it is.
    """
    words = text.split(" ")
    is_named = all(map(str.isdigit, words[1:]))
    return text if is_named or not all(re.fullmatch(_TOKEN, word) for word in words) else "".join(words)


def split_parts(text: str) -> list[str]:
    """Split a SMILES or SMARTS at its dots, except at dots in parentheses.

    rdchiral, for one, writes the parts of one molecule in parentheses.
    """
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text + "."):
        depth += (character == "(") - (character == ")")
        if character == "." and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return parts


@dataclass(frozen=True)
class Route:
    """A molecule and how it is made. A route is immutable and hashable.

    Two routes are equal only if their children are in the same order too. To ignore the order, compare `canonical()`.

    Args:
        smiles: SMILES of the molecule. It contains only characters of `SMILES_CHARACTERS`.
        children: the reactants of the reaction that makes the molecule. A starting material has none.

    Raises:
        ValueError: `smiles` is empty or contains a character that is not allowed in a SMILES.
    """

    smiles: str
    children: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.smiles, str):
            raise ValueError(f"expected a SMILES string, got {type(self.smiles).__name__}")
        if not self.smiles:
            raise ValueError("expected a SMILES string, got an empty one")
        if not SMILES_CHARACTERS.issuperset(self.smiles):
            wrong = next(character for character in self.smiles if character not in SMILES_CHARACTERS)
            raise ValueError(f"{self.smiles[:80]!r} is not a SMILES: it contains {wrong!r}")

    @property
    def depth(self) -> int:
        """The number of reactions on the longest path to a starting material. It is 0 for a single molecule."""
        return 1 + max(child.depth for child in self.children) if self.children else 0

    @property
    def num_reactions(self) -> int:
        """The number of reactions in the whole tree."""
        return sum(child.num_reactions for child in self.children) + bool(self.children)

    def molecules(self) -> list[str]:
        """Return the SMILES of every molecule, depth first from the target. A molecule may appear several times."""
        return [self.smiles, *(smiles for child in self.children for smiles in child.molecules())]

    def leaves(self) -> list[str]:
        """Return the SMILES of the starting materials from left to right. A SMILES may appear several times."""
        return [smiles for child in self.children for smiles in child.leaves()] if self.children else [self.smiles]

    def repeated(self, above: frozenset[str] = frozenset()) -> str | None:
        """Return a SMILES that is made from itself, or None."""
        if self.smiles in above:
            return self.smiles
        return next(filter(None, (child.repeated(above | {self.smiles}) for child in self.children)), None)

    def sub_routes(self) -> list[Route]:
        """Return the distinct routes to each molecule that is made, depth first from the whole route."""
        if not self.children:
            return []
        return list(dict.fromkeys([self, *(part for child in self.children for part in child.sub_routes())]))

    def steps(self) -> list[Route]:
        """Return the route to each molecule that is made, each after those to its reactants, as often as it is made.

        This is an order in which the reactions can be run, and the numbers of the steps in pictures follow it.
        """
        if not self.children:
            return []
        return [*(part for child in self.children for part in child.steps()), self]

    @property
    def reactants(self) -> tuple[str, ...]:
        """The SMILES of the reactants of the last reaction, sorted."""
        return tuple(sorted(child.smiles for child in self.children))

    @property
    def last_reaction(self) -> str:
        """The last reaction, `reactant.reactant>>product`."""
        return ".".join(child.smiles for child in self.children) + ">>" + self.smiles

    def last_step(self) -> Route:
        """Return the last reaction as a route of one step."""
        return Route(self.smiles, tuple(Route(child.smiles) for child in self.children))

    def canonical(self) -> Route:
        """Return the same route with the children sorted by their text at every level.

        Routes that differ only in the order of children have the same canonical route.
        """
        return Route(self.smiles, tuple(sorted((child.canonical() for child in self.children), key=Route.to_string)))

    def shuffled(self, rng: random.Random) -> Route:
        """Return the same route with the children of every molecule in a random order.

        Args:
            rng: the source of the order. The same state gives the same order.

        Returns:
            The shuffled route.
        """
        children = [child.shuffled(rng) for child in self.children]
        rng.shuffle(children)
        return Route(self.smiles, tuple(children))

    def to_dict(self) -> dict[str, Any]:
        """Return the route as `{"smiles": ..., "children": [...]}`. A starting material has no `children`."""
        if not self.children:
            return {"smiles": self.smiles}
        return {"smiles": self.smiles, "children": [child.to_dict() for child in self.children]}

    @classmethod
    def from_dict(cls, data: Any) -> Route:
        """Read a route from nested dictionaries. Fields other than `smiles` and `children` are ignored.

        Args:
            data (`dict[str, Any]`): the result of `to_dict`, with or without further fields. A starting material may
                have an empty `children` or none.

        Returns:
            The route.

        Raises:
            ValueError: a field is missing, has a wrong type or is not a SMILES, or there are more than 64 reactions in
                a row. The message names the place, such as `children[1].smiles`.
        """
        return read_tree(data, "", _children)

    def to_string(self) -> str:
        """Return the DirectMultiStep text: `str(self.to_dict()).replace(" ", "")`. It contains every backslash
        twice.
        """
        return str(self.to_dict()).replace(" ", "")

    @classmethod
    def from_string(cls, text: str) -> Route:
        """Parse the DirectMultiStep text. `to_string` returns every accepted text character for character.

        Args:
            text: the text, without spaces.

        Returns:
            The route.

        Raises:
            ValueError: the text has more than 64 reactions in a row or does not follow the grammar.
        """
        try:
            # SMILES contain no quotes, and JSON has the same escape for a backslash
            route = cls.from_dict(json.loads(text.replace("'", '"')))
        except RecursionError:
            raise ValueError("nested deeper than the allowed number of reactions") from None
        if (canonical := route.to_string()) != text:
            raise ValueError(f"expected {canonical[:200]!r}, found {text[:200]!r}")
        return route

    def format_tree(self, missing: Collection[str] | None = None, common: Collection[str] = ()) -> str:
        """Format the route as a tree for a terminal.

        Each molecule has a line, with `•` in front of a starting material that is sold, and `◦` in front of one that
        recorded reactions use. The last line counts the reactions and the starting materials.

        Args:
            missing: the starting materials that are not in stock, as in `Candidate.missing` and from
                `Stock.missing(route)`. All others then are. `None` stands for no stock.
            common: those in stock that are not known to be sold, as in `Candidate.common`.

        Returns:
            The lines, joined by line breaks.
        """
        leaves = self.leaves()
        materials = set() if missing is None else set(leaves) - set(missing)
        marks = {leaf: "◦ " if leaf in common else "• " for leaf in materials}
        counts = Counter(marks.get(leaf) for leaf in leaves)
        last = f"{counted(self.num_reactions, 'reaction')}, longest path {self.depth}; "
        last += counted(len(leaves), "starting material")
        last += "" if missing is None else f", • {counts['• ']} sold"
        last += f", ◦ {counts['◦ ']} widely used" if counts["◦ "] else ""
        return "\n".join([*self._tree_lines("", "", marks), last])

    def _tree_lines(self, first: str, rest: str, marks: Mapping[str, str]) -> Iterator[str]:
        yield f"{first}{'' if self.children else marks.get(self.smiles, '')}{self.smiles}"
        for i, child in enumerate(self.children):
            last = i == len(self.children) - 1
            branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
            yield from child._tree_lines(rest + branch, rest + below, marks)


def read_tree(
    data: Any,
    place: str,
    reactants: Callable[[dict[str, Any], str], Iterable[tuple[Any, str]]],
    plain: Callable[[Any], Any] = lambda smiles: smiles,
    depth_left: int = MAX_DEPTH,
) -> Route:
    """Read a route from nested dictionaries.

    Args:
        data: the dictionary of the target, with its `smiles`.
        place: its place, for messages.
        reactants: returns the dictionaries of the reactants of a molecule, each with its place.
        plain: returns the SMILES to use for that of a dictionary.
        depth_left: the largest number of reactions in a row.

    Raises:
        ValueError: as in [`Route.from_dict`].
    """
    if not isinstance(data, dict):
        raise ValueError(f"{place or 'route'}: expected an object, got {type(data).__name__}")
    children = list(reactants(data, place))
    if "smiles" not in data:
        raise ValueError(f"{join_places(place, 'smiles')}: missing")
    if children and depth_left <= 0:
        raise ValueError(f"{children[0][1]}: nested deeper than the allowed number of reactions")
    parts = tuple(read_tree(child, where, reactants, plain, depth_left - 1) for child, where in children)
    try:
        return Route(plain(data["smiles"]), parts)
    except ValueError as error:
        raise ValueError(f"{join_places(place, 'smiles')}: {error}") from None


def join_places(place: str, name: str) -> str:
    """Return the place of a member of an object."""
    return f"{place}.{name}" if place else name


def _children(data: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    where, children = join_places(place, "children"), data.get("children", [])
    if not isinstance(children, list | tuple):
        raise ValueError(f"{where}: expected a list, got {type(children).__name__}")
    return ((child, f"{where}[{index}]") for index, child in enumerate(children))

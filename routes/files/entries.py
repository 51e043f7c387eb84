"""The entries of a route file, read one after the other, so that memory does not grow with the file.

A file contains lines, each of which is an entry, one JSON document, or a table with a header. The first lines decide
which of these it is. The items of a JSON list are read one by one, and any other document as a whole.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...common.tables import named_errors, read_table, text_of
from ..tree import Route
from .formats import WRAPPERS, NoRoute, adapter_of, candidates_in, holds_routes, routes_of
from .reaction_lines import from_reaction_line

# The beginnings of JSON and of DirectMultiStep's text. No reaction matches them: `[Na+]` and `[nH]` are atoms.
_JSON = re.compile(r'\s*(?:["{]|\[\s*(?:["\[{\]]|null|$))')
_DMS = re.compile(r"\s*\{\s*'")
# The columns with routes, and those with reactions, in the tables of Lowe's, of USPTO-50K and of others.
_REACTIONS = (
    "reactions", "reaction_smiles", "rxn_smiles", "reactants>reagents>production", "reaction", "rxn", "rsmi",
    "mapped_reaction_smiles", "mapped_rxn", "rxn_smiles_mapped", "rxnSmiles_Mapping_NameRxn", "canonical_rxn",
)  # fmt: skip
# The name of a column of a table. A file of reactions may have any text after a tab.
_COLUMN = re.compile(r"[\w .-]*|reactants>reagents>production")
# Matches the spaces that Python's `repr` writes and DirectMultiStep leaves out. A SMILES contains no spaces.
_REPR_SPACES = re.compile(r"(?<=[:,]) +(?=['\[{])")
# A file of lines has an end of the first line among this number of characters.
_HEAD = 1 << 20
# Characters of a document that are read at once.
_CHUNK = 1 << 16
# Members of the outermost object that belong to one route, and members that contain many routes.
_OF_ONE = frozenset({"children", "route", "target", "ground_truth"})
_OF_MANY = frozenset(WRAPPERS) - _OF_ONE


@dataclass(frozen=True, slots=True)
class Entry:
    """
    An entry of a route file.

    Args:
        place (`str`):
            The place of the entry: `line 7`, or the path inside a JSON document, such as `[3][1]`.
        content (`Any`):
            A line, a parsed JSON value, or the `ValueError` with the reason why the entry cannot be read.
        is_line (`bool`, *optional*, defaults to `False`):
            Whether `content` is a line.
    """

    place: str
    content: Any
    is_line: bool = False

    @property
    def group(self) -> str:
        """The place of the list of candidates for a target that the entry is in, or an empty text."""
        match = re.fullmatch(r"(.*\])\[\d+\]", self.place)
        return match[1] if match else ""

    @property
    def parsed(self) -> Any:
        """The JSON value of the entry, or None if it is another text."""
        if not self.is_line:
            return self.content
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None

    def routes(self) -> list[Route]:
        """Return the routes of the entry. A target without a route gives an empty list.

        Raises:
            ValueError: the entry is not a route. The message begins with the place.
        """
        return list(routes_of(self.candidates()))

    def candidates(self) -> list[Route | ValueError]:
        """Return the routes of the entry, and, in the place of each that cannot be read, the error."""
        if self.content is None and self.group:
            return [NoRoute(f"{self.place}: null")]
        if not self.is_line and not isinstance(self.content, ValueError):
            return list(candidates_in(self.content, self.place))
        try:
            candidates = [self.content] if isinstance(self.content, ValueError) else _line_candidates(self.content)
        except ValueError as error:
            candidates = [error]
        kinds = [NoRoute if isinstance(one, NoRoute) else ValueError for one in candidates]
        return [
            kind(f"{self.place}: {one}") if isinstance(one, ValueError) else one
            for kind, one in zip(kinds, candidates, strict=True)
        ]


def read_entries(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """
    Yield the entries of a file as a stream.

    Args:
        path (`Path`):
            The file.
        progress (`Callable[[int], None]`, *optional*):
            A function that is called with the number of bytes that were read since the last call.

    Yields:
        `Entry`: the entries in their order.

    Raises:
        ValueError: the file cannot be read to its end: it is cut off or damaged. The message names the file.
        OSError: the file cannot be opened.
    """
    before = 0
    with path.open("rb") as raw, named_errors(path):
        # bytes that are not UTF-8 concern only the line that contains them
        for entry in _entries(text_of(raw, path.name, errors="surrogateescape"), path):
            yield entry
            if progress is not None and raw.seekable():
                progress(raw.tell() - before)
                before = raw.tell()


def _entries(file: IO[str], path: Path) -> Iterator[Entry]:
    ahead: list[str] = []
    while sum(not line.isspace() for line in ahead) < 2 and (line := file.readline(_HEAD)):
        ahead.append(line)
    first, _, second = "".join(ahead).lstrip().partition("\n")
    if _is_document(first, second):
        return _document(itertools.chain(ahead, iter(lambda: file.read(_CHUNK), "")), path)
    table, lines = read_table(itertools.chain(ahead, file), ("route", *_REACTIONS))
    if table is not None and all(map(_COLUMN.fullmatch, table.header)):
        names, reactions = [name.lower() for name in table.header], table.column(_REACTIONS)
        if reactions is not None:
            names[reactions] = "reactions"
        rows = (dict(zip(names, row, strict=False)) for row in table.rows)
        return (Entry(f"row {number}", _table_entry(row)) for number, row in enumerate(rows, 1))
    number_of_first = 1 + sum(1 for _ in itertools.takewhile(str.isspace, ahead))
    numbered = enumerate(lines, number_of_first)
    return (Entry(f"line {number}", line, True) for number, line in numbered if line.strip())


def _is_document(first: str, second: str) -> bool:
    """Return whether a file is one JSON document and not a file of lines, given its first two lines that are not empty.

    A document begins like JSON and continues after the first line. A file with a single line is a document if the line
    contains several routes, as a list does.
    """
    if first.startswith('"') or not _JSON.match(first[:1000]) or _DMS.match(first[:1000]):
        return False
    try:
        data = json.loads(first)
    except (ValueError, RecursionError):
        # The first line is not complete JSON. The file is a document over several lines or with one very long line,
        # unless the line is a broken entry, which is alone or followed by other lines that begin with a brace.
        is_line = second.lstrip().startswith("{") if second.strip() else len(first) < _HEAD
        return not (first.startswith("{") and is_line)
    return not second.strip() and _is_container(data)


def _is_container(data: Any) -> bool:
    """Return whether a document contains several routes that are entries of their own."""
    if not isinstance(data, dict):
        return isinstance(data, list)
    if isinstance(data.get("target"), str) or adapter_of(data) is not None:  # it is the entry of a target
        return False
    return any(key in _OF_MANY or (key not in _OF_ONE and holds_routes(value)) for key, value in data.items())


def _document(chunks: Iterator[str], path: Path) -> Iterator[Entry]:
    import ijson  # of the extra `chem`

    place = "[0]"
    first = next(chunk for chunk in chunks if not chunk.isspace())
    try:
        if not first.lstrip().startswith("["):
            yield from _members(json.loads(first + "".join(chunks)))
            return
        data = (chunk.encode("utf-8", "surrogateescape") for chunk in itertools.chain([first], chunks))
        for index, item in enumerate(ijson.items(ijson.from_iter(data), "item", use_float=True)):
            yield from _parts(item, f"[{index}]")
            place = f"[{index + 1}]"
    except ijson.JSONError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path}, {place}: the JSON document is damaged or cut off here: {reason}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: the JSON document is damaged, cut off or nested too deeply: {error}") from error


def _members(data: dict[str, Any]) -> Iterator[Entry]:
    """Yield the members of the outermost object that contain routes, or the object itself if it is one route."""
    if not _is_container(data):
        yield Entry("", data)
        return
    for key, value in data.items():
        if key in _OF_MANY and isinstance(value, dict):
            for name, part in value.items():
                yield from _parts(part, f"{key}[{name!r}]")
        elif key in _OF_MANY:
            yield from _parts(value, key)
        elif _is_container({key: value}):
            yield Entry(f"[{key!r}]", value)


def _parts(value: Any, place: str) -> Iterator[Entry]:
    if not isinstance(value, list):
        yield Entry(place, value)
        return
    for index, part in enumerate(value):
        yield from _parts(part, f"{place}[{index}]")


def _table_entry(row: dict[str, str]) -> Any:
    """Return the target and the route of a row in the form of JSON lines. A target without a route has no trees."""
    target = row.get("target") or row.get("smiles")
    named = {"smiles": target} if target else {}
    try:
        if cell := row.get("route", "").strip():
            return named | {"route": json.loads(cell) if cell.startswith('{"') else cell}
        if cell := row.get("reactions", "").strip():
            return named | {"route": from_reaction_line(cell).to_dict()}
    except (ValueError, RecursionError) as error:
        return ValueError(str(error))
    return named | {"trees": []}


def _line_candidates(line: str) -> list[Any]:
    text = line.strip()
    if _DMS.match(text):
        return [Route.from_string(_REPR_SPACES.sub("", text))]
    is_json = _JSON.match(text)
    if not is_json and ">" in text:
        return [from_reaction_line(text)]
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        if is_json:
            raise
        raise ValueError(
            f"{error.msg}: {text[:80]!r} is neither JSON, nor a DirectMultiStep text, nor reaction SMILES, nor the header "
            "of a table with a column `route`, `reactions` or `reaction_smiles`"
        ) from None
    inner = data["route"] if isinstance(data, dict) and "route" in data else data
    return list(candidates_in(inner))

"""The entries of a route file, read one after the other, so that memory does not grow with the file.

A file contains lines, each of which is an entry, one JSON document, or a table with a header. The first lines decide
which of these it is. The items of a JSON list are read one by one, and any other document as a whole.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...common.packed import most_text
from ...common.tables import named_errors, read_table, text_of
from ..tree import Route
from .formats import DMS, NoRoute, Part, parts_of, route_of_text
from .reaction_lines import from_reaction_line

# The beginnings of JSON. No reaction matches them: `[Na+]` and `[nH]` are atoms.
_JSON = re.compile(r'\s*(?:["{]|\[\s*(?:["\[{\]]|null|$))')
# The columns with reactions in the tables of Lowe's, of USPTO-50K and of others.
REACTION_COLUMNS = (
    "reactions", "reaction_smiles", "rxn_smiles", "reactants>reagents>production", "reaction", "rxn", "rsmi",
    "mapped_reaction_smiles", "mapped_rxn", "rxn_smiles_mapped", "rxnSmiles_Mapping_NameRxn", "canonical_rxn",
)  # fmt: skip
# The name of a column of a table. A file of reactions may have any text after a tab.
_COLUMN = re.compile(r"[\w .-]*|reactants>reagents>production")
# A file of lines has an end of the first line among this number of characters.
_HEAD = 1 << 20
# The depth of the items of a list. Python's own JSON reader ends at a similar one.
_DEPTH = 1000
# Characters of a document that are read at once.
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a route file.

    Args:
        place: the place of the entry: `line 7`, or the path inside a JSON document, such as `[3][1]`.
        content: a line, a parsed JSON value, or the `ValueError` with the reason why the entry cannot be read.
        is_line: whether `content` is a line.
    """

    place: str
    content: Any
    is_line: bool = False

    @property
    def parsed(self) -> Any:
        """The JSON value of the entry, or None if it is another text."""
        if not self.is_line:
            return self.content
        try:
            return _value_of(self.content)
        except (ValueError, RecursionError):
            return None

    def parts(self) -> list[Part]:
        """Return the parts of the entry that are routes, or should be."""
        around = Part(self.place)
        try:
            data = _content_of_line(self.content) if self.is_line else self.content
            if isinstance(data, ValueError):
                raise data
        except ValueError as error:
            return [around._replace(route=ValueError(f"{self.place}: {error}"))]
        return [around._replace(route=data)] if isinstance(data, Route) else list(parts_of(data, self.place, around))

    def routes(self) -> Iterator[Route]:
        """Yield the routes of the entry. A target without a route gives none.

        Raises:
            ValueError: a part of the entry is not a route. The message begins with the place.
        """
        for part in self.parts():
            if isinstance(part.route, Route):
                yield part.route
            elif part.route is not None and not isinstance(part.route, NoRoute):
                raise part.route


def read_entries(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """Yield the entries of a file as a stream.

    Args:
        path: the file.
        progress: a function that is called with the number of bytes that were read since the last call.

    Yields:
        The entries in their order.

    Raises:
        ValueError: the file cannot be read to its end: it is cut off or damaged. The message names the file.
        OSError: the file cannot be opened.
    """
    before = 0
    with path.open("rb") as raw, named_errors(path):
        # bytes that are not UTF-8 concern only the line that contains them
        for entry in _entries(text_of(raw, str(path), errors="surrogateescape"), path):
            yield entry
            if progress is not None and raw.seekable():
                progress(raw.tell() - before)
                before = raw.tell()


def _entries(file: IO[str], path: Path) -> Iterator[Entry]:
    ahead, num_blank, num_filled = list[str](), 0, 0
    while num_filled < 2 and (line := file.readline(_HEAD)):
        if line.isspace() and not ahead:
            num_blank += line.endswith("\n")
            continue
        if line.lstrip().startswith("{") and not line.endswith("\n"):  # no object is read in parts
            line += file.readline(most_text())
        ahead.append(line)
        num_filled += not line.isspace()
    first, _, second = "".join(ahead).lstrip().partition("\n")
    if _is_document(first, second):
        return _document(itertools.chain(ahead, iter(lambda: file.read(_CHUNK), "")), path)
    # the last line that was read ahead may be cut
    whole = itertools.chain(io.StringIO("".join(ahead) + next(file, "")), file)
    table, lines = read_table(whole, ("route", *REACTION_COLUMNS))
    if table is not None and all(map(_COLUMN.fullmatch, table.header)):
        names, reactions = [name.lower() for name in table.header], table.column(REACTION_COLUMNS)
        if reactions is not None:
            names[reactions] = "reactions"
        rows = (dict(zip(names, row, strict=False)) for row in table.rows)
        return (Entry(f"row {number}", _table_entry(row)) for number, row in enumerate(rows, 1))
    pairs = enumerate(lines, 1 + num_blank)
    return (Entry(f"line {number}", line, True) for number, line in pairs if line.strip())


def _is_document(first: str, second: str) -> bool:
    """Return whether a file is one JSON document and not a file of lines, given its first two lines with content.

    A document begins like JSON and continues after the first line. A file with a single line is a document if it is a
    list.
    """
    if first.startswith('"') or not _JSON.match(first[:1000]) or DMS.match(first[:1000]):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        # The first line is not complete JSON. The file is a document over several lines or with one very long line,
        # unless the line is a broken entry, which is alone or followed by other lines that begin with a brace.
        is_line = second.lstrip().startswith("{") if second.strip() else len(first) < _HEAD
        return not (first.startswith("{") and is_line)
    return not second.strip() and first.startswith("[")


def _document(chunks: Iterator[str], path: Path) -> Iterator[Entry]:
    import ijson  # of the extra `chem`

    place = "[0]"
    first = next(chunk for chunk in chunks if not chunk.isspace())
    try:
        if not first.lstrip().startswith("["):
            yield Entry("", _value_of(first + "".join(chunks)))
            return
        data = (chunk.encode("utf-8", "surrogateescape") for chunk in itertools.chain([first], chunks))
        for index, item in enumerate(_items(ijson.basic_parse(ijson.from_iter(data), use_float=True))):
            yield Entry(f"[{index}]", item)
            place = f"[{index + 1}]"
    except ijson.JSONError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path}, {place}: the JSON document is damaged or cut off here: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the JSON document is damaged, cut off or nested too deeply: {error}") from error


def _items(events: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    """Yield the items of a list, given the events of its document.

    `ijson.items` keeps the path of each value, whose memory is quadratic in the depth.
    """
    from ijson import ObjectBuilder

    builder, depth = ObjectBuilder(), 0
    next(events)  # the start of the list
    for event, value in events:
        depth += event.startswith("start_") - event.startswith("end_")
        if depth > _DEPTH:
            raise RecursionError(f"more than {_DEPTH} lists and objects around a value")
        if depth >= 0:
            builder.event(event, value)
        if depth == 0:
            yield builder.value
            builder = ObjectBuilder()


def _table_entry(row: dict[str, str]) -> Any:
    """Return the target and the route of a row in the form of JSON lines. A target without a route has no trees."""
    smiles = row.get("target") or row.get("smiles")
    target = {"smiles": smiles} if smiles else {}
    try:
        if cell := row.get("route"):
            return target | {"route": json.loads(cell) if cell.startswith('{"') else cell}
        if cell := row.get("reactions"):
            return target | {"route": from_reaction_line(cell).to_dict()}
    except (ValueError, RecursionError) as error:
        return ValueError(str(error))
    return target | {"trees": []}


def _content_of_line(line: str) -> Any:
    """Return the JSON value or the route of a line."""
    text = line.strip()
    if (not _JSON.match(text) and ">" in text) or DMS.match(text):
        return route_of_text(text)
    try:
        return _value_of(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        if _JSON.match(text):
            raise
        forms = "JSON, DirectMultiStep's text, reaction SMILES, or a table with a column `route` or `reactions`"
        raise ValueError(f"{error.msg}: {text[:80]!r} is none of {forms}") from None


def _value_of(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, or has a text that no file can have, such as half of a surrogate pair.
    """
    value = json.loads(text)
    if "\\u" in text or not text.isascii():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise ValueError(f"a text has {wrong!r}, half of a character or a byte that is not UTF-8") from None
    return value

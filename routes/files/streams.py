"""Reading route files of any form as a stream, and writing them atomically in a chosen form."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...common.whole_files import whole_file
from ..tree import Route
from .entries import read_entries
from .formats import to_reaction_tree, to_retrocast_target
from .reaction_lines import to_reaction_line

if TYPE_CHECKING:
    from ..stock import Stock


def read_routes(path: str | os.PathLike[str]) -> Iterator[Route]:
    """
    Read routes one by one. The file is opened at the first `next`, and is never in memory as a whole.

    The contents of the file decide its form, not its name. The same is true for gzip, but a file whose name ends in
    `.gz` must be gzipped.

    Args:
        path (`str` or `os.PathLike`):
            Either a file of lines or a file with one JSON document. Blank lines are skipped. Each other line is
            `{"route": {"smiles": ...}}` (with any further fields), `{"smiles": ...}`, a single reaction `{"product":
            ..., "reactants": [...]}`, any form below as JSON, DirectMultiStep's text, or the reactions of a route as
            in `routes.files.reaction_lines`. A document is a route, a list of routes, a list of lists of routes, or an
            object with the routes of each target by its name, as PaRoutes, AiZynthFinder, RetroCast, DirectMultiStep
            and Weft write them. A table with a header has a route in the column `route`, as JSON, or in the column
            `reactions`.

    Yields:
        [`Route`]: the routes in their order. A target for which the file has no route gives none.

    Raises:
        ValueError: an entry is not a route, or the file is damaged or not UTF-8. The message names the file, the line
            or index, and the place in the route.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    for entry in read_entries(path):
        try:
            routes = entry.routes()
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error
        yield from routes


def write_routes(
    path: str | os.PathLike[str], routes: Iterable[Route], form: str = "weft", *, stock: Stock | None = None
) -> int:
    """
    Write a file of routes atomically: readers see the old file or the complete new one.

    Args:
        path (`str` or `os.PathLike`):
            The file. It is gzipped if its name ends in `.gz`. Its folder must exist.
        routes (`Iterable[Route]`):
            The routes, which are consumed as a stream. Successive routes to the same molecule belong to one target.
        form (`str`, *optional*, defaults to `"weft"`):
            One of `FORMS`:

            - `"weft"`: `{"route": ...}` on each line.
            - `"dms"`: DirectMultiStep's text on each line.
            - `"reactions"`: the reactions of a route on each line, see `routes.files.reaction_lines`.
            - `"paroutes"`: a JSON list of trees of molecules and reactions.
            - `"aizynthfinder"`: a JSON list that has a list of such trees for each target.
            - `"retrocast"`: a task of RetroCast's second schema. Needs RDKit.
        stock ([`Stock`], *optional*):
            The stock that decides `in_stock` in trees of molecules and reactions. By default, starting materials are
            in stock.

    Returns:
        `int`: the number of routes written.

    Raises:
        ValueError: the form is unknown or cannot express a route. The message gives the index of the route.
        OSError: the file cannot be written. After any error, also one from `routes`, an existing file is unchanged.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    path = Path(path)
    counted = _Counted(routes)
    with whole_file(path) as temporary, create(temporary, path.suffix == ".gz") as file:
        for text in FORMS[form](counted, path.name.split(".")[0], stock):
            file.write(text)
    return counted.count


def create(path: Path, is_gzip: bool) -> IO[str]:
    """Open a file to write text to, gzipped or not."""
    opener: Callable[..., IO[str]] = gzip.open if is_gzip else open
    return opener(path, "wt", encoding="utf-8", newline="\n")


class _Counted:
    """Routes, and the number of them that were taken."""

    def __init__(self, routes: Iterable[Route]):
        self._routes, self.count = routes, 0

    def __iter__(self) -> Iterator[Route]:
        for route in self._routes:
            self.count += 1
            yield route

    def write(self, writer: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `writer` makes of the last route. An error names the route."""
        try:
            return writer(*arguments)
        except ValueError as error:
            raise ValueError(f"route {self.count - 1}: {error}") from error


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _weft(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    return (_json({"route": route.to_dict()}) + "\n" for route in routes)


def _dms(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    return (route.to_string() + "\n" for route in routes)


def _reactions(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    return (routes.write(to_reaction_line, route) + "\n" for route in routes)


def _paroutes(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    # PaRoutes has the name of the patent there; programs that read the form need some name
    trees = (to_reaction_tree(route, stock, metadata={"ID": f"weft;;{routes.count}"}) for route in routes)
    return _joined("[\n", map(_json, trees), "\n]\n")


def _aizynthfinder(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    targets = (
        _joined("[", (_json(to_reaction_tree(route, stock)) for route in group), "]")
        for _, group in itertools.groupby(routes, lambda route: route.smiles)
    )
    return _joined("[\n", targets, "\n]\n")


def _retrocast(routes: _Counted, name: str, stock: Stock | None) -> Iterator[str]:
    def targets() -> Iterator[str]:
        for number, (_, group) in enumerate(itertools.groupby(routes, lambda route: route.smiles), 1):
            target = f"target-{number}"
            yield f"{_json(target)}:{_json(routes.write(to_retrocast_target, target, list(group)))}"

    opening = f'{{"name":{_json(name)},"description":"","schema_version":"2","targets":{{\n'
    return _joined(opening, targets(), "\n}}\n")


def _joined(opening: str, items: Iterable[str | Iterator[str]], closing: str) -> Iterator[str]:
    yield opening
    for index, item in enumerate(items):
        yield (",\n" if opening.endswith("\n") else ",") if index else ""
        yield from [item] if isinstance(item, str) else item
    yield closing


# the name of each form, and the function that yields the text of a file
FORMS: dict[str, Callable[[_Counted, str, Any], Iterator[str]]] = {
    "weft": _weft,
    "dms": _dms,
    "paroutes": _paroutes,
    "aizynthfinder": _aizynthfinder,
    "retrocast": _retrocast,
    "reactions": _reactions,
}

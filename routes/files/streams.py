"""Route files, read whatever their form as a stream, and written atomically in the form that is asked for."""

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
    """Read routes one by one; the file is opened at the first `next`, and never held in memory whole.

    The form is told by what the file holds, not by its name; gzip too, which a name ending in `.gz` promises.

    Args:
        path: either lines, blank ones skipped: `{"route": {"smiles": ...}}`, where further fields are ignored, the bare
            `{"smiles": ...}`, a single reaction `{"product": ..., "reactants": [...]}` or any form below as JSON;
            DirectMultiStep's text; or the reactions of a route as `routes.reaction_lines` has them. Or one JSON document: a route, a list or a list of lists of routes, an object
            with the routes by their targets' names; of PaRoutes, AiZynthFinder, RetroCast, DirectMultiStep or Weft.

    Yields:
        The routes in their order; none for a target that the file has no route for.

    Raises:
        ValueError: something is no route, or the file is damaged or no UTF-8; the message names the file, the line or
            the index, and the place within a route.
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
    """Write a file of routes, atomically: readers see the old file or the whole new one.

    Args:
        path: the file to write, gzipped if the name ends in `.gz`; its folder must exist.
        routes: what to write; consumed as a stream.
        form: one of `FORMS`. `"weft"`: `{"route": ...}` a line; `"dms"`: DirectMultiStep's text a line; `"reactions"`: the
            reactions of a route a line, see `routes.reaction_lines`; `"paroutes"`: a JSON list of trees of molecules and
            reactions; `"aizynthfinder"`: a JSON list with a list of such trees for each target; `"retrocast"`: a task of
            RetroCast's second schema (needs RDKit). Successive routes of one molecule are those of one target.
        stock: what `in_stock` is told by in trees of molecules and reactions (default: starting materials are there).

    Returns:
        Number of routes written.

    Raises:
        ValueError: the form is unknown, or has no words for a route; the message names the route by its index.
        OSError: the file cannot be written. Whatever goes wrong, also in `routes`, an existing file stays as it was.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    path = Path(path)
    counted = _Counted(routes)
    with whole_file(path) as temporary, _create(temporary, path.suffix == ".gz") as file:
        for text in FORMS[form](counted, path.name.split(".")[0], stock):
            file.write(text)
    return counted.count


def _create(path: Path, is_gzip: bool) -> IO[str]:
    opener: Callable[..., IO[str]] = gzip.open if is_gzip else open
    return opener(path, "wt", encoding="utf-8", newline="\n")


class _Counted:
    """Routes, and how many of them were taken."""

    def __init__(self, routes: Iterable[Route]):
        self._routes, self.count = routes, 0

    def __iter__(self) -> Iterator[Route]:
        for route in self._routes:
            self.count += 1
            yield route

    def write(self, writer: Callable[..., Any], *arguments: Any) -> Any:
        """What `writer` makes of the last route, or an error that names it."""
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
    # PaRoutes names the patent there; its readers want some name
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


# name: what makes the text of a file
FORMS: dict[str, Callable[[_Counted, str, Any], Iterator[str]]] = {
    "weft": _weft,
    "dms": _dms,
    "paroutes": _paroutes,
    "aizynthfinder": _aizynthfinder,
    "retrocast": _retrocast,
    "reactions": _reactions,
}

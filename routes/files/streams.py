"""Files of routes as streams: the reader of all forms, and the writers of recorded routes and of plans."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...common.atomic import atomic_write
from ...common.words import counted
from ..plans import Plan
from ..tree import Route
from .entries import read_entries
from .exports import molecule_records, reaction_records
from .formats import to_reaction_tree, to_retrocast
from .reaction_lines import to_reaction_line

# A spreadsheet evaluates a cell that begins like this, unless it is a number. A leading quote makes it text
# (https://owasp.org/www-community/attacks/CSV_Injection). No SMILES of a molecule begins like this.
_FORMULA = re.compile(r"[=+\-@\t\r](?![\d.,]+$)")
CSV_COLUMNS = (
    "id", "target", "solved", "rank", "group", "score", "n_steps", "purchasable", "sold", "precedented",
    "fails_because", "missing", "reactions", "remarks", "route", "problem",
)  # fmt: skip
# The columns of a table with one line per target.
SUMMARY_COLUMNS = (
    "id", "target", "solved", "routes", "rank", "steps", "precedented_steps", "confidence", "seconds", "problem",
)  # fmt: skip


def read_routes(path: str | os.PathLike[str]) -> Iterator[Route]:
    """Read routes one by one. The file is opened at the first `next`. Lines, tables and JSON lists are never in memory
    as a whole.

    The contents of the file decide its form, not its name. The same is true for gzip, but a file whose name ends in
    `.gz` must be gzipped.

    Args:
        path: either a file of lines or a file with one JSON document. Blank lines are skipped. Each other line is
            `{"route": {"smiles": ...}}` (with any further fields), `{"smiles": ...}`, a single reaction `{"product":
            ..., "reactants": [...]}`, any form below as JSON, DirectMultiStep's text, or the reactions of a route as
            in `routes.files.reaction_lines`. A document is a route, a list of routes, a list of lists of routes, or an
            object with the routes of each target by its name, as PaRoutes, AiZynthFinder, RetroCast, DirectMultiStep
            and Weft write them. A table with a header has a route in the column `route`, as JSON, or in the column
            `reactions`.

    Yields:
        The routes in their order. A target for which the file has no route gives none.

    Raises:
        ValueError: an entry is not a route, or the file is damaged or not UTF-8. The message names the file, the line
            or index, and the place in the route.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    for entry in read_entries(path):
        try:
            yield from entry.routes()
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error


def read_canonical(file: str | Path) -> list[Route]:
    """Read the routes of a file, with the planner's canonical SMILES, because targets are compared as text.

    Routes without a reaction, and routes with a molecule that RDKit cannot read, are left out. A line on stderr counts
    them.

    Raises:
        ValueError: the file is not a file of routes.
        OSError: the file cannot be read.
    """
    from ..chemistry.molecules import canonical_route  # needs RDKit

    routes, reasons = [], []
    for number, route in enumerate(read_routes(file), 1):
        try:
            if not route.children:
                raise ValueError(f"{route.smiles} is a single molecule: there is no reaction.")
            routes.append(canonical_route(route))
            if smiles := routes[-1].repeated():
                raise ValueError(f"{routes.pop().smiles}: {smiles} is made from itself.")
        except ValueError as error:
            reasons.append(f"route {number}: {error}")
    if reasons:
        print(f"Left out: {counted(len(reasons), 'route')} of {file}. The first is {reasons[0]}", file=sys.stderr)
    return routes


def write_routes(path: str | os.PathLike[str], routes: Iterable[Route]) -> int:
    """Write a file of routes atomically, `{"route": ...}` on each line: readers see the old file or the complete new
    one.

    Args:
        path: the file. It is gzipped if its name ends in `.gz`. Its folder must exist.
        routes: the routes, which are consumed as a stream.

    Returns:
        The number of routes written.

    Raises:
        OSError: the file cannot be written. After any error, also one from `routes`, an existing file is unchanged.
    """
    return write_lines(Path(path), ({"route": route.to_dict()} for route in routes))


def write_lines(path: Path, rows: Iterable[Any]) -> int:
    """Write a row of JSON on each line, as [`write_routes`]. Return the number of rows."""
    count = 0
    with _opened(path) as file:
        for row in rows:
            file.write(_json(row) + "\n")
            count += 1
    return count


def write_plans(path: Path, plans: Iterable[Plan], form: str) -> list[str]:
    """Write a file of plans atomically.

    Args:
        path: the file. It is gzipped if its name ends in `.gz`.
        plans: the plans in output order. They are consumed as a stream.
        form: one of `PLAN_FORMS`:

            - `"json"`: a list of `Plan.to_dict`, with all candidates.
            - `"jsonl"`: the same, one per line.
            - `"aizynthfinder"`: AiZynthFinder's table of targets, each with its `trees`, which `pandas.read_json(...,
              orient="table")` reads. `in_stock` is false for molecules that the route makes.
            - `"retrocast"`: RetroCast's predictions, by the ids of the targets. Needs RDKit.
            - `"reactions"`: the reactions of one route per line (see `routes.files.reaction_lines`), followed by a tab
              and the target's id, rank and score.
            - `"csv"`: one route per line, with its reactions and, in the column `route`, the route as JSON. A target
              without a route has a line with its `problem`.
            - `"summary"`: a table with one target per line: `solved` (whether a route is purchasable), and facts about
              the first purchasable route, or else the first route. Its `confidence` is its score per step, as a
              probability.
            - `"sdf"`, `"rdf"`: the molecules and the reactions of all routes, as `exports` writes them. Needs RDKit.

            All but the first two contain only the distinct routes. The last three cannot be read back.

    Returns:
        A sentence for each route, molecule or reaction that was left out because the form cannot express it.

    Raises:
        ValueError: the form is unknown, or it is `"retrocast"` and RDKit cannot read a molecule.
        OSError: the file cannot be written.
    """
    if form not in PLAN_FORMS:
        raise ValueError(f"form must be one of {', '.join(PLAN_FORMS)}, got {form!r}")
    write, opening, between, closing = PLAN_FORMS[form]
    names, left_out = set[str](), list[str]()
    with _opened(path) as file:
        file.write(opening)
        for index, plan in enumerate(plans):
            texts = write(plan, _Place(index, names, left_out))
            file.write((between if index else "") + "".join(texts))
        file.write(closing)
    return left_out


def plan_form(path: Path) -> str | None:
    """Return the form of `PLAN_FORMS` for the ending of a file name, or None if no ending matches."""
    name = path.name.removesuffix(".gz")
    return next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)


class _Place(NamedTuple):
    """The row of a plan in a file. The names in it and the parts that were left out belong to the whole file."""

    row: int
    names: set[str]
    left_out: list[str]


class _Form(NamedTuple):
    """A writer yields the texts of a plan, and adds to `left_out` a sentence for each part that it cannot express."""

    write: Callable[[Plan, _Place], Iterable[str]]
    opening: str = ""
    between: str = ""
    closing: str = ""


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a file to write it atomically, gzipped if its name ends in `.gz`."""
    with atomic_write(path) as temporary, ExitStack() as stack:
        raw: Any = stack.enter_context(temporary.open("wb"))
        if path.suffix == ".gz":  # without the name and the time, so that the same routes give the same bytes
            raw = stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _reactions(plan: Plan, place: _Place) -> Iterator[str]:
    for candidate, route in plan.found:
        try:
            line = to_reaction_line(route)
        except ValueError as error:
            place.left_out.append(str(error))
        else:
            score = "" if candidate.finite_score is None else candidate.score
            rank = f"\t{candidate.rank}\t{score}" if candidate.rank else ""
            yield f"{line}\t{plan.id or plan.target}{rank}\n"


def _row_of_trees(plan: Plan, place: _Place) -> Iterator[str]:
    trees = []
    for candidate, route in plan.found:
        # AiZynthFinder requires `in_stock`, so it is false if no stock was given
        stock = set() if candidate.missing is None else {*route.leaves()}.difference(candidate.missing)
        about = {"scores": {"log_probability": candidate.finite_score}, "rank": candidate.rank}
        trees.append(to_reaction_tree(route, stock) | about)
    name = plan.id or plan.target
    row = (place.row, name, plan.target, plan.seconds, plan.solved is True, len(trees), trees)
    yield _json(dict(zip(_TABLE, row, strict=True)))


def _predictions(plan: Plan, place: _Place) -> Iterator[str]:
    routes = [
        {"rank": candidate.rank, "route": {"target": to_retrocast(route), "schema_version": "2"}}
        for candidate, route in plan.found
    ]
    key = name = plan.id or plan.target
    numbers = itertools.count(2)
    while key in place.names:
        key = f"{name}-{next(numbers)}"
    place.names.add(key)
    yield f"{_json(key)}:{_json(routes)}"


def _csv(plan: Plan, place: _Place) -> Iterator[str]:
    rows: list[dict[str, Any]] = []
    for candidate in plan.distinct:
        row = candidate.to_dict()
        # a route that reactions cannot express is still in the column `route`
        alone = replace(plan, candidates=[candidate])
        line = "".join(_reactions(alone, place._replace(left_out=[]))).partition("\t")[0]
        remarks = [f"step {step['step']}: {remark}" for step in row["reactions"] for remark in step["remarks"]]
        rows.append(row | {"reactions": line, "remarks": "; ".join(remarks), "route": _json(row["route"])})
    for row in rows or [{"problem": plan.nothing_because}]:
        row |= {"id": plan.id, "target": plan.target, "solved": plan.solved}
        yield _csv_line([_cell(row.get(name)) for name in CSV_COLUMNS])


def _summary(plan: Plan, place: _Place) -> Iterator[str]:
    row = plan.summary | {"problem": plan.nothing_because}
    row["seconds"] = None if plan.seconds is None else round(plan.seconds, 2)
    for best, route in sorted(plan.found, key=lambda item: not item[0].purchasable)[:1]:
        steps = route.num_reactions
        row |= {"rank": best.rank, "steps": steps, "precedented_steps": best.num_recorded}
        if steps and best.finite_score is not None:
            row["confidence"] = float(f"{math.exp(best.score / steps):.4g}")
    yield _csv_line([_cell(row.get(name)) for name in SUMMARY_COLUMNS])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = " ".join(value)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _csv_line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


# The columns of AiZynthFinder's table, with their types for pandas.
_TABLE = {
    "index": "integer", "id": "string", "target": "string", "search_time": "number", "is_solved": "boolean",
    "number_of_routes": "integer", "trees": "string",
}  # fmt: skip
_SCHEMA = {
    "fields": [{"name": name, "type": kind} for name, kind in _TABLE.items()],
    "primaryKey": ["index"],
    "pandas_version": "1.4.0",
}
# A document begins with a line that is not JSON by itself, unlike a file of JSON lines.
PLAN_FORMS = {
    "json": _Form(lambda plan, _: [json.dumps(plan.to_dict(), ensure_ascii=False, indent=2)], "[\n", ",\n", "\n]\n"),
    "jsonl": _Form(lambda plan, _: [_json(plan.to_dict()) + "\n"]),
    "aizynthfinder": _Form(_row_of_trees, f'{{\n"schema":{_json(_SCHEMA)},\n"data":[\n', ",\n", "\n]}\n"),
    "retrocast": _Form(_predictions, "{\n", ",\n", "\n}\n"),
    "reactions": _Form(_reactions),
    "csv": _Form(_csv, _csv_line(CSV_COLUMNS)),
    "summary": _Form(_summary, _csv_line(SUMMARY_COLUMNS)),
    "sdf": _Form(lambda plan, place: molecule_records(plan, place.left_out)),
    "rdf": _Form(lambda plan, place: reaction_records(plan, place.left_out), "$RDFILE 1\n$DATM\n"),
}
# The forms by file ending, the longest first.
ENDINGS = {
    ".summary.csv": "summary", ".aizynthfinder.json": "aizynthfinder", ".retrocast.json": "retrocast",
    ".reactions.txt": "reactions", **{f".{form}": form for form in ("csv", "json", "jsonl", "sdf", "rdf")},
}  # fmt: skip

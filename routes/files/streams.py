"""Files of routes as streams: the reader of all forms, and the writers of recorded routes and of plans.

A writer consumes targets, each with its routes, and yields the texts of a file, which are joined with a separator
(`_Form`). Recorded routes and plans differ only in how their targets are made.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...common.atomic import atomic_write
from ..plans import Plan
from ..tree import Route
from .entries import read_entries
from .formats import to_reaction_tree, to_retrocast
from .reaction_lines import to_reaction_line

# A spreadsheet evaluates a cell that begins like this, unless it is a number. A leading quote makes it text
# (https://owasp.org/www-community/attacks/CSV_Injection). No SMILES of a molecule begins like this.
_FORMULA = re.compile(r"[=+\-@\t\r](?![\d.,]+$)")
CSV_COLUMNS = (
    "id", "target", "solved", "rank", "group", "score", "n_steps", "purchasable", "precedented", "fails_because", "missing",
    "reactions", "remarks", "route", "problem",
)  # fmt: skip
# The columns of a table with one line per target.
SUMMARY_COLUMNS = (
    "id", "target", "solved", "routes", "rank", "steps", "precedented_steps", "confidence", "seconds", "problem",
)  # fmt: skip


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


def write_routes(path: str | os.PathLike[str], routes: Iterable[Route], form: str = "weft") -> int:
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
            - `"aizynthfinder"`: a JSON list that has a list of trees of molecules and reactions for each target, with all
              starting materials in stock.
            - `"retrocast"`: a task of RetroCast's second schema. Needs RDKit.

    Returns:
        `int`: the number of routes written.

    Raises:
        ValueError: the form is unknown or cannot express a route. The message gives the index of the route.
        OSError: the file cannot be written. After any error, also one from `routes`, an existing file is unchanged.
    """
    path = Path(path)
    left = itertools.count()

    def targets() -> Iterator[_Target]:
        groups = itertools.groupby(routes, lambda route: route.smiles)
        for number, (smiles, group) in enumerate(groups, 1):
            yield _Target(f"target-{number}", smiles, [_Ranked(route, next(left)) for route in group])

    _write(path, form, FORMS, targets(), None)
    return next(left)


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
    left_out: list[str] = []
    _write(path, form, PLAN_FORMS, map(_target_of, plans), left_out)
    return left_out


def plan_form(path: Path) -> str | None:
    """Return the form of `PLAN_FORMS` for the ending of a file name, or None if no ending matches."""
    name = path.name.removesuffix(".gz")
    return next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)


class _Ranked(NamedTuple):
    """A route with its number in the file (counted from 0), its purchasable molecules (None for all starting
    materials), and the rank and score from the search.
    """

    route: Route
    number: int
    stock: set[str] | None = None
    rank: int = 0
    score: float | None = None


class _Target(NamedTuple):
    """A target with its routes, best first, and the plan that contains them."""

    id: str
    smiles: str
    routes: list[_Ranked]
    plan: Plan = Plan("")


# A writer yields the texts of targets. If the form cannot express a part of a plan, the reason is added to the list, or
# raised without a list.
_Writer = Callable[[Iterable[_Target], list[str] | None], Iterator[str]]


class _Form(NamedTuple):
    writer: _Writer
    opening: str = ""
    between: str = ""
    closing: str = ""


def _write(
    path: Path, name: str, forms: dict[str, _Form], targets: Iterable[_Target], left_out: list[str] | None
) -> None:
    if name not in forms:
        raise ValueError(f"form must be one of {', '.join(forms)}, got {name!r}")
    form = forms[name]
    with atomic_write(path) as temporary, ExitStack() as opened:
        raw: Any = opened.enter_context(temporary.open("wb"))
        if path.suffix == ".gz":  # without the name and the time, so that the same routes give the same bytes
            raw = opened.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
        file = opened.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))
        # RetroCast's tasks have a name
        file.write(form.opening.replace("NAME", _json(path.name.split(".")[0])))
        for number, text in enumerate(form.writer(targets, left_out)):
            file.write((form.between if number else "") + text)
        file.write(form.closing)


def _target_of(plan: Plan) -> _Target:
    ranked = []
    for number, candidate in enumerate(plan.distinct):
        assert candidate.route is not None
        leaves = candidate.route.leaves()
        # AiZynthFinder requires `in_stock`, so it is false if no stock was given
        bought = set(leaves) - set(leaves if candidate.missing is None else candidate.missing)
        ranked.append(_Ranked(candidate.route, number, bought, candidate.rank, candidate.to_dict()["score"]))
    return _Target(plan.id or plan.target, plan.target, ranked, plan)


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _routes(targets: Iterable[_Target]) -> Iterator[_Ranked]:
    return (ranked for target in targets for ranked in target.routes)


def _weft(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    return (_json({"route": ranked.route.to_dict()}) + "\n" for ranked in _routes(targets))


def _dms(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    return (ranked.route.to_string() + "\n" for ranked in _routes(targets))


def _reactions(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    for target in targets:
        for ranked in target.routes:
            try:
                line = to_reaction_line(ranked.route)
            except ValueError as error:
                if left_out is None:
                    raise ValueError(f"route {ranked.number}: {error}") from error
                left_out.append(str(error))
                continue
            score = "" if ranked.score is None else ranked.score
            yield line + (f"\t{target.id}\t{ranked.rank}\t{score}\n" if ranked.rank else "\n")


def _trees(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    return (_json([to_reaction_tree(ranked.route, ranked.stock) for ranked in target.routes]) for target in targets)


def _table_of_trees(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    for index, (_, smiles, routes, plan) in enumerate(targets):
        trees = [
            to_reaction_tree(route, stock) | {"scores": {"log_probability": score}, "rank": rank}
            for route, _, stock, rank, score in routes
        ]
        row = (index, plan.id, smiles, plan.seconds, plan.solved is True, len(trees), trees)
        yield _json(dict(zip(_TABLE, row, strict=True)))


def _acceptable(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    for target in targets:
        routes = [_retrocast_route(ranked) for ranked in target.routes]
        inchikey = routes[0]["target"]["inchikey"]
        task = {"id": target.id, "smiles": target.smiles, "inchikey": inchikey, "acceptable_routes": routes}
        yield f"{_json(target.id)}:{_json(task)}"


def _retrocast_route(ranked: _Ranked) -> dict[str, Any]:
    try:
        return {"target": to_retrocast(ranked.route), "schema_version": "2"}
    except ValueError as error:
        raise ValueError(f"route {ranked.number}: {error}") from error


def _predictions(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    taken: set[str] = set()
    for target in targets:
        name, number = target.id, 1
        while name in taken:  # keys must be unique
            number += 1
            name = f"{target.id}-{number}"
        taken.add(name)
        routes = [{"rank": ranked.rank, "route": _retrocast_route(ranked)} for ranked in target.routes]
        yield f"{_json(name)}:{_json(routes)}"


def _plans(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    return (json.dumps(target.plan.to_dict(), ensure_ascii=False, indent=2) for target in targets)


def _plan_lines(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    return (_json(target.plan.to_dict()) + "\n" for target in targets)


def _csv(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    for target in targets:
        plan = target.plan
        rows: list[dict[str, Any]] = [candidate.to_dict() for candidate in plan.distinct]
        for ranked, row in zip(target.routes, rows, strict=True):
            # a route that reactions cannot express is still in the column `route`
            line = "".join(_reactions([target._replace(routes=[ranked])], [])).partition("\t")[0]
            remarks = [f"step {step['step']}: {remark}" for step in row["reactions"] for remark in step["remarks"]]
            row |= {"reactions": line, "remarks": "; ".join(remarks), "route": _json(row["route"])}
        for row in rows or [{"problem": plan.nothing_because}]:
            row |= {"id": plan.id, "target": plan.target, "solved": plan.solved}
            yield _csv_line([_cell(row.get(name)) for name in CSV_COLUMNS])


def _summary(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
    for _, _, _, plan in targets:
        row = plan.summary | {"problem": plan.nothing_because}
        row["seconds"] = None if plan.seconds is None else round(plan.seconds, 2)
        for best in sorted(plan.distinct, key=lambda candidate: not candidate.purchasable)[:1]:
            assert best.route is not None
            steps = best.route.num_reactions
            row |= {"rank": best.rank, "steps": steps, "precedented_steps": best.precedented_steps}
            if steps and math.isfinite(best.score):
                row["confidence"] = float(f"{math.exp(best.score / steps):.4g}")
        yield _csv_line([_cell(row.get(name)) for name in SUMMARY_COLUMNS])


def _records(kind: str) -> _Writer:
    def write(targets: Iterable[_Target], left_out: list[str] | None) -> Iterator[str]:
        from . import exports  # needs RDKit

        for target in targets:
            plan = replace(target.plan, id=target.id)
            yield from getattr(exports, kind)(plan, [] if left_out is None else left_out)

    return write


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
_LIST = ("[\n", ",\n", "\n]\n")
FORMS = {
    "weft": _Form(_weft),
    "dms": _Form(_dms),
    "aizynthfinder": _Form(_trees, *_LIST),
    "retrocast": _Form(
        _acceptable, '{"name":NAME,"description":"","schema_version":"2","targets":{\n', ",\n", "\n}}\n"
    ),
    "reactions": _Form(_reactions),
}
PLAN_FORMS = {
    "json": _Form(_plans, *_LIST),
    "jsonl": _Form(_plan_lines),
    "aizynthfinder": _Form(_table_of_trees, f'{{\n"schema":{_json(_SCHEMA)},\n"data":[\n', ",\n", "\n]}\n"),
    "retrocast": _Form(_predictions, "{\n", ",\n", "\n}\n"),
    "reactions": _Form(_reactions),
    "csv": _Form(_csv, _csv_line(CSV_COLUMNS)),
    "summary": _Form(_summary, _csv_line(SUMMARY_COLUMNS)),
    "sdf": _Form(_records("molecule_records")),
    "rdf": _Form(_records("reaction_records"), "$RDFILE 1\n$DATM\n"),
}
# The forms by file ending, the longest first.
ENDINGS = {".summary.csv": "summary", **{f".{form}": form for form in ("csv", "json", "jsonl", "sdf", "rdf")}}

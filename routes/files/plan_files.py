"""Files of plans: the JSON lines that grow while targets are planned, and the forms that finished plans are written in.

A line is `Plan.to_dict` with the number of the target in its file, its SMILES as it was given, and the settings of the run: what
another run needs to go on behind it. All forms are read again by [`read_routes`] and `read_predictions`; [`read_plans`] reads whole plans.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from ...common.whole_files import open_lines, whole_file, whole_lines
from ..plans import Candidate, Plan
from .entries import BROKEN_GZIP
from .formats import to_reaction_tree, to_retrocast
from .reaction_lines import to_reaction_line
from .streams import create
from .targets import Target

CSV_COLUMNS = (
    "id", "target", "rank", "group", "score", "n_steps", "purchasable", "possible", "missing", "impossible_because",
    "joined_at", "reactions", "route", "problem",
)  # fmt: skip

# How such a file begins, with fields in any order: a list of plans, plans one a line, or the server's `{"plans": [...]}`. The
# lines of a `PlanLog` have the settings of the run in front.
_HEAD = 1 << 16
_TEXT = r'"(?:[^"\\]|\\.)*"'
_WITHIN = rf'(?:{_TEXT}|[^"{{}}])*'
_FIELDS = rf'(?:"settings"\s*:\s*\{{{_WITHIN}\}}|{_TEXT}|[^"{{}}])*?'
_BEGINNING = re.compile(rf'\s*(?:\{{\s*"plans"\s*:\s*)?\[?\s*\{{{_FIELDS}"candidates"\s*:\s*\[')


class PlanLog:
    """The file that a run of plans adds a line to whenever a target is done.

    Args:
        path: the file.
        settings: of the run, by the names that a user knows them by. Values have to be JSON.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path, self.settings = path, dict(settings)

    def done(self, targets: Sequence[Target]) -> dict[int, Plan]:
        """The plans of the targets that an earlier run has finished, by their index. A line that was cut is taken off.

        Raises:
            ValueError: the file holds something else, or was begun with other settings or for other targets.
        """
        found: dict[int, Plan] = {}
        whole_lines(self.path)
        for line, row in _rows(self.path):
            try:
                index, given, settings, plan = row["number"] - 1, row["given"], row["settings"], Plan.from_dict(row)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"{self.path}, line {line}: this is no line of an unfinished run of plans."
                ) from error
            self._check_settings(settings)
            if not 0 <= index < len(targets) or (targets[index].id, targets[index].smiles) != (plan.id, given):
                here = f"it is {targets[index].smiles}" if 0 <= index < len(targets) else "there is none"
                raise ValueError(
                    f"{self.path}, line {line}: target {index + 1} is {given} (id {plan.id}), and in this run {here}: the file is of "
                    "other targets. --overwrite begins it again."
                )
            found[index] = plan
        return found

    def _check_settings(self, before: Any) -> None:
        if before == self.settings:
            return
        for name in dict.fromkeys([*before, *self.settings]):
            was, now = before.get(name), self.settings.get(name)
            if was != now:
                told = [f"--{name} {_in_words(value)}" if value else f"no --{name}" for value in (was, now)]
                raise ValueError(
                    f"{self.path} was begun with {told[0]}, and this run has {told[1]}: give the same settings, or --overwrite to "
                    "begin it again."
                )

    def open(self, *, append: bool) -> Any:
        """Open the file to add lines, at its end or from the beginning."""
        return open_lines(self.path, append=append)

    def line(self, index: int, target: Target, plan: Plan) -> str:
        """The line of a plan."""
        row = {"number": index + 1, "id": target.id, "given": target.smiles, "settings": self.settings}
        return json.dumps(row | plan.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n"

    def plans(self) -> Iterator[Plan]:
        """The plans of the file in the order of their targets. One is in memory at a time."""
        places = {}
        with self.path.open("rb") as file:
            place = file.tell()
            while line := file.readline():
                places[json.loads(line)["number"]] = place
                place = file.tell()
            for number in sorted(places):
                file.seek(places[number])
                yield Plan.from_dict(json.loads(file.readline()))


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_plans(path: Path, plans: Iterable[Plan], form: str) -> list[str]:
    """Write a file of plans atomically.

    Args:
        path: the file. It is gzipped if its name ends in `.gz`.
        plans: in the order in which they are written. They are consumed as a stream.
        form: one of `PLAN_FORMS`:

            - `"json"`: a list of `Plan.to_dict`, with all candidates.
            - `"jsonl"`: the same, one a line.
            - `"aizynthfinder"`: AiZynthFinder's table of targets, each with its `trees`, which `pandas.read_json(...,
              orient="table")` reads. Of molecules on the way `in_stock` is false.
            - `"retrocast"`: RetroCast's predictions, by the ids of the targets. Needs RDKit.
            - `"reactions"`: the reactions of a route a line (see `routes.files.reaction_lines`), and behind a tab the target's
              id, rank and score.
            - `"csv"`: a route a line, with its reactions and, in the column `route`, the route as JSON. A target without a
              route has a line with its `problem`.

            All but the first two have the distinct routes alone.

    Returns:
        Why routes were left out that the form cannot express, a sentence each.

    Raises:
        ValueError: the form is unknown. OSError: the file cannot be written.
    """
    if form not in PLAN_FORMS:
        raise ValueError(f"form must be one of {', '.join(PLAN_FORMS)}, got {form!r}")
    left_out: list[str] = []
    with whole_file(path) as temporary, create(temporary, path.name.endswith(".gz")) as file:
        for text in PLAN_FORMS[form](plans, left_out):
            file.write(text)
    return left_out


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _listed(opening: str, items: Iterable[str], closing: str) -> Iterator[str]:
    yield opening
    for index, item in enumerate(items):
        yield (",\n" if index else "") + item
    yield closing


def _json(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    return _listed("[\n", (json.dumps(plan.to_dict(), ensure_ascii=False, indent=2) for plan in plans), "\n]\n")


def _json_lines(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    return (_compact(plan.to_dict()) + "\n" for plan in plans)


def _aizynthfinder(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    # pandas reads a table by its schema
    types = {
        "index": "integer", "id": "string", "target": "string", "search_time": "number", "is_solved": "boolean",
        "number_of_routes": "integer", "trees": "string",
    }  # fmt: skip
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    schema = {"fields": fields, "primaryKey": ["index"], "pandas_version": "1.4.0"}
    rows = (_compact(_aizynthfinder_row(index, plan)) for index, plan in enumerate(plans))
    # a first line that is no object by itself: lines of objects are another form
    return _listed(f'{{\n"schema":{_compact(schema)},\n"data":[\n', rows, "\n]}\n")


def _aizynthfinder_row(index: int, plan: Plan) -> dict[str, Any]:
    trees = []
    for candidate in plan.distinct:
        assert candidate.route is not None
        bought = None if candidate.missing is None else set(candidate.route.leaves()) - set(candidate.missing)
        tree = to_reaction_tree(candidate.route, cast(Any, bought))
        trees.append(tree | {"scores": {"log_probability": candidate.to_dict()["score"]}, "rank": candidate.rank})
    return {
        "index": index, "id": plan.id, "target": plan.target, "search_time": plan.seconds,
        "is_solved": any(candidate.purchasable is True for candidate in plan.distinct),
        "number_of_routes": len(trees), "trees": trees,
    }  # fmt: skip


def _retrocast(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    taken: set[str] = set()

    def targets() -> Iterator[str]:
        for plan in plans:
            name = first = plan.id or plan.target
            number = 1
            while name in taken:  # a key stands once
                number += 1
                name = f"{first}-{number}"
            taken.add(name)
            routes = [
                {"rank": candidate.rank, "route": {"target": to_retrocast(candidate.route), "schema_version": "2"}}
                for candidate in plan.distinct
                if candidate.route is not None
            ]
            yield f"{_compact(name)}:{_compact(routes)}"

    return _listed("{\n", targets(), "\n}\n")


def _reactions(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    for plan in plans:
        for candidate in plan.distinct:
            line = _as_reactions(candidate, left_out)
            if line:
                score = candidate.to_dict()["score"]
                yield f"{line}\t{plan.id or plan.target}\t{candidate.rank}\t{'' if score is None else score}\n"


def _as_reactions(candidate: Candidate, left_out: list[str]) -> str:
    assert candidate.route is not None
    try:
        return to_reaction_line(candidate.route)
    except ValueError as error:
        left_out.append(str(error))
        return ""


def _csv(plans: Iterable[Plan], left_out: list[str]) -> Iterator[str]:
    yield _csv_line(CSV_COLUMNS)
    for plan in plans:
        routes = plan.distinct
        for candidate in routes:
            assert candidate.route is not None
            row = candidate.to_dict() | {"id": plan.id, "target": plan.target}
            # what reactions cannot express is in the next column all the same
            row |= {"reactions": _as_reactions(candidate, []), "route": _compact(row["route"])}
            yield _csv_line([_cell(row[name]) for name in CSV_COLUMNS])
        if not routes:
            row = {"id": plan.id, "target": plan.target, "problem": plan.nothing_because}
            yield _csv_line([_cell(row.get(name)) for name in CSV_COLUMNS])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, list) else value


def _csv_line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


# the name of each form, and the function that yields the text of a file
PLAN_FORMS: dict[str, Callable[[Iterable[Plan], list[str]], Iterator[str]]] = {
    "json": _json,
    "jsonl": _json_lines,
    "aizynthfinder": _aizynthfinder,
    "retrocast": _retrocast,
    "reactions": _reactions,
    "csv": _csv,
}


def read_plans(path: Path) -> list[Plan] | None:
    """
    Read the plans of a file, with their scores, what their routes lack and why others are no routes.

    Args:
        path (`Path`):
            A JSON list of what `Plan.to_dict` gives, the same as one object a line, or an object with such a list as
            `plans`, as the server answers. It can be gzipped.

    Returns:
        `list[Plan]` or None: the plans, or None for a file of another kind, of which only the beginning is read.

    Raises:
        ValueError: the file is damaged, or a plan lacks something. The message names the file and the place.
        OSError: the file cannot be read.
    """
    try:
        with _opened(path) as file:
            head = file.read(_HEAD)
            if not _BEGINNING.match(head):
                return None
            found = _parsed(head + file.read())
    except (*BROKEN_GZIP, UnicodeDecodeError):
        return None  # those who read routes say what is wrong
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if any(not isinstance(data, dict) or not isinstance(data.get("target"), str) for data in found):
        return None
    plans = []
    for number, data in enumerate(found, 1):
        try:
            plans.append(Plan.from_dict(data))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}, plan {number}: not a plan of `weftformer plan --json`: {reason}") from error
    return plans


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if is_gzip else path.open(encoding="utf-8")


def _parsed(text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        # not `splitlines`: an id may have other ends of a line, which JSON leaves as they are
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    if isinstance(data, dict):
        data = data.get("plans", data)
    return data if isinstance(data, list) else [data]

"""Files of plans: the JSON lines that grow while targets are planned, and the reader of finished plans.

`streams` writes finished plans. A line is `Plan.to_dict` with the number of the target in its file, its SMILES as
given, and the settings of the run, so that another run can continue after it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...common.atomic import complete_lines, open_lines
from ..plans import Candidate, Plan
from ..tree import Route
from .entries import read_entries
from .targets import Target


class PlanLog:
    """The file to which a run adds a line for each target that is done.

    Args:
        path: the file.
        settings: the settings of the run by option name. Values must be JSON.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path, self.settings = path, dict(settings)

    def done(self, targets: Sequence[Target]) -> dict[int, Plan]:
        """Return the plans of the targets that an earlier run finished, by index. An incomplete last line is removed.

        Raises:
            ValueError: the file is of another kind, or was begun with other settings or for other targets.
        """
        found: dict[int, Plan] = {}
        if not complete_lines(self.path):
            return found
        try:
            rows = [(row["number"] - 1, row["given"], row["settings"], plan) for plan, row in read_plans(self.path)]
        except (KeyError, TypeError, ValueError) as error:
            told = f": {error}" if isinstance(error, ValueError) else "."
            raise ValueError(f"{self.path} is not a file of an unfinished run{told}") from error
        for line, (index, given, settings, plan) in enumerate(rows, 1):
            check_settings(self.path, settings, self.settings, "--overwrite to start again")
            if not 0 <= index < len(targets) or (targets[index].id, targets[index].smiles) != (plan.id, given):
                here = f"it is {targets[index].smiles}" if 0 <= index < len(targets) else "it does not exist"
                raise ValueError(
                    f"{self.path}, line {line}: target {index + 1} is {given} (id {plan.id}), but in this run {here}: the file is for "
                    "other targets. Use --overwrite to start again."
                )
            found[index] = plan
        return found

    def open(self, *, append: bool) -> Any:
        """Open the file to add lines, at its end or from the beginning."""
        return open_lines(self.path, append=append)

    def line(self, index: int, target: Target, plan: Plan) -> str:
        """Return the line of a plan."""
        return plan_line(index, target, plan, self.settings)

    def plans(self) -> Iterator[Plan]:
        """Yield the plans of the file in the order of their targets. Only one is in memory at a time."""
        places = {}
        with self.path.open("rb") as file:
            place = file.tell()
            while line := file.readline():
                places[json.loads(line)["number"]] = place
                place = file.tell()
            for number in sorted(places):
                file.seek(places[number])
                yield Plan.from_dict(json.loads(file.readline()))


def plan_line(index: int, target: Target, plan: Plan, settings: Mapping[str, Any], state: str | None = None) -> str:
    """Return the line of a plan in a file that grows.

    Args:
        index: the index of the target, counted from 0.
        target, plan, settings: the content of the line.
        state: the state of the target (default: `plan.state`).
    """
    row = {"number": index + 1, "state": state or plan.state, "id": target.id, "given": target.smiles}
    row |= {"settings": dict(settings)} | plan.to_dict()
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def check_settings(place: Any, before: Mapping[str, Any], now: Mapping[str, Any], remedy: str) -> None:
    """Refuse to continue a run that was started with other settings.

    Raises:
        ValueError: a setting differs. The message names `place`, the setting and the remedy.
    """
    for name in dict.fromkeys([*before, *now]):
        values = before.get(name), now.get(name)
        if values[0] != values[1]:
            told = [f"--{name} {_in_words(value)}" if value else f"no --{name}" for value in values]
            raise ValueError(
                f"{place} was started with {told[0]}, but this run has {told[1]}: use the same settings, or {remedy}."
            )


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def read_plans(path: Path, most: int | None = None) -> list[tuple[Plan, dict[str, Any]]]:
    """
    Read the plans of a file: those of `weftformer routes plan`, or routes of any program for targets.

    Args:
        path (`Path`):
            A JSON list of `Plan.to_dict` results, the same objects one per line, or an object with such a list in
            `plans`, as in the server's answers. Other files contain routes in any form that `read_routes` reads. The
            file may be gzipped.
        most (`int`, *optional*):
            The largest number of routes to read from other forms.

    Returns:
        `list[tuple[Plan, dict[str, Any]]]`: the plans, each with the object that it was read from. Routes of other
        forms are grouped by canonical target. They become candidates without a score, ranked in the order of the file,
        and the object is empty. A target without a route is included if the file has its SMILES in `target` or
        `smiles`. The stock data (`in_stock`) and the names of targets or routes (`name`, `id`) are kept.

    Raises:
        ValueError: the file is damaged, a plan is incomplete, or an entry is not a route. The message names the file
            and the place.
        OSError: the file cannot be read.
    """
    rows: list[tuple[Plan, dict[str, Any]]] = []
    for number, data in enumerate(_objects(path), 1):
        if not rows and not _is_plan(data):
            return [(plan, {}) for plan in _plans_of_routes(path, most)]
        try:
            rows.append((Plan.from_dict(data), data))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            reason = f"missing field {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}, plan {number}: not a plan of `routes plan --json`: {reason}") from error
    return rows


def _plans_of_routes(path: Path, most: int | None) -> list[Plan]:
    from ..molecules import canonical_or_given  # needs RDKit

    plans: dict[str, Plan] = {}
    names: dict[str, dict[str, None]] = {}
    count = 0
    for target, route, content, in_stock in _targets_and_routes(path):
        target = canonical_or_given(target)
        found = plans.setdefault(target, Plan(target)).candidates
        names.setdefault(target, {}).update(dict.fromkeys(_texts(content, "name", "id")))
        if route is not None:
            known = [in_stock.get(leaf) for leaf in route.leaves()]
            missing = tuple(dict.fromkeys(leaf for leaf in route.leaves() if not in_stock.get(leaf)))
            found.append(Candidate(
                route.to_string(), math.nan, None, route, missing=None if None in known else missing, rank=len(found) + 1
            ))  # fmt: skip
            count += 1
            if count == most:
                break
    return [replace(plan, id=", ".join(names[target]) or None) for target, plan in plans.items()]


def _targets_and_routes(path: Path) -> Iterator[tuple[str, Route | None, Any, dict[str, bool]]]:
    """Yield the targets and routes of a file's entries, each with the content of the entry and its stock data."""
    for entry in read_entries(path):
        try:
            routes = entry.routes()
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from error
        content = entry.content
        if isinstance(content, str) and content.lstrip().startswith('{"'):
            content = json.loads(content)  # it cannot fail, because `routes` has parsed it
        in_stock = dict(_leaves_in_stock(content))
        yield from ((smiles, None, content, in_stock) for smiles in _texts(content, "target", "smiles"))
        yield from ((route.smiles, route, content, in_stock) for route in routes)


def _texts(content: Any, *names: str) -> Iterator[str]:
    """Yield the texts in the fields of these names, if the content is an object."""
    if isinstance(content, dict):
        yield from (content[name] for name in names if isinstance(content.get(name), str))


def _leaves_in_stock(content: Any) -> Iterator[tuple[str, bool]]:
    """Yield the starting materials of trees as AiZynthFinder writes them, each with its `in_stock`."""
    if isinstance(content, dict) and isinstance(content.get("in_stock"), bool) and not content.get("children"):
        yield str(content.get("smiles")), content["in_stock"]
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for part in parts:
        yield from _leaves_in_stock(part)


def _is_plan(data: Any) -> bool:
    """Return whether an object is a target with candidates. The candidates of other programs have no `text`."""
    candidates = data.get("candidates") if isinstance(data, dict) and isinstance(data.get("target"), str) else None
    return candidates == [] or (
        isinstance(candidates, list) and any(isinstance(one, dict) and "text" in one for one in candidates)
    )


def _objects(path: Path) -> Iterator[Any]:
    """Yield the objects of a file, including those of a list `plans`, and None for text that is not JSON."""
    for entry in read_entries(path):
        content = entry.content
        if isinstance(content, ValueError):
            raise ValueError(f"{path}, {entry.place}: {content}") from content
        if entry.is_line:
            try:
                content = json.loads(content)
            except (ValueError, RecursionError):
                content = None
        if isinstance(content, dict) and isinstance(content.get("plans"), list):
            yield from content["plans"]
        else:
            yield content

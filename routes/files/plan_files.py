"""The reader of files of plans, and of routes of any program as plans."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..plans import Candidate, Plan
from ..tree import Route
from .entries import read_entries


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
        isinstance(candidates, list)
        and any(isinstance(candidate, dict) and "text" in candidate for candidate in candidates)
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

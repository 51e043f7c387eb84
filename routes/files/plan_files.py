"""The reader of files of plans, and of routes of any program as plans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from ..plans import Candidate, Plan
from ..tree import Route
from .entries import read_entries
from .formats import NoRoute, Part


def read_plans(path: Path, most: int | None = None) -> list[tuple[Plan, dict[str, Any]]]:
    """Read the plans of a file: those of `weftformer routes plan`, or routes of any program for targets.

    Args:
        path: a JSON list of `Plan.to_dict` results, the same objects one per line, or an object with such a list in
            `plans`, as in the server's answers. Other files contain routes in any form that `read_routes` reads. The
            file may be gzipped.
        most: the number of targets after which the reading of other forms ends.

    Returns:
        The plans, each with the object that it was read from. Routes of other forms are grouped by canonical target.
        They become candidates without a score, ranked in the order of the file, and the object is empty. A target
        without a route is included if the file has its SMILES in `target` or `smiles`. The stock data (`in_stock`) and
        the names of targets or routes (`name`, `id`) are kept.

    Raises:
        ValueError: the file is damaged, a plan is incomplete, or an entry is not a route. The message names the file
            and the place.
        OSError: the file cannot be read.
    """
    rows: list[tuple[Plan, dict[str, Any]]] = []
    without_plan: dict[str, tuple[list[Candidate], dict[str, None]]] = {}
    for entry in read_entries(path):
        data = entry.parsed
        objects = data["plans"] if isinstance(data, dict) and isinstance(data.get("plans"), list) else [data]
        for content in objects if rows or any(map(_is_plan, objects[:1])) else ():
            try:
                rows.append((Plan.from_dict(content), content))
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                reason = f"missing field {error}" if isinstance(error, KeyError) else error
                raise ValueError(f"{path}, plan {len(rows) + 1}: not one of `routes plan --json`: {reason}") from error
        if not rows and objects:
            try:
                _add_parts(entry.parts(), without_plan)
            except ValueError as error:
                raise ValueError(f"{path}, {error}") from error
            if most is not None and len(without_plan) > most:
                break
    others = without_plan.items()
    return rows or [(Plan(smiles, candidates, id=", ".join(ids) or None), {}) for smiles, (candidates, ids) in others]


def _add_parts(parts: Sequence[Part], without_plan: dict[str, tuple[list[Candidate], dict[str, None]]]) -> None:
    """Add the parts of an entry to the candidates and names of their targets.

    A candidate that is not a route keeps its place among those for its target: the target that its file names, that of
    another candidate in its list, or else the molecule that the candidate itself would make.

    Raises:
        ValueError: the target of an error is unknown.
    """
    from ..chemistry.molecules import canonical_or_given  # needs RDKit

    targets = {part.group: part.route.smiles for part in reversed(parts) if isinstance(part.route, Route)}
    targets.pop(None, None)
    for part in parts:
        route = part.route
        smiles = (
            route.smiles if isinstance(route, Route) else part.target or targets.get(part.group) or _root(part.data)
        )
        if smiles is None:
            if isinstance(route, NoRoute):
                continue
            raise cast(ValueError, route)
        candidates, names = without_plan.setdefault(canonical_or_given(smiles), ([], {}))
        names.update(dict.fromkeys(part.names))
        if isinstance(route, Route):
            in_stock, leaves = dict(_leaves_in_stock(part.data)), dict.fromkeys(route.leaves())
            is_known = all(leaf in in_stock for leaf in leaves)
            missing = tuple(leaf for leaf in leaves if not in_stock.get(leaf)) if is_known else None
            rank = len(candidates) + 1
            candidates.append(Candidate(route.to_string(), math.nan, None, route, missing=missing, rank=rank))
        elif route is not None:
            candidates.append(Candidate("", math.nan, None, problem=str(route)))


def _root(data: Any) -> str | None:
    """Return the molecule that a candidate would make, given its content."""
    while isinstance(data, dict) and not isinstance(data.get("smiles"), str):
        data = next((data[name] for name in ("route", "target") if name in data), None)
    return data["smiles"] if isinstance(data, dict) else None


def _leaves_in_stock(content: Any) -> Iterator[tuple[str, bool]]:
    """Yield the starting materials of trees as AiZynthFinder writes them, each with its `in_stock`."""
    waiting = [content]  # not recursive, because other fields may be nested deeply
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and isinstance(part.get("in_stock"), bool) and not part.get("children"):
            yield str(part.get("smiles")), part["in_stock"]
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _is_plan(data: Any) -> bool:
    """Return whether an object is a target with candidates. The candidates of other programs have no `text`."""
    candidates = data.get("candidates") if isinstance(data, dict) and isinstance(data.get("target"), str) else None
    if not isinstance(candidates, list):
        return False
    return not candidates or any(isinstance(candidate, dict) and "text" in candidate for candidate in candidates)

"""The reader of files of plans, and of routes of any program as plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
    others = _RoutesByTarget()
    for entry in read_entries(path):
        data = entry.parsed
        objects = data["plans"] if isinstance(data, dict) and isinstance(data.get("plans"), list) else [data]
        for content in objects if rows or any(map(_is_plan, objects[:1])) else ():
            try:
                rows.append((Plan.from_dict(content), content))
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                reason = f"missing field {error}" if isinstance(error, KeyError) else str(error)
                place = f"{path}, plan {len(rows) + 1}"
                raise ValueError(f"{place}: not a plan of `routes plan --json`: {reason}") from error
        if not rows and objects:
            try:
                others.add(data, entry.routes())
            except ValueError as error:
                raise ValueError(f"{path}, {error}") from error
            if most is not None and others.num_routes >= most:
                break
    return rows or [(plan, {}) for plan in others.plans()]


class _RoutesByTarget:
    """Routes of other programs, with the names of their targets."""

    def __init__(self) -> None:
        self.candidates: dict[str, list[Candidate]] = {}
        self.names: dict[str, dict[str, None]] = {}
        self.num_routes = 0

    def add(self, content: Any, routes: Iterable[Route]) -> None:
        """Add the targets and routes of an entry, given its content."""
        from ..molecules import canonical_or_given  # needs RDKit

        in_stock = dict(_leaves_in_stock(content))
        routes = list(routes)
        for smiles in (*_texts(content, "target", "smiles"), *(route.smiles for route in routes)):
            target = canonical_or_given(smiles)
            self.candidates.setdefault(target, [])
            self.names.setdefault(target, {}).update(dict.fromkeys(_texts(content, "name", "id")))
        for route in routes:
            candidates, leaves = self.candidates[canonical_or_given(route.smiles)], dict.fromkeys(route.leaves())
            is_known = all(leaf in in_stock for leaf in leaves)
            missing = tuple(leaf for leaf in leaves if not in_stock.get(leaf)) if is_known else None
            text, rank = route.to_string(), len(candidates) + 1
            candidates.append(Candidate(text, math.nan, None, route, missing=missing, rank=rank))
            self.num_routes += 1

    def plans(self) -> list[Plan]:
        return [
            Plan(smiles, found, id=", ".join(self.names[smiles]) or None) for smiles, found in self.candidates.items()
        ]


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

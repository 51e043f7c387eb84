"""The reader of files of plans, and of routes of any program as plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..plans import Candidate, Plan
from ..tree import Route
from .entries import read_entries
from .formats import NoRoute


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
                others.add(data, entry.candidates(), entry.group)
            except ValueError as error:
                raise ValueError(f"{path}, {error}") from error
            if most is not None and others.num_routes >= most:
                break
    try:
        return rows or [(plan, {}) for plan in others.plans()]
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error


class _RoutesByTarget:
    """Routes of other programs, with the names of their targets."""

    def __init__(self) -> None:
        self.candidates: dict[str, list[Candidate]] = {}
        self.names: dict[str, dict[str, None]] = {}
        self.num_routes = 0
        # by the list that candidates are in: its target, and the errors of candidates before the target is known
        self.targets: dict[str, str] = {}
        self.waiting: dict[str, list[ValueError]] = {}

    def add(self, content: Any, candidates: Iterable[Route | ValueError], group: str = "") -> None:
        """Add the targets and candidates of an entry.

        A candidate that is not a route keeps its place among those to its target: the target that the entry names, that
        of another candidate in the entry or in its list, or else the molecule that the candidate itself would make.

        Args:
            content: the content of the entry.
            candidates: its candidates.
            group: the place of the list that the entry is in, if it has candidates for one target.

        Raises:
            ValueError: the target of an error is unknown.
        """
        from ..molecules import canonical_or_given  # needs RDKit

        in_stock, candidates = dict(_leaves_in_stock(content)), list(candidates)
        made = [candidate.smiles for candidate in candidates if isinstance(candidate, Route)]
        for smiles in (*_texts(content, "target", "smiles"), *made):
            target = canonical_or_given(smiles)
            self.candidates.setdefault(target, [])
            self.names.setdefault(target, {}).update(dict.fromkeys(_texts(content, "name", "id")))
        named = [*_texts(content, "target"), *filter(None, [self.targets.get(group)]), *made]
        last = canonical_or_given(named[0]) if named else None if group else _root(content)
        if group and last is not None:
            self.targets.setdefault(group, last)
            for error in self.waiting.pop(group, ()):
                self._fail(last, error)
        for candidate in candidates:
            if isinstance(candidate, Route):
                last = canonical_or_given(candidate.smiles)
                leaves = dict.fromkeys(candidate.leaves())
                is_known = all(leaf in in_stock for leaf in leaves)
                missing = tuple(leaf for leaf in leaves if not in_stock.get(leaf)) if is_known else None
                found, text = self.candidates[last], candidate.to_string()
                found.append(Candidate(text, math.nan, None, candidate, missing=missing, rank=len(found) + 1))
                self.num_routes += 1
            elif last is not None:
                self._fail(last, candidate)
            elif group:
                self.waiting.setdefault(group, []).append(candidate)
            elif not isinstance(candidate, NoRoute):
                raise candidate

    def _fail(self, target: str, error: ValueError) -> None:
        self.candidates.setdefault(target, []).append(Candidate("", math.nan, None, problem=str(error)))

    def plans(self) -> list[Plan]:
        """Return a plan for each target.

        Raises:
            ValueError: the target of an error is unknown.
        """
        if errors := [error for errors in self.waiting.values() for error in errors if not isinstance(error, NoRoute)]:
            raise errors[0]
        return [
            Plan(smiles, found, id=", ".join(self.names.get(smiles, ())) or None)
            for smiles, found in self.candidates.items()
        ]


def _texts(content: Any, *names: str) -> Iterator[str]:
    """Yield the texts in the fields of these names, if the content is an object."""
    if isinstance(content, dict):
        yield from (content[name] for name in names if isinstance(content.get(name), str))


def _root(content: Any) -> str | None:
    """Return the target of a candidate, given its content."""
    from ..molecules import canonical_or_given  # needs RDKit

    while isinstance(content, dict) and not isinstance(content.get("smiles"), str):
        content = next((content[name] for name in ("route", "target") if name in content), None)
    return canonical_or_given(content["smiles"]) if isinstance(content, dict) else None


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

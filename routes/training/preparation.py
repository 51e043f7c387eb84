"""Preparation of a data set from route files: it canonicalises the molecules, and counts and drops unusable routes.

Several processes share the work, and the result does not depend on their number. Routes keep the order of the files.
The random orders of a route are drawn from the seed and the route itself.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter

from ...common.atomic import atomic_folder
from ...common.progress import Progress
from ...common.workers import WorkerProcesses
from ..files.entries import read_entries
from .arguments import Preparation
from .selection import REASONS, Outcome, Selection

REPORT = "report.json"

# The rows are written here first, within the folder. It has a folder of its own, because a data set does not overwrite
# the folder that it is read from.
_PART = Path(".part", "rows")
_EXAMPLES = 3
# The number of entries after which a file without a route is refused.
_LOOK_AT = 1000


@dataclass
class Report:
    """The counts of a preparation. Each route that was read was either kept, or dropped for one reason.

    Args:
        read: the number of routes that were found, with sub-routes if they are requested, plus the number of entries
            without a route.
        kept: the number of routes in the data set.
        rows: the number of rows.
        sources: the number of rows from each file.
        dropped: for each reason, the number of dropped routes, and the first few of them with file, index and
            explanation.
    """

    read: int = 0
    kept: int = 0
    rows: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)

    def drop(self, reason: str, file: Path, index: str, why: str) -> None:
        """Count a dropped route, and keep it as an example if it is one of the first."""
        entry = self.dropped.setdefault(reason, {"count": 0, "examples": []})
        entry["count"] += 1
        if len(entry["examples"]) < _EXAMPLES:
            entry["examples"].append({"file": str(file), "index": index, "why": why[:500]})

    def format_table(self) -> str:
        """Return the counts, one per line, with the first example below each reason."""
        lines = [f"{self.read:>10,}  read", f"{self.kept:>10,}  kept"]
        if len(self.sources) > 1:
            lines += [f"{count:>10,}  rows of {file}" for file, count in self.sources.items()]
        for reason in filter(self.dropped.__contains__, REASONS):
            entry = self.dropped[reason]
            first, why = entry["examples"][0], entry["examples"][0]["why"]
            lines.append(f"{entry['count']:>10,}  dropped: {REASONS[reason]}")
            lines.append(f"{'':12}{first['file']}, {first['index']}{': ' * bool(why)}{why[:120]}")
        return "\n".join(lines)


def prepare(
    files: Sequence[str | Path],
    out: str | Path,
    settings: Preparation | None = None,
    *,
    exclude: Sequence[str | Path] = (),
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Report:
    """Write a folder for `datasets.load_from_disk`, completely or not at all, with a `report.json` in it.

    The columns are those of `training_pairs`. A route that equals an earlier one, or differs from it only in the order
    of the children, is dropped. Memory grows by about a hundred bytes per route. The processes are spawned, so a
    script that calls this function with more than one worker needs `if __name__ == "__main__":`.

    Args:
        files: files of routes, in any form that `read_routes` reads.
        out: the folder.
        settings: the rules of the preparation. Defaults to `Preparation()`.
        exclude: files of routes that must not be in the training data.
        workers: the number of processes. Defaults to one per core.
        overwrite: whether to replace a data set that this function made.
        progress: whether to show a progress bar.

    Returns:
        The contents of `report.json`.

    Raises:
        ValueError: a file cannot be read to its end or contains no route, a route to exclude cannot be read, no route
            is left, or the folder exists.
        OSError: a file cannot be opened or written, or a process died.
    """
    settings = settings or Preparation()
    paths, held_out = [Path(file) for file in files], [Path(file) for file in exclude]
    workers = multiprocessing.cpu_count() if workers is None else workers
    _check_arguments(paths, held_out, workers)
    report = Report(sources=dict.fromkeys(map(str, paths), 0))
    size = sum(path.stat().st_size for path in (*paths, *held_out))
    _check_folder(Path(out), paths, overwrite)
    with (
        atomic_folder(out, replace=overwrite) as folder,
        WorkerProcesses(Selection(settings), workers) as pool,
        Progress("preparing", size or None, "bytes", is_shown=progress) as bar,
    ):
        keys = _excluded(held_out, pool, bar)
        columns = {"source": Value("string"), "target": Value("string"), "n_steps": Value("int64")}
        if settings.starting_material != "none":
            columns["starting_material"] = Value("string")
        (folder / _PART).parent.mkdir()
        with ArrowWriter(features=Features(columns), path=str(folder / _PART)) as table:
            for path, outcome in _sifted(_outcomes(paths, pool, bar), keys, report):
                for row in outcome.rows:
                    table.write(row)
                report.rows += len(outcome.rows)
                report.sources[str(path)] += len(outcome.rows)
            table.finalize()
        if not report.kept:
            counts = ", ".join(f"{entry['count']} {REASONS[reason]}" for reason, entry in report.dropped.items())
            raise ValueError(f"0 of {report.read} routes were kept: {counts}")
        _save_table(folder)
        about = {"files": list(map(str, paths)), "exclude": list(map(str, held_out)), "settings": asdict(settings)}
        (folder / REPORT).write_text(json.dumps(about | asdict(report), indent=2) + "\n", encoding="utf-8")
    return report


def _check_arguments(paths: Sequence[Path], held_out: Sequence[Path], workers: int) -> None:
    for path in (*paths, *held_out):
        if path.is_dir() or not path.exists():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise FileNotFoundError(f"{path} {what}: give files of routes.")
    if not paths:
        raise ValueError("no file given: give at least one file of routes")
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


def _check_folder(folder: Path, inputs: Sequence[Path], overwrite: bool) -> None:
    """Raise a ValueError for a folder that must not be replaced, or that contains one of the input files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not overwrite:
            raise ValueError(f"{folder} exists and is not empty: choose another one, or replace it with --overwrite.")
        if not (folder / REPORT).is_file():
            raise ValueError(f"{folder} is not overwritten: {REPORT} is missing, so it is no prepared data set.")
    for path in inputs:
        if folder.resolve() in path.resolve().parents:
            raise ValueError(f"{path} is in {folder}, which would be overwritten: choose another folder.")


def _save_table(folder: Path) -> None:
    """Save the rows as `datasets` does."""
    table = Dataset.from_file(str(folder / _PART))
    was_shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # it takes a moment
    table.save_to_disk(str(folder))
    if was_shown:
        datasets.enable_progress_bars()
    del table  # release the file, which is mapped into memory
    shutil.rmtree((folder / _PART).parent)


def _sifted(
    outcomes: Iterator[tuple[Path, Outcome]], held_out: set[int], report: Report
) -> Iterator[tuple[Path, Outcome]]:
    """Yield the routes that are kept, each with its file. Count the others in the report."""
    routes = set[int]()
    for path, outcome in outcomes:
        report.read += 1
        if outcome.reason is not None:
            report.drop(outcome.reason, path, outcome.place, outcome.why)
        elif not held_out.isdisjoint(outcome.keys):
            report.drop("excluded", path, outcome.place, outcome.rows[0]["source"])
        elif outcome.route in routes:
            report.drop("duplicate", path, outcome.place, outcome.rows[0]["source"])
        else:
            routes.add(outcome.route)
            report.kept += 1
            yield path, outcome


def _outcomes(paths: Sequence[Path], pool: WorkerProcesses, bar: Progress) -> Iterator[tuple[Path, Outcome]]:
    """Yield the outcomes of the files' routes, in order.

    Raises:
        ValueError: a file contains no route.
    """
    for path in paths:
        has_route, first = False, ""
        for count, outcome in enumerate(pool.map(Selection.rows, read_entries(path, bar.update)), 1):
            has_route, first = has_route or outcome.reason != "not_parsable", first or outcome.why
            if count >= _LOOK_AT and not has_route:
                break
            yield path, outcome
        if not has_route:
            raise ValueError(f"{path} contains no route: {first or 'it is empty'}")


def _excluded(paths: Sequence[Path], pool: WorkerProcesses, bar: Progress) -> set[int]:
    keys: set[int] = set()
    for path in paths:
        outcome = None
        for outcome in pool.map(Selection.keys, read_entries(path, bar.update)):
            if outcome.reason is not None:
                # an unread route would stay in the training data
                raise ValueError(f"the file to exclude, {path}, cannot be read: {outcome.why}")
            keys.update(outcome.keys)
        if outcome is None:
            raise ValueError(f"the file to exclude, {path}, contains no route")
    return keys

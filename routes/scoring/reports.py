"""The results of `weftformer routes evaluate` as a table for a terminal, in Markdown, and as JSON."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from weftformer.common import atomic
from weftformer.common.statistics import Estimate
from weftformer.routes.scoring.evaluation import SHAPES, Evaluation, Metrics

_LABEL = 24

# The metrics that are printed, in this order, with their titles. The others are only in the JSON.
_TITLES = {
    "exact": "Recorded route found (%), order of reactants ignored",
    "last_reaction": "Last reaction right (%)",
    "purchasable": "Purchasable (%): a route with all starting materials in stock",
    "purchasable_precedented": "Purchasable and precedented (%): each step has a recorded precedent",
    "validity": "Candidates that are valid (%)",
    "edit_distance": "Tree edit distance to the recorded route, in molecules",
}
_NAMES = {
    "any": "any candidate",
    "well_formed": "well-formed",
    "readable": "all molecules readable",
    "right_target": "and of the target",
    "unfailing": "and without a failing step",
}

_NOTE = "In brackets: 95 % intervals (Wilson for shares of targets and for mean shares of 0 or 100 %, else bootstrap over targets)."

# A title, and rows of a label and an estimate for each column (None if it was not measured).
Section = tuple[str, list[tuple[str, list[Estimate | None]]]]
# The same with the estimates written out.
Table = tuple[str, list[tuple[str, list[str]]]]


def sections(results: dict[str, Evaluation]) -> Iterator[Section]:
    """Yield the tables: every metric over all targets, then the recorded route by depth and shape."""
    columns = [result.overall for result in results.values()]
    for metric, title in _TITLES.items():
        found = list(dict.fromkeys(what for column in columns for what in column.get(metric, {})))
        # runs may have reported different ranks
        found.sort(key=lambda what: int(what[4:]) if what.startswith("top-") else 10**9)
        if found:
            yield (
                title,
                [(_NAMES.get(what, what), [_of(column, metric, what) for column in columns]) for what in found],
            )
    for what in _ends(columns):
        groups = [{**result.by_depth, **result.by_shape} for result in results.values()]
        depths = sorted({depth for result in results.values() for depth in result.by_depth})
        rows = []
        for group in [*depths, *(shape for shape in SHAPES if any(shape in found for found in groups))]:
            estimates = [_of(found.get(group, {}), "exact", what) for found in groups]
            # the same for all columns, unless they come from files that lack targets
            n = max(one.n for one in estimates if one is not None)
            rows.append((f"{group} deep, n={n}" if group in depths else f"{group}, n={n}", estimates))
        yield f"Recorded route found, {what} (%), by its depth (reactions on a path) and shape", rows


def _ends(columns: list[Metrics]) -> list[str]:
    """Return the first and the last rank that all columns have."""
    ranks = [
        what for what in columns[0]["exact"] if what.startswith("top-") and all(what in c["exact"] for c in columns)
    ]
    return list(dict.fromkeys([*ranks[:1], *ranks[-1:]]))


def _of(metrics: Metrics, metric: str, what: str) -> Estimate | None:
    return metrics.get(metric, {}).get(what)


def _cell(estimate: Estimate | None, percent: bool) -> str:
    if estimate is None or not estimate.n:
        return "-"
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{100 * x:.1f}" if percent else f"{x:.3f}" for x in numbers)
    return f"{value} [{low}, {high}]"


def _cells(results: dict[str, Evaluation]) -> Iterator[Table]:
    for title, rows in sections(results):
        written = []
        for label, found in rows:
            written.append((label, [_cell(one, "(%)" in title) for one in found]))
        yield title, written


def as_text(results: dict[str, Evaluation]) -> str:
    """Return the tables as text for a terminal."""
    tables = list(_cells(results))
    widths = [
        max(map(len, [name, *(cells[i] for _, rows in tables for _, cells in rows)])) for i, name in enumerate(results)
    ]

    def line(label: str, cells: Iterable[str]) -> str:
        padded = (f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return (f"{label:<{_LABEL}}" + "".join(padded)).rstrip()

    lines = [line("", results), line("targets", [str(len(result.targets)) for result in results.values()])]
    for title, rows in tables:
        lines += ["", title, *(line(f"  {label}", cells) for label, cells in rows)]
    return "\n".join([*lines, "", _NOTE])


def as_markdown(results: dict[str, Evaluation]) -> str:
    """Return one Markdown table, for a README."""
    counts = " | ".join(str(len(result.targets)) for result in results.values())
    lines = [f"| | {' | '.join(results)} |", "| --- |" + " ---: |" * len(results), f"| targets | {counts} |"]
    for title, rows in _cells(results):
        lines.append(f"| **{title}** |" + " |" * len(results))
        lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in rows]
    return "\n".join([*lines, "", _NOTE])


def write_json(results: dict[str, Evaluation], settings: dict[str, Any], file: Path) -> None:
    """Write all results by column, atomically."""
    settings = {name: value for name, value in settings.items() if name not in ("json", "markdown")}
    document = {"settings": settings, "columns": {name: result.to_dict() for name, result in results.items()}}
    atomic.write_json(file, document, default=str)

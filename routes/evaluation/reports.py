"""The results of `weftformer routes evaluate` as a table for a terminal, and as JSON."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from weftformer.common import atomic
from weftformer.common.statistics import Estimate
from weftformer.routes.evaluation.evaluation import Evaluation

_LABEL = 24

# The metrics that are printed, in this order, with their titles. The others are only in the JSON.
_TITLES = {
    "exact": "Recorded route found (%), order of reactants ignored",
    "last_reaction": "Last reaction right (%)",
    "purchasable": "Purchasable (%): a route with all starting materials in stock",
    "purchasable_precedented": "Purchasable and recorded (%): each step is recorded",
    "purchasable_textbook": "Purchasable, and each step recorded or in textbooks (%)",
}
_NOTE = "In brackets: Wilson's 95% intervals."

# A title, and rows of a label and a cell for each column.
TextTable = tuple[str, list[tuple[str, list[str]]]]


def tables(results: dict[str, Evaluation]) -> Iterator[TextTable]:
    """Yield the tables: every metric over all targets, then the recorded route by depth."""
    columns = [result.overall for result in results.values()]
    for metric, title in _TITLES.items():
        statistics = list(dict.fromkeys(name for column in columns for name in column.get(metric, {})))
        # runs may have reported different ranks
        statistics.sort(key=lambda name: int(name[4:]) if name.startswith("top-") else 10**9)
        cells = {name: [_cell(column.get(metric, {}).get(name)) for column in columns] for name in statistics}
        if cells:
            yield title, [("any candidate" if name == "any" else name, row) for name, row in cells.items()]
    depths = sorted({depth for result in results.values() for depth in result.by_depth})
    ranks = [name for name in columns[0]["exact"] if all(name in column["exact"] for column in columns)]
    for rank in dict.fromkeys([*ranks[:1], *ranks[-1:]]):
        rows = []
        for depth in depths:
            estimates = [result.by_depth.get(depth, {}).get("exact", {}).get(rank) for result in results.values()]
            # the same for all columns, unless they come from files that lack targets
            n = max(estimate.n for estimate in estimates if estimate is not None)
            rows.append((f"{depth} deep, n={n}", [_cell(estimate) for estimate in estimates]))
        yield f"Recorded route found, {rank} (%), by its depth (reactions on a path)", rows


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    value, low, high = (f"{100 * number:.1f}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def as_text(results: dict[str, Evaluation]) -> str:
    """Return the tables as text for a terminal."""
    every = list(tables(results))
    columns_of_cells = zip(results, *(cells for _, rows in every for _, cells in rows), strict=True)
    widths = [max(map(len, column)) for column in columns_of_cells]

    def line(label: str, cells: Iterable[str]) -> str:
        columns = (f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return (f"{label:<{_LABEL}}" + "".join(columns)).rstrip()

    lines = [line("", results), line("targets", [str(len(result.targets)) for result in results.values()])]
    for title, rows in every:
        lines += ["", title, *(line(f"  {label}", cells) for label, cells in rows)]
    return "\n".join([*lines, "", _NOTE])


def write_json(results: dict[str, Evaluation], settings: dict[str, Any], file: Path) -> None:
    """Write all results by column, atomically."""
    settings = {name: value for name, value in settings.items() if name != "json"}
    document = {"settings": settings, "columns": {name: result.to_dict() for name, result in results.items()}}
    atomic.write_json(file, document, default=str)

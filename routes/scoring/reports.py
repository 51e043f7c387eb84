"""What `weftformer evaluate` found, as a table for a terminal, in Markdown, as JSON, and as a picture."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from weftformer.common import atomic
from weftformer.common.figures import new_figure, save_figure
from weftformer.common.statistics import Estimate
from weftformer.routes.scoring.evaluation import SHAPES, Evaluation, Metrics

WIDTH = 100
_LABEL = 24

# What is printed of each metric, in this order; the rest is in the JSON.
_TITLES = {
    "exact": "Recorded route found (%), order of reactants ignored",
    "exact_directmultistep": "The same in DirectMultiStep's count (%): failed texts take no rank",
    "exact_directmultistep_stock": "The same, routes that are not in stock take no rank either (%)",
    "prefix_1": "Last reaction right (%)",
    "prefix_2": "Last two levels of reactions right (%)",
    "contains_reference": "Recorded route found, or one that goes on from its starting materials (%)",
    "purchasable": "Purchasable (%): a route with all starting materials in stock",
    "purchasable_possible": "Purchasable and possible (%): no atom from nowhere, no circle, all can be read",
    "validity": "Candidates that are valid (%)",
    "edit_distance": "Tree edit distance to the recorded route, in molecules",
}
_NAMES = {
    "mrr": "mean reciprocal rank",
    "any": "any candidate",
    "well_formed": "well-formed",
    "readable": "all molecules readable",
    "right_target": "and of the target",
    "possible": "and possible",
}

# Of the two curves that the plot has for each column.
_STYLES = (
    {"linestyle": "-", "markersize": 5},
    {"linestyle": ":", "markersize": 5, "markerfacecolor": "white", "alpha": 0.7},
)

# A title, and rows of a label and an estimate for each column (None where it was not measured).
Section = tuple[str, list[tuple[str, list[Estimate | None]]]]
# The same with the estimates written out.
Table = tuple[str, list[tuple[str, list[str]]]]


def sections(results: dict[str, Evaluation]) -> Iterator[Section]:
    """The tables: every metric over all targets, then the recorded route by depth and shape."""
    columns = [result.overall for result in results.values()]
    for metric, title in _TITLES.items():
        found = list(dict.fromkeys(what for column in columns for what in column.get(metric, {})))
        # several runs may have been asked for different ranks
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
    """The first and the last rank that all columns have."""
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
            percent = "(%)" in title and label != _NAMES["mrr"]
            written.append((label, [_cell(one, percent) for one in found]))
        yield title, written


def notes(results: dict[str, Evaluation]) -> list[str]:
    """What a reader has to know of the tables."""
    found = [
        "In brackets: 95 % intervals, Wilson's for shares of targets and where a share is 0 or all, bootstrapped over targets for all else."
    ]
    estimates = [one for _, rows in sections(results) for _, row in rows for one in row if one is not None and one.n]
    if any(one.low == one.high for one in estimates):
        found.append("One without width says that all targets agree, not that there is no doubt.")
    return found


def as_text(results: dict[str, Evaluation]) -> str:
    """For a terminal, at most 100 characters wide: columns that do not fit beside the others come below them."""
    tables = list(_cells(results))
    columns = list(results)
    widths = [
        max(map(len, [*name.split(), *(cells[i] for _, rows in tables for _, cells in rows)]))
        for i, name in enumerate(columns)
    ]
    blocks: list[list[int]] = [[]]
    for i in range(len(columns)):
        if blocks[-1] and _LABEL + sum(widths[j] + 2 for j in [*blocks[-1], i]) > WIDTH:
            blocks.append([])
        blocks[-1].append(i)
    texts = [_block(results, tables, [(i, widths[i]) for i in block]) for block in blocks]
    return "\n\n".join([*texts, textwrap.fill(" ".join(notes(results)), WIDTH)])


def _block(results: dict[str, Evaluation], tables: list[Table], chosen: list[tuple[int, int]]) -> str:
    """Some columns side by side, each given by its place and width."""

    def line(label: str, cells: Sequence[str]) -> str:
        return (f"{label:<{_LABEL}}" + "".join(f"  {cells[i]:>{width}}" for i, width in chosen)).rstrip()

    names = {i: textwrap.wrap(list(results)[i], width) for i, width in chosen}
    height = max(map(len, names.values()))
    heads = {i: [""] * (height - len(words)) + words for i, words in names.items()}
    lines = [line("", [heads[i][row] if i in heads else "" for i in range(len(results))]) for row in range(height)]
    lines.append(line("targets", [str(len(result.targets)) for result in results.values()]))
    for title, rows in tables:
        lines += ["", title, *(line(f"  {label}", cells) for label, cells in rows)]
    return "\n".join(lines)


def as_markdown(results: dict[str, Evaluation]) -> str:
    """For a README: one table."""
    counts = " | ".join(str(len(result.targets)) for result in results.values())
    lines = [f"| | {' | '.join(results)} |", "| --- |" + " ---: |" * len(results), f"| targets | {counts} |"]
    for title, rows in _cells(results):
        lines.append(f"| **{title}** |" + " |" * len(results))
        lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in rows]
    return "\n".join([*lines, "", " ".join(notes(results))])


def write_json(results: dict[str, Evaluation], settings: dict[str, Any], file: Path) -> None:
    """Everything, by column; readers see the old file or the whole new one."""
    settings = {name: value for name, value in settings.items() if name not in ("json", "plot", "markdown")}
    document = {"settings": settings, "columns": {name: result.to_dict() for name, result in results.items()}}
    atomic.write_json(file, document, default=str)


def plot(results: dict[str, Evaluation], file: Path) -> None:
    """How often the recorded route is found: among the first k, and by the depth of the recorded route."""
    figure = new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    first, *_, last = _ends([result.overall for result in results.values()]) * 2
    ranks = sorted({w for r in results.values() for w in r.overall["exact"] if w.startswith("top-")}, key=_number)
    depths = sorted({depth for result in results.values() for depth in result.by_depth})
    step = 0.7 / (2 * len(results))  # side by side, so that no interval hides another
    for i, (name, result) in enumerate(results.items()):
        for j, (metric, what) in enumerate((("exact", first), ("prefix_1", last))):
            place, style = (2 * i + j - len(results) + 0.5) * step, _STYLES[j] | {"color": f"C{i}"}
            found = [(ranks.index(rank) + place, result.overall[metric].get(rank)) for rank in ranks]
            _errorbars(left, found, label=None if j else name, **style)
            if j == 0 or last != first:
                by_depth = [
                    (depths.index(depth) + place, _of(m, "exact", what)) for depth, m in result.by_depth.items()
                ]
                _errorbars(right, by_depth, **style)
    left.set_xticks(range(len(ranks)), ranks)
    sizes = {depth: max(_size(result, depth) for result in results.values()) for depth in depths}
    right.set_xticks(range(len(depths)), [f"{depth}\nn={sizes[depth]}" for depth in depths])
    left.set(ylabel="targets (%)", ylim=(-2, 102), title="recorded route found, its last reaction (hollow)")
    right.set(
        xlabel="depth of the recorded route (reactions)",
        title=f"by depth: {first}" + (f", and {last} (hollow)" if last != first else ""),
    )
    for axis, places in ((left, ranks), (right, depths)):
        axis.grid(axis="y", alpha=0.3)
        axis.set_xlim(-0.5, len(places) - 0.5)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    save_figure(figure, file)


def _number(what: str) -> int:
    return int(what.removeprefix("top-"))


def _size(result: Evaluation, depth: int) -> int:
    return next(iter(result.by_depth[depth]["exact"].values())).n if depth in result.by_depth else 0


def _errorbars(axis: Any, points: list[tuple[float, Estimate | None]], **style: Any) -> None:
    known = [(place, one) for place, one in points if one is not None and one.n]
    # a mean lies within its interval but for rounding
    below = [max(0.0, 100 * (one.value - one.low)) for _, one in known]
    above = [max(0.0, 100 * (one.high - one.value)) for _, one in known]
    places, values = [place for place, _ in known], [100 * one.value for _, one in known]
    axis.errorbar(places, values, yerr=[below, above], marker="o", capsize=2, linewidth=1, **style)

"""The results of `python -m weftformer.benchmarks` as a table, in a Markdown file, and as a plot."""

import re
from pathlib import Path
from typing import Any

from weftformer.common.atomic import atomic_write
from weftformer.common.figures import new_figure, save_figure

Rows = list[dict[str, Any]]


def as_table(rows: Rows) -> str:
    lines = [
        f"| {rows[0]['case']} | median (range) | | times faster | peak memory | first run | output |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        times = row["times_s"]
        memory = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.0f} MB"
        runs = f"{min(times):.2f} to {max(times):.2f}, {len(times)} runs" if len(times) > 1 else "one run"
        lines.append(
            f"| {row['contender']} | {row['median_s']:.2f} s ({runs}) | {row['speed']} | {row['times_faster']:.2f} | "
            f"{memory} | {row['first_s']:.1f} s | {row['agreement']} |"
        )
    return "\n".join(lines)


def as_summary(cases: dict[str, Rows]) -> str:
    """Return a table with one line for each case: the time of the first contender, and the speed-ups of the others."""
    lines = ["| case | beside | times faster, and memory |", "| --- | --- | --- |"]
    for rows in cases.values():
        first, *others = rows
        beside = f"{first['contender']}: {first['median_s']:.2f} s, {first['speed']}{_memory(first)}"
        ratios = "; ".join(f"{row['contender']} **{row['times_faster']:.2f}**{_memory(row)}" for row in others)
        lines.append(f"| {first['case']} | {beside} | {ratios} |")
    return "\n".join(lines)


def _memory(row: dict[str, Any]) -> str:
    return "" if row["peak_bytes"] is None else f" ({row['peak_bytes'] / 1e6:.0f} MB)"


def write_into(file: Path, cases: dict[str, Rows]) -> None:
    """Write the tables of the cases and their summary into a Markdown file, between its comments for them.

    Raises:
        ValueError: the file has no such comments.
    """
    text = file.read_text(encoding="utf-8")
    tables = {name: as_table(rows) for name, rows in cases.items()} | {"summary": as_summary(cases)}
    place = re.compile(r"<!-- benchmark (\S+) -->\n.*?<!-- end -->", re.DOTALL)
    if not any(found[1] in tables for found in place.finditer(text)):
        raise ValueError(
            f"{file} has no place for a table: add the lines `<!-- benchmark {next(iter(cases))} -->` (or `summary` "
            "as the name) and `<!-- end -->`."
        )

    def filled(found: re.Match) -> str:
        name = found[1]
        return f"<!-- benchmark {name} -->\n{tables[name]}\n<!-- end -->" if name in tables else found[0]

    with atomic_write(file) as temporary:
        temporary.write_text(place.sub(filled, text), encoding="utf-8")


# For each panel of the plot, the quantity that varies, its label, and the cases.
_PANELS = {
    "new_tokens": ("new tokens, beam 5", ("length100", "reference", "length1000")),
    "beams": ("beams", ("reference", "beam10", "beam50")),
    "batch": ("sources at a time, one beam", ("greedy", "batch")),
}


def plot(cases: dict[str, Rows], file: Path) -> None:
    """Plot the time per token over length, beams and batch size. Panels need at least two points.

    Raises:
        ValueError: no panel has two points.
    """
    from matplotlib import ticker

    panels = {key: curves for key in _PANELS if (curves := _curves(cases, key))}
    if not panels:
        raise ValueError("--plot draws curves: measure at least two cases that differ in length, beams or batch.")
    figure = new_figure(4.5 * len(panels), 3.6)
    axes = figure.subplots(1, len(panels), squeeze=False)
    for axis, (key, curves) in zip(axes[0], panels.items(), strict=True):
        for name, points in curves.items():
            axis.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel=_PANELS[key][0], ylabel="ms a token")
        places = sorted({place for points in curves.values() for place, _ in points})
        axis.set_xticks(places, [f"{place:g}" for place in places])
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        for one in (axis.xaxis, axis.yaxis):
            one.set_minor_locator(ticker.NullLocator())
    lines = {name: line for axis in axes[0] for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside upper center", ncols=len(lines), fontsize="small")
    save_figure(figure, file)


def _curves(cases: dict[str, Rows], key: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for name in _PANELS[key][1]:
        for row in cases.get(name, ()):
            place, contender = row.get(key), row["contender"]
            if place is not None:
                curves.setdefault(contender, []).append((place, row["seconds_per_unit"] * 1e3))
    return {name: points for name, points in curves.items() if len(points) > 1}

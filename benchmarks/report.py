"""The results of `python -m weftformer.benchmarks` as a table, and in a Markdown file."""

import re
from pathlib import Path
from typing import Any

from weftformer.common.atomic import atomic_write

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
    """Write the tables of the cases and their summary into a Markdown file, see [`fill_places`]."""
    fill_places(file, {name: as_table(rows) for name, rows in cases.items()} | {"summary": as_summary(cases)})


def fill_places(file: Path, tables: dict[str, str]) -> None:
    """Write tables into a Markdown file, between its comments with their names.

    Raises:
        ValueError: the file has no such comments.
    """
    text = file.read_text(encoding="utf-8")
    place = re.compile(r"<!-- benchmark (\S+) -->\n.*?<!-- end -->", re.DOTALL)
    if not any(hit[1] in tables for hit in place.finditer(text)):
        raise ValueError(
            f"{file} has no place for a table: add the lines `<!-- benchmark {next(iter(tables))} -->` (or "
            f"`{next(reversed(tables))}` as the name) and `<!-- end -->`."
        )

    def filled(hit: re.Match) -> str:
        name = hit[1]
        return f"<!-- benchmark {name} -->\n{tables[name]}\n<!-- end -->" if name in tables else hit[0]

    with atomic_write(file) as temporary:
        temporary.write_text(place.sub(filled, text), encoding="utf-8")

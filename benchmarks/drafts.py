"""Planning with drafts and without: `python -m weftformer.benchmarks.drafts --model runs/routes --routes routes.jsonl.gz`.

The same targets are planned with the same search, in turn and in one process. A row has the calls of the model, the
steps of the search that a call serves, and the time of a run without drafts by the time with them: the median of the
pairs, and their range. The planned routes are compared before a time is reported.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from weftformer.benchmarks.decoding import machine
from weftformer.common.whole_files import write_json
from weftformer.modeling.decoding_ahead import AheadStepper
from weftformer.modeling.decoding_step import DecodeStep
from weftformer.modeling.decoding_wide import WideStep
from weftformer.routes import Route, read_routes
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.scripts.cli import run_script


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.drafts", description=__doc__)
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="folder of a model that was trained on routes")
    add("--routes", required=True, metavar="FILE", help="file of routes, whose targets are planned")
    add("--targets", type=int, default=16, metavar="N", help="targets, from the first on (default: %(default)s)")
    add("--beams", type=int, nargs="+", default=[1, 5, 10, 50], metavar="N", help="(default: 1 5 10 50)")
    add("--batch-sizes", type=int, nargs="+", default=[1, 16], metavar="N", help="(default: 1 16)")
    add("--draft-tokens", type=int, default=8, metavar="N", help="most tokens ahead (default: %(default)s)")
    add("--new-tokens", type=int, default=200, metavar="N", help="most tokens of a route (default: %(default)s)")
    add("--runs", type=int, default=5, metavar="N", help="pairs of runs after a warm-up (default: %(default)s)")
    add("--threads", type=int, default=1, metavar="N", help="threads of torch (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the calls of the decoding step, the tokens that they compute, and the steps of the searches."""
    counts = {"calls": 0, "tokens": 0, "steps": 0}
    originals = [(DecodeStep, "step"), (WideStep, "run"), (AheadStepper, "advance")]
    plain, wide, advance = (getattr(kind, name) for kind, name in originals)

    def count_plain(self: Any, ids: torch.Tensor, *rest: Any) -> Any:
        counts["calls"] += 1
        counts["tokens"] += len(ids)
        return plain(self, ids, *rest)

    def count_wide(self: Any, new: Any, *rest: Any) -> Any:
        counts["calls"] += 1
        counts["tokens"] += len(new.ids)
        return wide(self, new, *rest)

    def count_steps(self: Any, *given: Any) -> Any:
        counts["steps"] += 1
        return advance(self, *given)

    try:
        for (kind, name), function in zip(originals, (count_plain, count_wide, count_steps), strict=True):
            setattr(kind, name, function)
        yield counts
    finally:
        for (kind, name), function in zip(originals, (plain, wide, advance), strict=True):
            setattr(kind, name, function)


def measured(
    planner: RoutePlanner, targets: Sequence[Route], arguments: argparse.Namespace, beams: int, batch_size: int
) -> dict:
    """Return the row of one number of beams and one batch size."""

    def run(draft_tokens: int) -> tuple[float, list[list[str]]]:
        started = time.perf_counter()
        plans = planner.plan(
            [route.smiles for route in targets], n_steps=[route.depth for route in targets] if has_steps else None,
            max_new_tokens=arguments.new_tokens, draft_tokens=draft_tokens, progress=False, beams=beams, batch_size=batch_size,
        )  # fmt: skip
        return time.perf_counter() - started, [[one.text for one in plan.candidates] for plan in plans]

    has_steps = planner.model.config.num_condition_features > 0
    same = run(0)[1] == run(arguments.draft_tokens)[1]
    seconds: dict[int, list[float]] = {0: [], arguments.draft_tokens: []}
    with counted() as counts:  # apart from the timed runs
        run(arguments.draft_tokens)
    for _ in range(arguments.runs):
        for number, times in seconds.items():
            times.append(run(number)[0])
    return {
        "beams": beams,
        "batch_size": batch_size,
        "same": same,
        "without_s": seconds[0],
        "with_s": seconds[arguments.draft_tokens],
    } | counts


def as_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| beams | batch | s without | s with | times faster (range) | steps a call | tokens a step | texts |",
        "|" + " --- |" * 8,
    ]
    for row in rows:
        ratios = [one / other for one, other in zip(row["without_s"], row["with_s"], strict=True)]
        medians = [f"{statistics.median(row[name]):.2f}" for name in ("without_s", "with_s")]
        lines.append(
            f"| {row['beams']} | {row['batch_size']} | {' | '.join(medians)} | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {row['steps'] / row['calls']:.2f} | "
            f"{row['tokens'] / row['steps']:.1f} | {'same' if row['same'] else 'not the same'} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    for name in ("targets", "draft_tokens", "new_tokens", "runs", "threads"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    torch.set_num_threads(arguments.threads)
    planner = RoutePlanner.from_pretrained(arguments.model)
    room = planner.model.config.max_source_positions // 3
    targets = list(islice((one for one in read_routes(arguments.routes) if len(one.smiles) < room), arguments.targets))
    rows = []
    for batch_size in arguments.batch_sizes:
        for beams in arguments.beams:
            rows.append(measured(planner, targets, arguments, beams=beams, batch_size=batch_size))
            print(as_table(rows[-1:]).splitlines()[-1] if len(rows) > 1 else as_table(rows), flush=True)
            if arguments.json is not None:
                write_json(arguments.json, {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    sys.exit(run_script("benchmark_drafts", main))

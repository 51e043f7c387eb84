"""The accuracy of a route model with its weights in bfloat16 or int8: `python -m weftformer.benchmarks.precision`.

The same held-out targets are planned with the same search in each precision. They are the synthetic targets that
`weftformer train-routes` holds out by default. A model that was trained on other routes, or with another seed, may
have seen them. int8 is torchao's weight-only quantization: 8-bit integers and a scale for each output. Activations
stay in float32.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weftformer.benchmarks.decoding import machine
from weftformer.common.statistics import Estimate
from weftformer.common.whole_files import write_json
from weftformer.modeling.decoding_dispatch import can_step
from weftformer.routes.data.training_data import RouteArguments, load_routes
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.plans import Plan
from weftformer.routes.scoring.training import measure_accuracy
from weftformer.scripts.cli import run_script
from weftformer.tokenization import encode_route

PRECISIONS = ("float32", "bfloat16", "int8")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weftformer.benchmarks.precision", description=__doc__)
    parser.add_argument("--model", required=True, help="folder or Hub id of a trained route model")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, metavar="PRECISION",
                        help=f"some of {', '.join(PRECISIONS)}; the others are compared with the first (default: all)")  # fmt: skip
    parser.add_argument("--targets", type=int, default=100, help="held-out targets to plan (default: %(default)s)")
    parser.add_argument("--beams", type=int, default=5, help="number of beams (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the model's training (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser


def quantizable(module: nn.Module, name: str) -> bool:
    """Return whether to quantize a module: a plain linear layer with more than one input.

    Routers are not quantized. torchao 0.18 cannot scale a layer with one input, such as that of the number of steps.
    """
    return type(module) is nn.Linear and module.in_features > 1


def set_precision(model: nn.Module, precision: str) -> nn.Module:
    """Change the weights of a model in float32 to one of `PRECISIONS`, in place, and return it.

    Raises:
        ValueError: the precision is none of them.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not allowed: give one of {', '.join(PRECISIONS)}.")
    if precision == "bfloat16":
        model.to(torch.bfloat16)
    elif precision == "int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        # inductor's settings would change for the whole process, and nothing is compiled here
        quantize_(model, Int8WeightOnlyConfig(set_inductor_config=False), filter_fn=quantizable)
    return model


def load_planner(folder: str, precision: str) -> RoutePlanner:
    """Load a planner, with the model's weights in one of `PRECISIONS`."""
    planner = RoutePlanner.from_pretrained(folder, dtype=torch.float32)
    set_precision(planner.model, precision)
    return planner


def stored_bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor in memory."""
    # a quantized tensor reports the dtype that it replaces, and has its integers and scales inside
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return sum(stored_bytes(getattr(tensor, name)) for name in names)
    return tensor.numel() * tensor.element_size()


def share_of_same(first: Sequence[Plan], other: Sequence[Plan]) -> float:
    """Return the share of targets with the same best route in any order of reactants, or with no route in both."""
    best = ([plan.routes[0].canonical() if plan.routes else None for plan in plans] for plans in (first, other))
    return sum(one == two for one, two in zip(*best, strict=True)) / len(first)


def precision_rows(
    folder: str, targets_limit: int, beams: int, seed: int = 0, precisions: Sequence[str] = PRECISIONS
) -> list[dict[str, Any]]:
    """Plan the same held-out targets in each precision, one target at a time.

    Args:
        folder: folder or Hub id of a trained route model.
        targets_limit: the number of targets to plan.
        beams: the number of beams.
        seed: the seed with which its training routes were made.
        precisions: some of `PRECISIONS`. The others are compared with the first.

    Returns:
        A row for each precision: `precision`, `exact_route` (top-1 and, with at least 5 beams, top-5, with 95 %
        intervals), `valid`, `same_best_route`, `seconds_per_target`, `weight_bytes` and `fast_path`.

    Raises:
        ValueError: torchao is not installed, or `targets_limit` is larger than the number of held-out targets.
    """
    if "int8" in precisions and find_spec("torchao") is None:
        raise ValueError("int8 needs torchao: pip install weftformer[benchmark], or leave int8 out of --precisions.")
    arguments = RouteArguments(beams=beams, test_batch_size=1)
    if not 1 <= targets_limit <= arguments.num_test_routes:
        raise ValueError(f"--targets must be 1 to {arguments.num_test_routes}: got {targets_limit}.")
    planners = {precision: load_planner(folder, precision) for precision in precisions}
    routes = load_routes(arguments, seed)[1][:targets_limit]
    rows, reference = list[dict[str, Any]](), list[Plan]()
    for precision, planner in planners.items():
        # a text that is longer than all recorded ones cannot be right
        longest = max(len(encode_route(planner.tokenizer, route.to_string())) for route in routes)
        measure_accuracy(planner, routes[:1], arguments, longest)  # the first search of a process is slow
        started = time.perf_counter()
        results, plans = measure_accuracy(planner, routes, arguments, longest)
        seconds = (time.perf_counter() - started) / len(routes)
        size = sum(map(stored_bytes, planner.model.parameters()))
        reference = reference or plans
        row = {key: results[key] for key in ("exact_route", "valid")}
        row |= {"precision": precision, "seconds_per_target": seconds, "weight_bytes": size}
        rows.append(row | {"same_best_route": share_of_same(reference, plans), "fast_path": can_step(planner.model)})
    return rows


def as_table(rows: list[dict[str, Any]]) -> str:
    same = f"same best route as {rows[0]['precision']}"
    names = ["weights", *rows[0]["exact_route"], same, "s a target", "weights, MB", "decoding"]
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    for row in rows:
        shares = " | ".join(str(Estimate(**share)) for share in row["exact_route"].values())
        lines.append(
            f"| {row['precision']} | {shares} | {row['same_best_route']:.1%} | {row['seconds_per_target']:.3f} | "
            f"{row['weight_bytes'] / 1e6:.2f} | {'fast path' if row['fast_path'] else 'plain path'} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    for name in ("beams", "threads"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1: got {getattr(arguments, name)}.")
    torch.set_num_threads(arguments.threads)
    rows = precision_rows(arguments.model, arguments.targets, arguments.beams, arguments.seed, arguments.precisions)
    print(as_table(rows))
    if arguments.json is not None:
        where = machine()
        del where["dtype"]  # each row has its own
        where["versions"]["torchao"] = version("torchao") if find_spec("torchao") else None
        report = {"machine": where, "targets": arguments.targets, "beams": arguments.beams, "rows": rows}
        write_json(arguments.json, report)


if __name__ == "__main__":
    sys.exit(run_script("benchmark_precision", main))

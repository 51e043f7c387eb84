"""Estimate the cost of a model before training it: parameters, memory of each process, operations and days of
training, and the memory of decoding. Nothing is computed with data, and no GPU is needed."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from weftformer.estimation import DEVICES, Workload
from weftformer.estimation.workload import PRECISIONS
from weftformer.scripts.arguments import check_folders, check_model

EPILOG = """examples:
  weftformer estimate --preset modern-base-moe --distributed-config fsdp_size=8 --gpu h100 --tokens 1e11
  weftformer estimate --model runs/mine --gpu rtx-4090 --tokens 1e9 --source-length 128 --target-length 128
  weftformer estimate --preset modern-small --gpu cpu,memory_gb=16,fp32_tflops=0.2 --json -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(**{field.name: field.default for field in fields(Workload)})
    add = parser.add_argument_group("the model").add_argument
    add("--preset", metavar="NAME", help="a named size, such as modern-base")
    add("--model", metavar="MODEL", help="the folder or Hub id of a trained model")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the configuration to change, such as vocab_size=8000")
    add = parser.add_argument_group("the machines").add_argument
    add(
        "--gpu",
        default="h100",
        metavar="NAME",
        help=f"{', '.join(DEVICES)}, or numbers of another (default: %(default)s)",
    )
    add("--num-processes", type=int, metavar="N", help="processes with a whole model each (DDP; default: 1)")
    add("--distributed-config", metavar="A=1,B=2", help="how processes share the model: fsdp_size, dp_replicate_size")
    add = parser.add_argument_group("the training").add_argument
    add("--tokens-per-batch", type=int, metavar="N",
        help="tokens of a step of all processes, source and target together (default: %(default)s)")  # fmt: skip
    add("--source-length", type=int, metavar="N", help="tokens of a source (default: 512, or the model's limit)")
    add("--target-length", type=int, metavar="N", help="tokens of a target (likewise)")
    add("--tokens", type=float, metavar="N", help="tokens of the whole training, for days")
    add("--precision", choices=PRECISIONS, help="bf16 is --bf16 of training (default: bf16 where the GPU has it)")
    add("--gradient-checkpointing", action="store_true", help="layers are computed again in the backward pass")
    add("--gradient-accumulation-steps", type=int, metavar="N", help="batches a step (default: %(default)s)")
    add("--no-chunked-loss", dest="chunked_loss", action="store_false", help="keep the logits of a whole batch")
    add("--utilization", type=float, metavar="SHARE", help="of the peak arithmetic (default: %(default)s)")
    add = parser.add_argument_group("the rest").add_argument
    add("--num-beams", type=int, metavar="N", help="beams of a search when decoding (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all numbers to a file, or - to print nothing else")


def main(args: argparse.Namespace) -> None:
    """Print an estimate as a table, or as JSON.

    Raises:
        ValueError, OSError: an argument does not fit, or there is no such model.
    """
    from weftformer.common.atomic import write_json
    from weftformer.estimation import estimate

    to_screen = args.json == Path("-")
    if args.json is not None and not to_screen:
        check_folders(args, "json")
    workload = Workload(**{field.name: getattr(args, field.name) for field in fields(Workload)})
    found = estimate(find_config(args.preset, args.model, args.config_overrides), workload, args.gpu)
    if to_screen:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(table(found))
    if args.json is not None:
        write_json(args.json, found.to_dict())


def find_config(preset: str | None, model: str | None, overrides: str | None) -> Any:
    """Return the configuration of a preset or of a model's folder, or the default one.

    Raises:
        ValueError, OSError: both are named, or there is none such.
    """
    from transformers import AutoConfig

    from weftformer import WeftConfig
    from weftformer.common.overrides import parse_overrides
    from weftformer.hub.loading import load

    if preset and model:
        raise ValueError(f"--preset {preset} and --model {model} exclude each other: give one.")
    changes = parse_overrides(overrides)
    if model:
        check_model(model)
        config = load(AutoConfig, model)
        if not isinstance(config, WeftConfig):
            raise ValueError(f"--model {model} is a {config.model_type} model, and no model of this family.")
        return WeftConfig.from_pretrained(model, **changes)
    return WeftConfig.from_preset(preset, **changes) if preset else WeftConfig(**changes)


def table(found: Any) -> str:
    """Return an [`Estimate`] as lines to read."""
    memory, time, decoding = found.memory, found.time, found.decoding
    device, workload = found.device, found.workload
    many = f"each of {found.processes} processes" if found.processes > 1 else "one process"
    share = memory.peak / device.memory
    rows = [("Parameters", "", ""), ("  all", f"{found.parameters:,}", "")]
    if found.active_parameters != found.parameters:
        rows.append(("  active for a token", f"{found.active_parameters:,}", ""))
    rows.append((f"Memory of {many} at its peak in training, {found.rows} pairs at a time", "", ""))
    for part in ("weights", "gradients", "optimizer", "activations", "communication"):
        rows.append((f"  {part}", _size(getattr(memory, part)), ""))
    rows += [
        ("  peak", _size(memory.peak), f"{share:.0%} of {device.name}" + (": does not fit" if share > 1 else "")),
        ("Training", "", ""),
        ("  operations of a token", f"{found.operations:.3g}", "FLOPs, forward and backward"),
        ("  a step", _seconds(time.step), f"at {workload.utilization:.0%} of the peak in {found.precision}"),
        ("  tokens a second", f"{time.tokens_per_second:,.0f}", f"{found.tokens_per_step:,} tokens a step"),
    ]
    if time.days is not None:
        hours = f"{time.device_hours:,.1f} hours of {device.name}"
        rows.append((f"  {workload.tokens:.3g} tokens", f"{time.days:,.2f} days", hours))
    rows += [
        (f"Decoding on one {device.name} in {found.precision}", "", ""),
        ("  weights", _size(decoding.weights), ""),
        ("  cache of a row", _size(decoding.cache_per_row), "at its longest"),
        ("  rows that fit", f"{decoding.rows:,}", f"{decoding.sequences:,} searches with {workload.num_beams} beams"),
    ]
    widths = [max(len(row[column]) for row in rows if row[1]) for column in (0, 1)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {remark}".rstrip() if value else f"\n{name}"
        for name, value, remark in rows
    ).lstrip("\n")


def _size(size: float) -> str:
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size / one:,.2f} {unit}"
    return f"{size:.0f} B"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1000:,.2f} ms"

"""`weftformer estimate`: what a model costs, in parameters, memory, time and energy, before anybody pays for it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from transformers import AutoConfig

from weftformer import WeftConfig
from weftformer.common.whole_files import write_json
from weftformer.scripts.arguments import check_folders, check_model
from weftformer.scripts.cli import run_script
from weftformer.scripts.parsers.estimate import build_parser
from weftformer.training import Estimate, Workload, estimate
from weftformer.training.parsing import parse_overrides


def main(argv: Sequence[str] | None = None) -> None:
    """Print an estimate as a table, or as JSON.

    Raises:
        ValueError, OSError: an argument does not fit, or there is no such model.
    """
    arguments = build_parser().parse_args(argv)
    to_screen = arguments.json == Path("-")
    if arguments.json is not None and not to_screen:
        check_folders(arguments, "json")
    names = [field.name for field in fields(Workload)]
    workload = Workload(**{name: getattr(arguments, name) for name in names})
    config = find_config(arguments.preset, arguments.model, arguments.config_overrides)
    found = estimate(config, workload, arguments.gpu)
    if to_screen:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(table(found))
    if arguments.json is not None:
        write_json(arguments.json, found.to_dict())


def find_config(preset: str | None, model: str | None, overrides: str | None) -> WeftConfig:
    """Return the configuration of a preset or of a model's folder, or the default one.

    Raises:
        ValueError, OSError: both are named, or there is none such.
    """
    if preset and model:
        raise ValueError(f"--preset {preset} and --model {model} exclude each other: give one.")
    changes = parse_overrides(overrides)
    if model:
        check_model(model)
        config = AutoConfig.from_pretrained(model)
        if not isinstance(config, WeftConfig):
            raise ValueError(f"--model {model} is a {config.model_type} model, and no model of this family.")
        return WeftConfig.from_pretrained(model, **changes)
    return WeftConfig.from_preset(preset, **changes) if preset else WeftConfig(**changes)


def table(found: Estimate) -> str:
    """Return an estimate as lines to read."""
    rows = [*_parameters(found), *_memory(found), *_work(found), *_decoding(found)]
    width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    return "\n".join(
        f"{name:<{width}}  {value:>{value_width}}  {remark}".rstrip() if value or remark else f"\n{name}".rstrip()
        for name, value, remark in rows
    ).lstrip("\n")


_Row = tuple[str, str, str]


def _parameters(found: Estimate) -> list[_Row]:
    count = found.parameters
    rows = [("Parameters", "", ""), ("  all", f"{count.total:,}", "")]
    if count.active != count.total:
        rows.append(("  active for a token", f"{count.active:,}", ""))
    return rows + [(f"  {name.replace('_', '-')}", f"{size:,}", "") for name, size in count.parts.items() if size]


def _memory(found: Estimate) -> list[_Row]:
    memory = found.memory
    name = found.device.name
    many = f"each of {found.processes} processes" if found.processes > 1 else "one process"
    rows = [(f"Memory of {many} in training, {found.rows} pairs at a time", "", "")]
    for part in ("weights", "gradients", "optimizer", "activations", "communication"):
        at_peak = memory.at_peak[part]
        most = getattr(memory, part)
        rows.append((f"  {part}", _size(most), "" if at_peak == most else f"{_size(at_peak)} at the peak"))
    share = memory.peak / memory.device
    rows.append(("  peak", _size(memory.peak), f"{share:.0%} of {name}" + (": does not fit" if share > 1 else "")))
    return rows


def _work(found: Estimate) -> list[_Row]:
    work, time, workload, device = found.operations, found.time, found.workload, found.device
    share = workload.utilization
    rows = [
        ("Training", "", ""),
        ("  operations of a token", f"{work.training:.3g}", "FLOPs, forward and backward"),
        ("  arithmetic", _seconds(time.arithmetic), f"a step, at {share:.0%} of the peak in {found.precision}"),
        ("  bandwidth", _seconds(time.bandwidth), "a step, through memory"),
    ]  # fmt: skip
    if time.sent:
        unknown = time.communication is None
        rows.append(
            ("  communication", "unknown" if unknown else _seconds(time.communication or 0), f"a step, {_size(time.sent)} sent")
        )  # fmt: skip
    rows.append(
        (
            "  tokens a second",
            f"{time.tokens_per_second:,.0f}",
            f"bound by {time.bound}, {found.tokens_per_step:,} tokens a step",
        )
    )
    if time.days is not None:
        hours = f"{time.device_hours:,.1f} hours of {device.name}"
        rows.append((f"  {workload.tokens:.3g} tokens", f"{time.days:,.2f} days", hours))
    if time.kilowatt_hours is not None:
        power = f"at {device.watts:g} W and a PUE of {workload.pue:g}"
        rows.append(("  energy", f"{time.kilowatt_hours:,.1f} kWh", power))
    return rows


def _decoding(found: Estimate) -> list[_Row]:
    decoding, beams = found.decoding, found.workload.num_beams
    rows = [
        (f"Decoding on one {found.device.name} in {found.precision}", "", ""),
        ("  weights", _size(decoding.weights), ""),
        ("  read for a token", _size(decoding.bytes_per_token), "of one row, weights and half the cache of its text"),
        ("  cache of a row", _size(decoding.cache_per_row), "at its longest"),
        ("  rows that fit", f"{decoding.rows:,}", f"{decoding.sequences:,} searches with {beams} beams"),
    ]
    if decoding.sequences:
        rows += [
            ("  tokens a second", f"{decoding.tokens_per_second:,.0f}", f"of one search with {beams} beams, at most"),
            ("  of all that fit", f"{decoding.most_tokens_per_second:,.0f}", f"at most, bound by {decoding.bound}"),
        ]
    return rows


def _size(size: float) -> str:
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size / one:,.2f} {unit}"
    return f"{size:.0f} B"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1000:,.2f} ms"


if __name__ == "__main__":
    sys.exit(run_script("estimate", main))

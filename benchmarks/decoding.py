"""Time and memory of Weft and its peers, side by side in one process on the same weights.

Every contender runs in turn, after warm-ups; a row gives the median, its range and its ratio to the first contender.
Outputs (tokens, or logits before training) are compared before a time is reported.
"""

import argparse
import ctypes
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from weftformer.benchmarks.peers import Case, Contender, FileCase, SparseCase
from weftformer.benchmarks.training_step import SparseTrainingCase, TrainingCase, VocabularyCase
from weftformer.benchmarks.translation import TranslationCase
from weftformer.common.atomic import write_json
from weftformer.scripts.arguments import positive

CASES: dict[str, Any] = {
    "reference": Case("beam 5", beams=5),
    "greedy": Case("greedy"),
    "batch": Case("batch 16, one beam", batch=16, new_tokens=200),
    "beam10": Case("beam 10", beams=10, new_tokens=200),
    "beam50": Case("beam 50", beams=50, new_tokens=200),
    "length100": Case("beam 5", beams=5, new_tokens=100),
    "length1000": Case("beam 5", beams=5, new_tokens=1000),
    "translation-greedy": TranslationCase("translation, greedy, one text at a time"),
    "translation-greedy-batch": TranslationCase("translation, greedy, batches of 16", batch=16),
    "translation-beam5": TranslationCase("translation, beam 5, one text at a time", beams=5),
    "translation-beam5-batch": TranslationCase("translation, beam 5, batches of 16", beams=5, batch=16),
    "sparse": SparseCase("sparse and dense, greedy", new_tokens=200),
    "train": TrainingCase("training, dense"),
    "train-sparse": SparseTrainingCase("training, 3 experts"),
    "train-8-experts": SparseTrainingCase("training, 8 experts", experts=8),
    "vocabulary": VocabularyCase("loss over 50,000 words, 32 x 256 tokens", batch=32, target=256),
}


def _status(name: str) -> int | None:
    """Return a memory field of this process in bytes, or None on systems other than Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def peak_memory(run: Callable[[], Any]) -> tuple[Any, int | None]:
    """Return the result of a run, and the peak growth of the process' memory in bytes (None if it is unknown)."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # release the memory of earlier runs, which this run would reuse
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = _status("VmRSS")
    except OSError:
        before = None
    result = run()
    height = _status("VmHWM")
    return result, None if before is None or height is None else max(0, height - before)


def agreement(first: Any, other: Any) -> str:
    """Describe the difference of two outputs, which are lists of tokens, lists of texts, or tensors."""
    if first is None or other is None:
        return "not compared"
    if isinstance(first, torch.Tensor):
        return f"within {float((first - other).abs().max() / first.abs().max()):.0e}"
    if first == other:
        return "same texts" if isinstance(first[0], str) else "same tokens"
    differences = []
    for row, other_row in zip(first, other, strict=True):
        if row != other_row:
            length = min(len(row), len(other_row))
            differences.append(next((i for i in range(length) if row[i] != other_row[i]), length))
    return f"other tokens from token {min(differences) + 1} on"


def compare(case: Any, contenders: Iterable[Contender], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the contenders of one case in turn, and return a row for each."""
    reference, *peers = contenders
    peers = [peer for peer in peers if any(part in peer.name for part in arguments.only or [""])]
    together = [contender for contender in (reference, *peers) if not contender.is_apart]
    rows: list[dict[str, Any]] = []
    for group in (together, *([contender] for contender in (reference, *peers) if contender.is_apart)):
        in_turn: list[tuple[Contender, dict[str, Any]]] = []
        for contender in group:
            row = _warm_up(case, contender, 1 if contender.is_slow else arguments.warm_ups)
            rows.append(row)
            if contender.is_slow:  # its first run is its only one, because a run of minutes needs no warm-up
                row["times_s"].append(row["first_s"])
            else:
                in_turn.append((contender, row))
        for _ in tqdm(range(arguments.runs), desc=case.name, unit="run"):
            for contender, row in in_turn:
                start = time.perf_counter()
                contender.run()
                row["times_s"].append(time.perf_counter() - start)
    _summarise(case, rows)
    return rows


def _summarise(case: Any, rows: list[dict[str, Any]]) -> None:
    """Add the medians and their ratios to the first row. Compare the outputs with its output, and remove them."""
    first = rows[0]["output"]
    base = statistics.median(rows[0]["times_s"])
    for number, row in enumerate(rows):
        output = row.pop("output")
        row["agreement"] = agreement(first, output) if number else ""
        row["median_s"] = statistics.median(row["times_s"])
        row["times_faster"] = base / row["median_s"]
        row["seconds_per_unit"] = row["median_s"] / case.units
        row["speed"] = case.per_unit(row["median_s"])


def _warm_up(case: Any, contender: Contender, runs: int) -> dict[str, Any]:
    check = contender.check() if contender.check is not None else None
    start = time.perf_counter()
    output, memory = peak_memory(contender.run)  # the first run includes compilation
    first = time.perf_counter() - start
    for _ in range(runs - 1):
        output, memory = peak_memory(contender.run)
    shape = {key: value for key, value in vars(case).items() if isinstance(value, int)}
    return {"case": case.name, "contender": contender.name, "first_s": first, "peak_bytes": memory, "times_s": [],
            "output": output if contender.check is None else check} | shape  # fmt: skip


def cpu_name() -> str:
    """Return the name of the processor as the system reports it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def machine() -> dict[str, Any]:
    """Return the hardware and the versions of packages."""
    names = ("torch", "transformers", "directmultistep", "ctranslate2", "weftformer")
    versions = {name: _version(name) for name in names}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    facts = {"cpu": cpu_name(), "gpu": gpu, "threads": torch.get_num_threads(), "dtype": "float32"}
    return facts | {"versions": versions}


def _version(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def as_table(rows: list[dict[str, Any]]) -> str:
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


def add_arguments(parser: argparse.ArgumentParser, cases: Mapping[str, Any] = CASES) -> None:
    parser.usage = "%(prog)s [CASE ...] [--json FILE] [--option value ...]"
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE",
        help=f"cases to run, of {', '.join(cases)} (default: all that need no files)")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--only", nargs="+", metavar="NAME",
        help="only contenders whose names contain one of these, and always the first")  # fmt: skip
    add = parser.add_argument_group("how it is measured").add_argument
    add("--runs", type=positive, default=5, metavar="N", help="timed runs of each contender (default: %(default)s)")
    add("--warm-ups", type=positive, default=3, metavar="N", help="untimed runs before those (default: %(default)s)")
    add("--threads", type=positive, default=2, metavar="N", help="threads of torch (default: %(default)s)")
    add("--new-tokens", type=int, metavar="N", help="tokens to generate when decoding (default: the case's)")
    add("--model", metavar="FOLDER",
        help="a trained model: dms-flash-10m for routes, of texts for translation")  # fmt: skip
    add("--texts", metavar="FILE", help="for translation: source texts, one per line, gzipped or not")
    add("--sources", type=positive, default=32, metavar="N",
        help="for translation: only the first N texts (default: %(default)s)")  # fmt: skip
    add("--no-compile", action="store_true", help="leave compiled contenders out")


def main(arguments: argparse.Namespace, cases: Mapping[str, Any] = CASES) -> None:
    unknown = [name for name in arguments.cases if name not in cases]
    if unknown:
        raise ValueError(f"there is no case {unknown[0]!r}: choose from {', '.join(cases)}.")
    torch.set_num_threads(arguments.threads)
    report: dict[str, Any] = {"machine": machine(), "cases": {}}
    print(json.dumps(report["machine"]))
    for name, case in cases.items():
        needs = case.needs if isinstance(case, FileCase) else ()
        has_files = all(getattr(arguments, argument) is not None for argument in needs)
        if name not in arguments.cases and (arguments.cases or not has_files):
            continue
        if not has_files:
            raise ValueError(f"The case {name} needs {' and '.join(f'--{argument}' for argument in needs)}.")
        if arguments.new_tokens and isinstance(case, Case):
            case = replace(case, new_tokens=arguments.new_tokens)
        if isinstance(case, TranslationCase):
            case = replace(case, sources=arguments.sources)
        if isinstance(case, FileCase):
            case = replace(case, **{argument: getattr(arguments, argument) for argument in needs})
        rows = compare(case, case.contenders(not arguments.no_compile), arguments)
        report["cases"][name] = rows
        print(as_table(rows), flush=True)
        if arguments.json is not None:  # after each case, because the next one may take long
            write_json(arguments.json, report)

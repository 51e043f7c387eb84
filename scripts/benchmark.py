"""`weft benchmark`: decoding time and memory of Weft and its peers, side by side in one process on the same weights.

Every contender runs in turn, after warm-ups; a row gives the median, its range and its ratio to the first contender.
Outputs are compared before a time is reported.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from weft.scripts.benchmark_peers import Case, Contender, decoding_contenders, published_contenders

CASES = {
    "reference": Case("beam 5, 500 new tokens", beams=5),
    "greedy": Case("greedy, batch 1", new_tokens=200),
    "batch": Case("one beam, batch 16", batch=16, new_tokens=100),
    "beam10": Case("beam 10", beams=10, new_tokens=200),
    "beam50": Case("beam 50", beams=50, new_tokens=200),
    "published": Case("DirectMultiStep's search, beam 5", beams=5, new_tokens=500),
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft benchmark", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each contender (default: %(default)s)")
    parser.add_argument("--warm-ups", type=int, default=3, help="runs before those (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, help="tokens to write (default: the case's)")
    parser.add_argument("--peer-runs", type=int, default=1,
                        help="counted runs of directmultistep, which takes minutes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled step out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw the times to this file (needs matplotlib)")
    return parser


def _status(name: str) -> int | None:
    """A field of this process's memory in bytes, on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def peak_memory(run: Callable[[], Any]) -> tuple[Any, int | None]:
    """What a run returns, and by how much the process grew at its height, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # starts the high-water mark anew
        before = _status("VmRSS")
    except OSError:
        before = None
    result = run()
    height = _status("VmHWM")
    return result, None if before is None or height is None else max(0, height - before)


def agreement(first: list[list[int]], other: list[list[int]]) -> str:
    """How much of two outputs is the same."""
    if first == other:
        return "same tokens"
    pairs = zip(first, other, strict=True)
    parted = []
    for one, two in pairs:
        if one != two:
            shorter = min(len(one), len(two))
            parted.append(next((i for i in range(shorter) if one[i] != two[i]), shorter))
    return f"other tokens from token {min(parted) + 1} on"


def compare(case: Case, contenders: Iterable[Contender], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the contenders of one case in turn."""
    rows: list[dict[str, Any]] = []
    runs: list[Contender] = []
    for contender in contenders:
        is_slow = contender.name.startswith("directmultistep")
        started = time.perf_counter()
        output, memory = peak_memory(contender.run)  # the first run: compilation is in it
        first = time.perf_counter() - started
        for _ in range(0 if is_slow else arguments.warm_ups - 1):
            output, memory = peak_memory(contender.run)
        rows.append({"case": case.name, "contender": contender.name, "first_s": first, "peak_bytes": memory,
                     "tokens": output, "times_s": []})  # fmt: skip
        runs.append(contender)
    for turn in tqdm(range(arguments.runs), desc=case.name, unit="run"):
        for row, contender in zip(rows, runs, strict=True):
            if contender.name.startswith("directmultistep") and turn >= arguments.peer_runs:
                continue
            started = time.perf_counter()
            contender.run()
            row["times_s"].append(time.perf_counter() - started)
    base = statistics.median(rows[0]["times_s"])
    for row in rows:
        row["agreement"] = agreement(rows[0]["tokens"], row["tokens"])
        row["median_s"] = statistics.median(row["times_s"])
        row["times_faster"] = base / row["median_s"]
        row["ms_per_step"] = row["median_s"] / case.new_tokens * 1e3
    for row in rows:
        del row["tokens"]
    return rows


def as_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| case | contender | median (range), s | ms a step | times faster | peak memory, MB | first run, s | output |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        times = row["times_s"]
        memory = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.0f}"
        lines.append(
            f"| {row['case']} | {row['contender']} | {row['median_s']:.2f} ({min(times):.2f} to {max(times):.2f}, "
            f"{len(times)} runs) | {row['ms_per_step']:.2f} | {row['times_faster']:.2f} | {memory} | {row['first_s']:.1f} | "
            f"{row['agreement']} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    names = ("torch", "transformers", "directmultistep", "ctranslate2", "weft")
    versions = {name: _version(name) for name in names}
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cpu": model, "gpu": gpu, "threads": torch.get_num_threads(), "dtype": "float32", "versions": versions}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ValueError("--plot needs matplotlib: pip install weft[benchmark].") from error
    names = [f"{row['case']}: {row['contender']}" for row in rows]
    figure, axes = pyplot.subplots(figsize=(9, 0.35 * len(rows) + 1), layout="constrained")
    axes.barh(names, [row["ms_per_step"] for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel("ms a step")
    axes.invert_yaxis()
    figure.savefig(file)


def _version(name: str) -> str | None:
    """Of an installed package, else None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        raise ValueError(f"there is no case {unknown[0]!r}: choose of {', '.join(CASES)}.")
    for name in ("runs", "warm_ups", "threads", "peer_runs"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    torch.set_num_threads(arguments.threads)
    rows: list[dict[str, Any]] = []
    for name in arguments.cases or CASES:
        case = CASES[name]
        if arguments.new_tokens:
            case = Case(**(vars(case) | {"new_tokens": arguments.new_tokens}))
        compiled = not arguments.no_compile
        if name != "published":
            contenders = decoding_contenders(case, compiled, ctranslate2=_version("ctranslate2") is not None)
        elif _version("directmultistep") is not None:
            contenders = published_contenders(case, compiled)
        else:
            print("directmultistep is not installed (pip install weft[parity]): its case is left out.")
            continue
        rows += compare(case, contenders, arguments)
        print(as_table(rows[-len(rows) :]))
    report = {"machine": machine(), "rows": rows}
    print(json.dumps(report["machine"]))
    if arguments.json is not None:
        temporary = arguments.json.with_name(f".{arguments.json.name}.part")
        temporary.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        temporary.replace(arguments.json)
    if arguments.plot is not None:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()

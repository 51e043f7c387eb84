"""What the studies of pretraining, of distillation and of experts share: models trained with and without something."""

import argparse
import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weftformer.common.statistics import student_interval
from weftformer.common.whole_files import write_json
from weftformer.scripts.parsing import parse_arguments
from weftformer.training import fit_pairs
from weftformer.training.checkpoints import checkpoints
from weftformer.training.metrics import METRICS


def build_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every study."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        epilog="All other arguments are those of `weftformer train`, for the training on the pairs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --seed is no --seeds
    )
    add = parser.add_argument
    add("--train", type=Path, required=True, metavar="FILE", help="training pairs, as in `weftformer train`")
    add("--validation", type=Path, required=True, metavar="FILE", help="pairs that the loss is measured on")
    add("--output-dir", type=Path, required=True, metavar="FOLDER", help="folder for the models and results.json")
    add("--preset", default="modern-tiny", metavar="NAME", help="size of the model (default: %(default)s)")
    add("--steps", type=int, default=2000, metavar="N", help="training steps on the pairs (default: %(default)s)")
    add("--batch", type=int, default=32, metavar="N", help="pairs in a batch (default: %(default)s)")
    add("--save-steps", type=int, default=500, metavar="N", help="steps between checkpoints (default: %(default)s)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="seeds (default: 0 1 2)")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of a study. `further` has those of `weftformer train`, which are checked."""
    args, further = parser.parse_known_args(argv)
    for name, own in {"--max-steps": "--steps", "--seed": "--seeds"}.items():
        if any(word.replace("_", "-").split("=")[0] == name for word in further):
            parser.error(f"{name} is set by the study: give {own}.")
    parse_arguments(["--train-file", str(args.train), "--output-dir", str(args.output_dir), *further])
    args.further = further
    return args


def folder_of(args: argparse.Namespace, name: str, seed: int) -> Path:
    """Return the folder of a model."""
    return args.output_dir / "-".join([*name.replace(",", "").split(), str(seed)])


def train_pairs(args: argparse.Namespace, name: str, seed: int, words: Sequence[Any]) -> dict[str, float]:
    """Train a model on the pairs with further arguments of `weftformer train`, from its last checkpoint if there is one. Return
    its loss of the validation pairs, and its scores where the arguments ask for `--generation-metrics`."""
    asked = ["--train-file", args.train, "--validation-file", args.validation, "--seed", seed, "--max-steps", args.steps,
             "--per-device-train-batch-size", args.batch, "--output-dir", folder_of(args, name, seed),
             "--save-strategy", "steps", "--save-steps", args.save_steps, "--save-total-limit", 1, "--resume-from-checkpoint", "true",
             "--eval-strategy", "no", "--no-predict-with-generate", *words, *args.further]  # fmt: skip
    found = fit_pairs(*parse_arguments([str(word) for word in asked])).trainer.evaluate()
    measures = ("loss", *(name for name in METRICS if f"eval_{name}" in found))
    return {name: found[f"eval_{name}"] for name in measures}


def compare(args: argparse.Namespace, subject: str, ways_of: Callable[[int], dict[str, Sequence[Any]]]) -> None:
    """
    Train a model for each seed and each way, write what was measured to `results.json`, and print a table of each measure.

    The file is written after each model, whose checkpoints are then removed. The same command goes on from there.

    Args:
        args (`argparse.Namespace`):
            The arguments of [`build_parser`].
        subject (`str`):
            The head of the table's first column.
        ways_of (`Callable[[int], dict[str, Sequence]]`):
            Returns the ways to train for a seed: their names, and further arguments of `weftformer train`.

    Raises:
        ValueError: the results in the folder are those of other arguments.
    """
    file = args.output_dir / "results.json"
    settings = {
        name: str(value) for name, value in vars(args).items() if name not in ("seeds", "output_dir", "save_steps")
    }
    results: dict[str, dict[str, dict[str, float]]] = {}
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["settings"] != settings:
            raise ValueError(f"{file} has the results of other arguments: give another --output-dir.")
        results = found["results"]
    else:  # so that no model is begun with some arguments and finished with others
        args.output_dir.mkdir(parents=True, exist_ok=True)
        write_json(file, {"settings": settings, "results": results})
    for seed in args.seeds:
        for name, words in ways_of(seed).items():
            if str(seed) not in results.setdefault(name, {}):
                results[name][str(seed)] = train_pairs(args, name, seed, words)
                write_json(file, {"settings": settings, "results": results})
            for checkpoint in checkpoints(folder_of(args, name, seed)):
                shutil.rmtree(checkpoint)
    print(tables(results, subject, args.seeds))


def tables(results: Mapping[str, Mapping[str, Mapping[str, float]]], subject: str, seeds: Sequence[int]) -> str:
    """
    Return a table of each measure. It has a row for each way, and one for its difference to the first way.

    With two seeds or more the mean difference has its 95 % interval ([`~common.statistics.student_interval`]), because the
    models of a seed see the same batches.

    Args:
        results (`dict[str, dict[str, dict[str, float]]]`):
            The measures of each way and each seed (as text), as in `results.json`.
        subject (`str`):
            The head of the first column.
        seeds (`Sequence[int]`):
            The seeds to show.
    """
    first, *others = results
    lines = []
    for measure in results[first][str(seeds[0])]:
        values = {name: [by_seed[str(seed)][measure] for seed in seeds] for name, by_seed in results.items()}
        lines.append(f"| {subject}: {measure} | {' | '.join(f'seed {seed}' for seed in seeds)} | mean |")
        lines.append("| --- |" + " --- |" * (len(seeds) + 1))
        for name, found in values.items():
            cells = [*(f"{value:.3f}" for value in found), f"{statistics.mean(found):.3f}"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        for name in others:
            found = [there - here for here, there in zip(values[first], values[name], strict=True)]
            cells = [*(f"{value:+.3f}" for value in found), f"{statistics.mean(found):+.3f}"]
            if len(seeds) > 1:
                low, high = student_interval(found)
                cells[-1] += f" [{low:+.3f}, {high:+.3f}]"
            lines.append(f"| {name}, minus {first} | {' | '.join(cells)} |")
    return "\n".join(lines)

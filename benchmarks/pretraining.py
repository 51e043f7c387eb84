"""Does pretraining help: the loss on held-out pairs after equally many steps, with and without, for several seeds.

    python -m weftformer.benchmarks.pretraining --texts corpus.txt.gz --train pairs.csv --validation more.csv --output-dir runs/pretraining

Every seed pretrains a model and its vocabulary on the texts, trains it on the pairs, and trains one of the same size and
vocabulary on the pairs alone.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from weftformer.scripts.cli import run_script
from weftformer.training import fit_pairs, fit_texts, parse_arguments, parse_pretraining_arguments


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.pretraining", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="plain texts, one a line")
    parser.add_argument("--train", type=Path, required=True, help="pairs, as in weftformer train")
    parser.add_argument("--validation", type=Path, required=True, help="pairs that the loss is measured on")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--objective", choices=("span", "infilling", "ul2"), default="span")
    parser.add_argument("--preset", default="modern-tiny", help="size of the model (default: %(default)s)")
    parser.add_argument("--pretraining-steps", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    losses: dict[str, list[float]] = {"with": [], "without": []}
    for seed in args.seeds:
        first = args.output_dir / f"pretrained-{seed}"
        shared = ["--seed", seed, "--save-strategy", "no", "--per-device-train-batch-size", args.batch]
        words = ["--train-file", args.texts, "--objective", args.objective, "--preset", args.preset]
        words += ["--output-dir", first, "--max-steps", args.pretraining_steps, *shared]
        fit_texts(*parse_pretraining_arguments([str(word) for word in words]))
        starts = {
            "with": ["--model-name-or-path", first],
            "without": ["--preset", args.preset, "--tokenizer-name", first],
        }
        for name, start in starts.items():
            words = ["--train-file", args.train, "--validation-file", args.validation, "--eval-strategy", "no"]
            words += ["--output-dir", args.output_dir / f"{name}-{seed}", "--max-steps", args.steps, *shared, *start]
            words += ["--no-predict-with-generate"]
            trainer = fit_pairs(*parse_arguments([str(word) for word in words])).trainer
            losses[name].append(trainer.evaluate()["eval_loss"])
    write_table("pretraining", losses, args.seeds, args.output_dir)


def write_table(subject: str, losses: dict[str, list[float]], seeds: Sequence[int], folder: Path) -> None:
    """Print a row for each way to train, a column for each seed; and write `losses.json`."""
    (folder / "losses.json").write_text(json.dumps(losses, indent=1) + "\n", encoding="utf-8")
    print(f"| {subject} | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean |")
    print("| --- |" + " --- |" * (len(seeds) + 1))
    for name, found in losses.items():
        print(f"| {name} | " + " | ".join(f"{loss:.3f}" for loss in [*found, statistics.mean(found)]) + " |")


if __name__ == "__main__":
    sys.exit(run_script("benchmark pretraining", main))

"""Does a teacher help: the loss on held-out pairs of a small model after equally many steps, with and without, several seeds.

    python -m weftformer.benchmarks.distillation --teacher runs/model --train pairs.csv --validation more.csv --output_dir runs/distilled

The student's size is `--config_overrides`: for a quarter of the teacher's parameters, half its width and feed-forward.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from weftformer.scripts.cli import run_script
from weftformer.training import fit_pairs, parse_arguments

from .pretraining import write_table


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.distillation", description=__doc__)
    parser.add_argument("--teacher", type=Path, required=True, help="folder of a trained model")
    parser.add_argument("--train", type=Path, required=True, help="pairs, as in weftformer train")
    parser.add_argument("--validation", type=Path, required=True, help="pairs that the loss is measured on")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--preset", default="modern-tiny", help="size of the student (default: %(default)s)")
    parser.add_argument("--config_overrides", default="", help="fields of the student's configuration")
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    weights = ["--distillation_temperature", args.temperature, "--distillation_alpha", args.alpha]
    ways: dict[str, list] = {
        "with": ["--teacher", args.teacher, *weights],
        "without": ["--tokenizer_name", args.teacher],
    }
    losses: dict[str, list[float]] = {name: [] for name in ways}
    for seed in args.seeds:
        for name, way in ways.items():
            words = ["--train_file", args.train, "--validation_file", args.validation, "--preset", args.preset]
            words += ["--config_overrides", args.config_overrides, "--output_dir", args.output_dir / f"{name}-{seed}"]
            words += ["--seed", seed, "--max_steps", args.steps, "--per_device_train_batch_size", args.batch]
            words += ["--eval_strategy", "no", "--save_strategy", "no", "--no_predict_with_generate", *way]
            trainer = fit_pairs(*parse_arguments([str(word) for word in words])).trainer
            losses[name].append(trainer.evaluate()["eval_loss"])
    write_table("teacher", losses, args.seeds, args.output_dir)


if __name__ == "__main__":
    sys.exit(run_script("benchmark distillation", main))

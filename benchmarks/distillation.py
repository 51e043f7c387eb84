"""Measure what a teacher is worth: the loss of a small model on held-out pairs, trained with and without it.

    python -m weftformer.benchmarks.distillation --teacher runs/model --train pairs.csv --validation more.csv --output-dir runs/distilled

Both take equally many steps. `--config-overrides` sets the size of the student: for a quarter of the teacher's parameters,
give half its width and half its feed-forward.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftformer.benchmarks.studies import build_parser, compare, parse
from weftformer.scripts.cli import run_script


def main(argv: Sequence[str] | None = None) -> None:
    """Train the students, and print the table."""
    parser = build_parser("weftformer.benchmarks.distillation", __doc__)
    add = parser.add_argument
    add("--teacher", type=Path, required=True, metavar="FOLDER", help="folder of a trained model")
    add("--config-overrides", default="", metavar="A=1,B=2", help="fields of the student's configuration")
    add("--temperature", type=float, default=2.0, help="see `weftformer train --distillation-temperature`")
    add("--alpha", type=float, default=0.5, help="see `weftformer train --distillation-alpha`")
    args = parse(parser, argv)
    size = ["--preset", args.preset, "--config-overrides", args.config_overrides]
    weights = ["--distillation-temperature", args.temperature, "--distillation-alpha", args.alpha]
    ways: dict[str, Sequence[Any]] = {
        "with": [*size, "--teacher", args.teacher, *weights],
        "without": [*size, "--tokenizer-name", args.teacher],
    }
    compare(args, "teacher", lambda seed: ways)


if __name__ == "__main__":
    sys.exit(run_script("benchmark distillation", main))

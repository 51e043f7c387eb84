"""Measure what pretraining is worth: the loss of a model on held-out pairs, trained with and without it.

    python -m weftformer.benchmarks.pretraining --texts corpus.txt.gz --train pairs.csv --validation more.csv --output-dir runs/pretraining

For each seed, a model and its vocabulary are pretrained on the texts and trained on the pairs. Two new models of the same
size and vocabulary are trained on the pairs: one for equally many steps on the pairs, one for equally many steps in all.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftformer.benchmarks.studies import build_parser, compare, parse
from weftformer.scripts.cli import run_script
from weftformer.scripts.parsing import parse_pretraining_arguments
from weftformer.training import fit_texts


def main(argv: Sequence[str] | None = None) -> None:
    """Pretrain and train the models, and print the table."""
    parser = build_parser("weftformer.benchmarks.pretraining", __doc__)
    add = parser.add_argument
    add("--texts", type=Path, required=True, metavar="FILE", help="plain texts, one a line")
    add("--objective", choices=("span", "infilling", "ul2"), default="span", help="see `weftformer pretrain`")
    add("--pretraining-steps", type=int, default=4000, metavar="N", help="steps on the texts (default: %(default)s)")
    args = parse(parser, argv)

    def ways(seed: int) -> dict[str, Sequence[Any]]:
        first = args.output_dir / f"pretrained-{seed}"
        asked = ["--train-file", args.texts, "--objective", args.objective, "--preset", args.preset, "--seed", seed,
                 "--output-dir", first, "--max-steps", args.pretraining_steps, "--save-strategy", "no",
                 "--per-device-train-batch-size", args.batch]  # fmt: skip
        if not (first / "config.json").exists():  # else the command goes on
            fit_texts(*parse_pretraining_arguments([str(word) for word in asked]))
        new = ["--preset", args.preset, "--tokenizer-name", first]
        return {
            "with": ["--model-name-or-path", first],
            "without": new,
            "without, as many steps in all": [*new, "--max-steps", args.steps + args.pretraining_steps],
        }

    compare(args, "pretraining", ways)


if __name__ == "__main__":
    sys.exit(run_script("benchmark pretraining", main))

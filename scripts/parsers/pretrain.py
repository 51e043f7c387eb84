"""The arguments of `weftformer pretrain` that are used most; all of them are fields of the dataclasses in `training/arguments.py`."""

import argparse

from ..arguments import CommonHelp
from .training_options import add_shared


def build_parser() -> argparse.ArgumentParser:
    parser = CommonHelp(
        prog="weftformer pretrain",
        usage="weftformer pretrain [FILE.yaml] --train-file TEXTS --output-dir FOLDER --max-steps N [--option value ...]",
        description="Train a model to mend corrupted texts, and save it in a folder that `weftformer train` goes on from.",
        epilog="These are the options that are used most. `weftformer pretrain --help-all` shows all of them, those of\n"
        "transformers' Seq2SeqTrainingArguments among them. A YAML or JSON file in front holds options by their names.\n\n"
        "examples:\n"
        "  weftformer pretrain --train-file corpus.txt.gz --objective span --preset modern-tiny --max-steps 20000 \\\n"
        "      --output-dir runs/pretrained\n"
        "  weftformer train --model-name-or-path runs/pretrained --train-file pairs.csv --output-dir runs/mine",
    )
    add = parser.add_argument_group("what is needed most").add_argument
    add("--train-file", metavar="FILE", help="texts, one document a line: txt or txt.gz")
    add_shared(add, "--output-dir")
    add("--max-steps", type=int, metavar="N", help="steps; the texts are read as often as it takes")
    add(
        "--objective",
        choices=("span", "infilling", "ul2"),
        default="span",
        help="T5's span corruption, BART's text infilling, UL2's mixture (default: %(default)s)",
    )
    add("--preset", metavar="NAME", help="size of a new model: modern-tiny, modern-small, transformer-base, ...")
    add_shared(add, "--learning-rate", "--per-device-train-batch-size", items="texts")
    add_shared(add, "--resume-from-checkpoint", "--overwrite-output-dir")
    add = parser.add_argument_group("data").add_argument
    add("--validation-file", metavar="FILE", help="texts to watch the loss on")
    add("--max-source-length", type=int, metavar="N", help="most tokens of a corrupted text (default: the model's)")
    add("--max-target-length", type=int, metavar="N", help="most tokens to be written (default: the model's)")
    add("--shuffle-buffer", type=int, default=10_000, metavar="N",
        help="lines that are shuffled among each other (default: %(default)s)")  # fmt: skip
    add = parser.add_argument_group("model").add_argument
    add_shared(add, "--model-name-or-path", "--config-overrides", "--tokenizer-vocab-size")
    add = parser.add_argument_group("training").add_argument
    add_shared(add, "--gradient-accumulation-steps", "--bf16")
    add("--save-steps", type=int, default=500, metavar="N", help="steps between checkpoints (default: %(default)s)")
    add("--eval-steps", type=int, default=500, metavar="N", help="steps between evaluations (default: %(default)s)")
    add("--seed", type=int, default=42, help="of weights, order and corruption (default: %(default)s)")
    add_shared(add, "--report-to", "--help-all")
    return parser

"""The arguments of `weftformer train` that are used most; all of them are fields of the dataclasses in `training/arguments.py`."""

import argparse

from ..arguments import CommonHelp
from .training_options import add_shared


def build_parser() -> argparse.ArgumentParser:
    parser = CommonHelp(
        prog="weftformer train",
        usage="weftformer train [FILE.yaml] --train-file PAIRS --output-dir FOLDER [--option value ...]",
        description="Train a model on pairs of texts, score it by generating, and save it in a folder that loads.",
        epilog="These are the options that are used most. `weftformer train --help-all` shows all of them, those of transformers'\n"
        "Seq2SeqTrainingArguments among them. A YAML or JSON file in front holds options by their names.\n\n"
        "examples:\n"
        "  weftformer train --train-file pairs.csv --source-column question --target-column answer --preset modern-tiny \\\n"
        "      --output-dir runs/mine\n"
        "  weftformer train --train-file de.txt --train-target-file en.txt --preset modern-small --output-dir runs/de-en",
    )
    add = parser.add_argument_group("what is needed most").add_argument
    add(
        "--train-file", metavar="FILE", help="pairs: csv, tsv, json, jsonl, parquet or txt with tabs, .gz and .zst too"
    )
    add_shared(add, "--output-dir")
    add("--source-column", metavar="NAME", help="column to read (default: source, else the first)")
    add("--target-column", metavar="NAME", help="column to learn to write (default: target, else the second)")
    add(
        "--preset",
        metavar="NAME",
        help="size of a new model: modern-tiny, modern-small, modern-base, transformer-base, ...",
    )
    add("--num-train-epochs", type=float, default=10.0, help="times through the pairs (default: %(default)s)")
    add_shared(add, "--learning-rate", "--per-device-train-batch-size", items="pairs")
    add_shared(add, "--resume-from-checkpoint", "--overwrite-output-dir")
    add = parser.add_argument_group("data").add_argument
    add(
        "--train-target-file",
        metavar="FILE",
        help="the targets line by line, where --train-file has one source a line",
    )
    add("--validation-file", metavar="FILE", help="pairs to watch (default: 5 %% of the training pairs)")
    add("--test-file", metavar="FILE", help="pairs to score the trained model on")
    add("--dataset-name", metavar="NAME", help="a data set on the Hub instead of files")
    add("--streaming", action="store_true", help="read pairs that do not fit into memory, files too: pairs-*.jsonl.gz")
    add(
        "--shuffle-buffer-size",
        type=int,
        default=10_000,
        metavar="N",
        help="pairs of a stream that are shuffled at a time (default: %(default)s)",
    )
    add("--condition-columns", metavar="A,B", help="columns of numbers that the model is told beside the source")
    add("--max-train-samples", type=int, metavar="N", help="train on the first N pairs only")
    add = parser.add_argument_group("model").add_argument
    add_shared(add, "--model-name-or-path")
    add("--teacher", metavar="MODEL", help="learn from this model too, which has the same vocabulary")
    add_shared(add, "--config-overrides", "--tokenizer-vocab-size")
    add = parser.add_argument_group("training").add_argument
    add("--max-steps", type=int, default=-1, metavar="N", help="steps instead of epochs")
    add("--max-tokens-per-batch", type=int, metavar="N", help="batches by tokens instead of pairs")
    add_shared(add, "--gradient-accumulation-steps", "--bf16")
    add("--seed", type=int, default=42, help="of weights and order (default: %(default)s)")
    add_shared(add, "--report-to")
    add("--push-to-hub", metavar="true", help="push model, tokenizer and card to the Hub")
    add_shared(add, "--help-all")
    return parser

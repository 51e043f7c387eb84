"""The arguments of `weftformer train` that are used most; all of them are fields of the dataclasses in `training/arguments.py`."""

import argparse

from ..arguments import CommonHelp


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
    add("--train-file", metavar="FILE", help="pairs: csv, tsv, json, jsonl, parquet or txt with tabs, .gz too")
    add("--output-dir", metavar="FOLDER", help="folder for the model and its checkpoints")
    add("--source-column", metavar="NAME", help="column to read (default: source, else the first)")
    add("--target-column", metavar="NAME", help="column to learn to write (default: target, else the second)")
    add(
        "--preset",
        metavar="NAME",
        help="size of a new model: modern-tiny, modern-small, modern-base, transformer-base, ...",
    )
    add("--num-train-epochs", type=float, default=10.0, help="times through the pairs (default: %(default)s)")
    add("--learning-rate", type=float, default=5e-4, help="highest learning rate (default: %(default)s)")
    add(
        "--per-device-train-batch-size",
        type=int,
        default=32,
        metavar="N",
        help="pairs in a batch (default: %(default)s)",
    )
    add("--resume-from-checkpoint", metavar="true", help="go on where a run was interrupted")
    add("--overwrite-output-dir", action="store_true", help="begin again in a folder that is not empty")
    add = parser.add_argument_group("data").add_argument
    add(
        "--train-target-file",
        metavar="FILE",
        help="the targets line by line, where --train-file has one source a line",
    )
    add("--validation-file", metavar="FILE", help="pairs to watch (default: 5 %% of the training pairs)")
    add("--test-file", metavar="FILE", help="pairs to score the trained model on")
    add("--dataset-name", metavar="NAME", help="a data set on the Hub instead of files")
    add("--condition-columns", metavar="A,B", help="columns of numbers that the model is told beside the source")
    add("--max-train-samples", type=int, metavar="N", help="train on the first N pairs only")
    add = parser.add_argument_group("model").add_argument
    add("--model-name-or-path", metavar="MODEL", help="go on from this folder or Hub id instead of a new model")
    add("--teacher", metavar="MODEL", help="learn from this model too, which has the same vocabulary")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the configuration, such as d_model=256,dropout=0.2")
    add(
        "--tokenizer-vocab-size",
        type=int,
        default=8000,
        metavar="N",
        help="most tokens of a new vocabulary (default: %(default)s)",
    )
    add = parser.add_argument_group("training").add_argument
    add("--max-steps", type=int, default=-1, metavar="N", help="steps instead of epochs")
    add("--max-tokens-per-batch", type=int, metavar="N", help="batches by tokens instead of pairs")
    add("--packing", action="store_true", help="several pairs in each row of training")
    add(
        "--gradient-accumulation-steps", type=int, default=1, metavar="N", help="batches a step (default: %(default)s)"
    )
    add("--bf16", action="store_true", help="compute in bfloat16, on GPUs that have it")
    add("--seed", type=int, default=42, help="of weights and order (default: %(default)s)")
    add("--report-to", metavar="NAME", help="tensorboard, wandb, trackio, ...: where losses go")
    add("--push-to-hub", metavar="true", help="push model, tokenizer and card to the Hub")
    add("--help-all", action="store_true", help="show every option")
    return parser

"""Train a model to restore corrupted texts, and save it in a folder from which `weftformer train` continues."""

import argparse
import sys

from weftformer.scripts import cli
from weftformer.scripts.training_options import add_options, check_words
from weftformer.training.options import ModelArguments, PretrainingArguments, PretrainingOptions

EPILOG = """These are the options that are used most. `weftformer pretrain --help-all` shows all of them, those of
transformers' Seq2SeqTrainingArguments among them. A YAML or JSON file in front contains options by name.

examples:
  weftformer pretrain --train-file corpus.txt.gz --preset modern-tiny --max-steps 20000 \\
      --output-dir runs/pretrained
  weftformer train --model-name-or-path runs/pretrained --train-file pairs.csv --output-dir runs/mine"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "weftformer pretrain [FILE.yaml] --train-file TEXTS --output-dir FOLDER --max-steps N [--option value ...]"
    )
    add_options(parser, PretrainingArguments, ModelArguments, PretrainingOptions)


def check(args: argparse.Namespace) -> None:
    check_words(args.words, ModelArguments, PretrainingArguments, PretrainingOptions)


def main(args: argparse.Namespace) -> None:
    """Read the arguments and train.

    Raises:
        ValueError, FileNotFoundError: something in the arguments or the texts is not as it should be.
    """
    from weftformer.common.agent import end_with_agent
    from weftformer.scripts.parsing import ArgumentParser
    from weftformer.scripts.train import set_up_logging
    from weftformer.training import WeftPretrainingArguments, fit_texts

    end_with_agent()  # before the arguments, which wait for the other processes
    kinds = [ModelArguments, PretrainingArguments, WeftPretrainingArguments]
    model_args, data_args, training_args = ArgumentParser(kinds, prog="weftformer pretrain").parse(args.words)
    set_up_logging(training_args.is_main_process)
    fit_texts(model_args, data_args, training_args)
    if training_args.is_main_process:
        folder = training_args.output_dir
        print(f"Saved in {folder}. To continue: weftformer train --model-name-or-path {folder} --train-file PAIRS ...")


if __name__ == "__main__":
    sys.exit(cli.main(["pretrain", *sys.argv[1:]]))

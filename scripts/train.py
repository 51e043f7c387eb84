"""Train a model on pairs of texts, score generated texts, and save it in a folder for `from_pretrained`."""

import argparse
import shlex
from pathlib import Path

from weftformer.scripts.arguments import add_common_options
from weftformer.training.options import DataArguments, ModelArguments, TrainingOptions

EPILOG = """These are the most used options. `weftformer train --help-all` shows all options, including those of
transformers' Seq2SeqTrainingArguments. A YAML or JSON file as the first argument sets options by name. Start several
processes with `torchrun --nproc_per_node N -m weftformer train` or `accelerate launch -m weftformer train`.

examples:
  weftformer train --train-file pairs.csv --source-column question --target-column answer --output-dir runs/mine
  weftformer train --train-file de.txt --train-target-file en.txt --preset modern-small --output-dir runs/de-en"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "weftformer train [FILE.yaml] --train-file PAIRS --output-dir FOLDER [--option value ...]"
    add_common_options(parser, DataArguments, ModelArguments, TrainingOptions)


def main(args: argparse.Namespace) -> None:
    """Read the arguments and train.

    Raises:
        ValueError, FileNotFoundError: the arguments or the data are not valid.
    """
    from weftformer.common.agent import end_with_agent
    from weftformer.scripts.parsing import parse_arguments
    from weftformer.training import fit_pairs

    end_with_agent()  # before the arguments, which wait for the other processes
    model_args, data_args, training_args = parse_arguments(args.words)
    set_up_logging(training_args.is_main_process)
    training = fit_pairs(model_args, data_args, training_args)
    if training_args.is_main_process:
        training.report.command = shlex.join(["weftformer", "train", *args.words])
        print(training.report)
        print(_how_to_use(training_args.output_dir, training.example, len(data_args.condition_names)))


def _how_to_use(folder: str, source: str, num_conditions: int) -> str:
    words = ["weftformer", "generate", "--model", folder]
    if num_conditions:  # the command takes conditions from a table
        words += ["--input-file", "NEW.csv"]
    elif source.startswith("-"):  # a text, not an option
        words += ["--", source]
    else:
        words.append(source)
    card = Path(folder) / "README.md"
    return f"Saved in {folder}. To use it:\n  {shlex.join(words)}\nIn Python: {card} has the lines."


def set_up_logging(is_main_process: bool) -> None:
    import logging

    import datasets

    logging.basicConfig(format="%(message)s")
    logging.getLogger("weftformer").setLevel(logging.INFO if is_main_process else logging.ERROR)
    if not is_main_process:
        datasets.disable_progress_bars()

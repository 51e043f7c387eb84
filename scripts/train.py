"""Train a model on pairs of texts, score generated texts, and save it in a folder for `from_pretrained`."""

import argparse
from pathlib import Path

from weftformer.common.commands import command_line
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
    training = fit_pairs(model_args, data_args, training_args, words=args.words)
    if training_args.is_main_process:
        print(training.report)
        print(how_to_use(training_args.output_dir, training.example, data_args))


def how_to_use(folder: str, source: str, args: DataArguments) -> str:
    """Return the last lines of a training: the folder of the model, and a command that uses it."""
    options: dict[str, str | None] = {"--model": folder}
    if args.condition_names:  # the command takes conditions from a table
        options |= {"--input-file": args.train_file, "--condition-columns": args.condition_columns}
    command = command_line(["generate"], options, [] if args.condition_names else [source])
    use = "" if args.condition_names and not args.train_file else f" To use it:\n  {command}"
    return f"Saved in {folder}.{use}\nIn Python: {Path(folder) / 'README.md'} has the lines."


def set_up_logging(is_main_process: bool) -> None:
    import logging

    import datasets

    logging.basicConfig(format="%(message)s")
    logging.getLogger("weftformer").setLevel(logging.INFO if is_main_process else logging.ERROR)
    if not is_main_process:
        datasets.disable_progress_bars()

"""Train a model on pairs of texts, score generated texts, and save it in a folder for `from_pretrained`."""

import argparse
import shlex

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
    fitted = fit_pairs(model_args, data_args, training_args)
    if training_args.is_main_process:
        fitted.report.command = shlex.join(["weftformer", "train", *args.words])
        print(fitted.report)
        print(_how_to_use(training_args.output_dir, fitted.example, len(data_args.condition_names)))


def _how_to_use(folder: str, source: str, num_conditions: int) -> str:
    conditions = f", condition_values=torch.tensor([{[1.0] * num_conditions}])" if num_conditions else ""
    imports = (
        "import torch, weftformer, transformers as t" if num_conditions else "import weftformer, transformers as t"
    )
    words = ["weftformer", "generate", "--model", folder, *(["--"] if source.startswith("-") else []), source]
    # the command takes conditions from a table
    command = "" if num_conditions else f"  {shlex.join(words)}\nOr in Python:\n"
    return (
        f"Saved in {folder}. To use it:\n{command}"
        f"  {imports}; tokenizer, model = (c.from_pretrained({folder!r}) for c in (t.AutoTokenizer, "
        "t.AutoModelForSeq2SeqLM))\n"
        f'  print(tokenizer.batch_decode(model.generate(**tokenizer([{source!r}], return_tensors="pt"){conditions}), '
        "skip_special_tokens=True))"
    )


def set_up_logging(is_main_process: bool) -> None:
    import logging

    import datasets

    logging.basicConfig(format="%(message)s")
    logging.getLogger("weftformer").setLevel(logging.INFO if is_main_process else logging.ERROR)
    if not is_main_process:
        datasets.disable_progress_bars()

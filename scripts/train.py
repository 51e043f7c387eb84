"""`weftformer train`: train a Weft model on pairs of texts with `Seq2SeqTrainer`, evaluate it by generation, save it.

Runs as `weftformer train`, `python -m weftformer.scripts.train`, and under `torchrun --nproc_per_node N -m weftformer.scripts.train` or
`accelerate launch -m weftformer.scripts.train`.
"""

import logging
import shlex
import sys
from collections.abc import Sequence

import datasets

from weftformer.common.agent import end_with_agent
from weftformer.scripts.cli import run_script
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import fit_pairs, parse_arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments and train.

    Raises:
        ValueError, FileNotFoundError: something in the arguments or the data is not as it should be.
    """
    end_with_agent()  # before the arguments, which wait for the other processes
    model_args, data_args, training_args = parse_arguments(argv)
    set_up_logging(training_args.is_main_process)
    trainer, example = fit_pairs(model_args, data_args, training_args)
    if training_args.is_main_process:
        count = len(data_args.condition_names)
        # there, conditions are columns of a table, and models of routes are asked by another command
        in_a_shell = not count and trainer.processing_class.get_vocab() != build_route_tokenizer().get_vocab()
        print(_how_to_use(training_args.output_dir, example, count, in_a_shell))


def _how_to_use(folder: str, source: str, num_conditions: int, in_a_shell: bool) -> str:
    conditions = f", condition_values=torch.tensor([{[1.0] * num_conditions}])" if num_conditions else ""
    imports = (
        "import torch, weftformer, transformers as t" if num_conditions else "import weftformer, transformers as t"
    )
    words = ["weftformer", "generate", "--model", folder, *(["--"] if source.startswith("-") else []), source]
    command = f"  {shlex.join(words)}\nOr in Python:\n" if in_a_shell else ""
    return (
        f"Saved in {folder}. To use it:\n{command}"
        f"  {imports}; tokenizer, model = (c.from_pretrained({folder!r}) for c in (t.AutoTokenizer, t.AutoModelForSeq2SeqLM))\n"
        f'  print(tokenizer.batch_decode(model.generate(**tokenizer([{source!r}], return_tensors="pt"){conditions}), '
        "skip_special_tokens=True))"
    )


def set_up_logging(is_main_process: bool) -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("weftformer").setLevel(logging.INFO if is_main_process else logging.ERROR)
    if not is_main_process:
        datasets.disable_progress_bars()


if __name__ == "__main__":
    sys.exit(run_script("train", main))

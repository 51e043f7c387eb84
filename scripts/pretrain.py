"""`weftformer pretrain`: train a Weft model to mend corrupted texts, before it is trained on pairs.

Runs as `weftformer pretrain`, `python -m weftformer.scripts.pretrain`, and under
`torchrun --nproc_per_node N -m weftformer.scripts.pretrain`.
"""

import sys
from collections.abc import Sequence

from weftformer.common.agent import end_with_agent
from weftformer.scripts.cli import run_script
from weftformer.scripts.train import set_up_logging
from weftformer.training import fit_texts, parse_pretraining_arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments and train.

    Raises:
        ValueError, FileNotFoundError: something in the arguments or the texts is not as it should be.
    """
    end_with_agent()  # before the arguments, which wait for the other processes
    model_args, data_args, training_args = parse_pretraining_arguments(argv)
    set_up_logging(training_args.is_main_process)
    fit_texts(model_args, data_args, training_args)
    if training_args.is_main_process:
        folder = training_args.output_dir
        print(f"Saved in {folder}. To go on: weftformer train --model-name-or-path {folder} --train-file PAIRS ...")


if __name__ == "__main__":
    sys.exit(run_script("pretrain", main))

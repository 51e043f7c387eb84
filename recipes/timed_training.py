"""`weftformer train` until a given time, for a GPU that is free for some minutes.

    python -m weftformer.recipes.timed_training END --train-file pairs.csv --output-dir runs/mine ...

END is a value of `time.monotonic()`. Training ends then or after `--max-steps`, and the model is saved and evaluated.
No trial has to measure how many steps fit: a linear schedule follows the clock, with the highest learning rate in the
first quarter of the time, and 0 at its end. Other schedules follow the steps.
"""

import argparse
import sys
import time

from transformers import SchedulerType, TrainerCallback

from weftformer.scripts.cli import run_script
from weftformer.scripts.parsing import parse_arguments
from weftformer.scripts.train import set_up_logging
from weftformer.training import WeftTrainingArguments, fit_pairs

# The share of the time in which the learning rate decays.
_DECAY = 0.75


class ClockCallback(TrainerCallback):
    """Trains until a given time.

    Args:
        end: the time, as `time.monotonic()` has it.
        args: the training arguments.
    """

    def __init__(self, end: float, args: WeftTrainingArguments):
        self.start, self.end, self.args = time.monotonic(), end, args

    def schedule(self, step: int, num_steps: int) -> float:
        """Return the factor of the learning rate, for `WeftTrainer`."""
        warmup = self.args.get_warmup_steps(num_steps)
        remainder = (self.end - time.monotonic()) / max(self.end - self.start, 1.0)
        return max(0.0, min(1.0, step / warmup if warmup else 1.0, remainder / _DECAY))

    def on_train_begin(self, args, state, control, **kwargs):
        self.start = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= time.monotonic() >= self.end


def main(arguments: argparse.Namespace) -> None:
    model_args, data_args, training_args = parse_arguments(arguments.words)
    set_up_logging(training_args.is_main_process)
    clock = ClockCallback(arguments.end, training_args)
    schedule = clock.schedule if training_args.lr_scheduler_type == SchedulerType.LINEAR else None
    print(fit_pairs(model_args, data_args, training_args, callbacks=[clock], schedule=schedule).report)


if __name__ == "__main__":
    end, *words = sys.argv[1:]
    sys.exit(run_script("recipes.timed_training", main, argparse.Namespace(end=float(end), words=words)))

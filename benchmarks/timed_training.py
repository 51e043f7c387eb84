"""`weftformer train` until a given time, for a GPU that is free for some minutes.

    python -m weftformer.benchmarks.timed_training END --train-file pairs.csv --output-dir runs/mine ...

END is a value of `time.monotonic()`. Training ends then or after `--max-steps`, and the model is saved and evaluated.
No trial has to measure how many steps fit: a linear schedule follows the clock, with the highest learning rate in the
first quarter of the time, and 0 at its end. Other schedules follow the steps.
"""

import argparse
import sys
import time
from functools import partial
from typing import Any

import torch
from transformers import SchedulerType, TrainerCallback

from weftformer.scripts import train
from weftformer.scripts.cli import run_script
from weftformer.training import fitting
from weftformer.training.trainer import WeftTrainer

# The share of the time in which the learning rate decays.
_DECAY = 0.75


class TimedTrainer(WeftTrainer):
    """[`WeftTrainer`] that trains until a given time.

    Args:
        end: the time, as `time.monotonic()` has it.
        args, kwargs: the arguments of [`WeftTrainer`].
    """

    lr_scheduler: Any

    def __init__(self, *args: Any, end: float, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.end = end
        self.add_callback(_StopAt(end))

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: Any) -> Any:
        """Create the schedule, which follows the clock if it is linear."""
        if self.args.lr_scheduler_type == SchedulerType.LINEAR and self.lr_scheduler is None:
            begun, warmup = time.monotonic(), self.args.get_warmup_steps(num_training_steps)

            def factor(step: int) -> float:
                left = (self.end - time.monotonic()) / max(self.end - begun, 1.0)
                return max(0.0, min(1.0, (step + 1) / max(warmup, 1), left / _DECAY))

            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        return super().create_scheduler(num_training_steps, *args, **kwargs)


class _StopAt(TrainerCallback):
    def __init__(self, end: float):
        self.end = end

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= time.monotonic() >= self.end


def main(arguments: argparse.Namespace) -> None:
    fitting.WeftTrainer = partial(TimedTrainer, end=arguments.end)  # type: ignore[assignment,misc]
    train.main(arguments)


if __name__ == "__main__":
    end, *words = sys.argv[1:]
    sys.exit(run_script("benchmarks.timed_training", main, argparse.Namespace(end=float(end), words=words)))

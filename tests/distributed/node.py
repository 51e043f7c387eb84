"""The script that `torchrun` starts on two nodes: `python node.py FOLDER [WORDS OF weftformer train]`.

Without words, it trains with each of the arguments in `FOLDER/jobs.pt`, one after another in the same processes, and
writes the results to `FOLDER/RANK.pt`. With words, it runs the command itself, which waits where the test is to kill.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from transformers import TrainerCallback

from weftformer.common.agent import end_with_agent

LIMIT = 300  # seconds that a process waits for the test


class Stops(TrainerCallback):
    """Waits where the test wants to kill: `FOLDER/hold` has the name of a place, until the test writes another."""

    def __init__(self, folder: Path):
        self.folder = folder

    def on_step_begin(self, args, state, control, **kwargs):
        self.at(f"step {state.global_step}")

    def at(self, place: str) -> None:
        hold, end = self.folder / "hold", time.monotonic() + LIMIT
        if hold.read_text() != place:
            return
        part = self.folder / f"{os.getpid()}.part"
        part.write_text(json.dumps({"pid": os.getpid(), "rank": int(os.environ["RANK"])}))
        part.rename(self.folder / f"reached-{os.environ['NODE']}")
        while hold.read_text() == place:
            assert time.monotonic() < end, f"The test left {place} waiting."
            time.sleep(0.01)


def run_jobs(folder: Path) -> None:
    import training_jobs

    end_with_agent()
    torch.set_default_dtype(torch.float64)  # in which the Trainer then adds up losses
    results = [training_jobs.train(**given) for given in torch.load(folder / "jobs.pt", weights_only=False)]
    torch.save(results, folder / f"{os.environ['RANK']}.pt")


def run_command(folder: Path, words: list[str]) -> None:
    from weftformer.scripts import cli
    from weftformer.training import WeftTrainer, fitting

    stops, replace = Stops(folder), os.replace

    def replaced(source, target):  # all files of a checkpoint are written, but not yet under its name
        if ".saving-checkpoint" in str(source):
            stops.at(f"save {Path(target).name.rpartition('-')[2]}")
        replace(source, target)

    with (
        mock.patch.object(fitting, "WeftTrainer", partial(WeftTrainer, callbacks=[stops])),
        mock.patch.object(os, "replace", replaced),
    ):
        sys.exit(cli.main(["train", *words]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_command(Path(sys.argv[1]), sys.argv[2:])
    else:
        run_jobs(Path(sys.argv[1]))

"""A run that is killed with SIGKILL and restarted by the same command ends the same as without, bit by bit."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from ..conftest import write_backwards
from . import runs

STEPS = 12


def run(folder: str, data: str, steps: int = STEPS, kill_at: str = "") -> None:
    """Train, as every run of this file, until it kills itself before a step or in a save, such as `save 10`.

    Imports take longer than the run, so runs that nothing kills share the process of the tests.
    """

    def reach(event: str) -> None:
        if event == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Reach(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            reach(f"step {state.global_step}")

    move = os.replace

    def replace(source, target):
        if ".saving-checkpoint" in str(source):  # all files are written, but not yet under the checkpoint's name
            reach(f"save {target.name.rpartition('-')[2]}")
        move(source, target)

    fields = {
        "dropout": 0.1, "activation_dropout": 0.1, "encoder_mlp_layer_types": ["dense", "sparse"],
        "decoder_mlp_layer_types": "sparse", "num_experts": 4, "router_type": "noisy_top_k",
        "router_bias_update_rate": 0.01,
    }  # fmt: skip
    # the run is saved in the middle of its epochs
    settings = {
        "resume_from_checkpoint": "true", "max_steps": steps, "save_strategy": "steps", "save_steps": 2,
        "save_total_limit": 2, "logging_steps": 2, "gradient_accumulation_steps": 2, "max_tokens_per_batch": 40,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        runs.fit(data, folder, fields, **settings, callbacks=[Reach()])


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Some forty pairs, enough for five steps an epoch."""
    return write_backwards(tmp_path_factory.mktemp("data") / "pairs.csv")


def curve(folder: Path) -> list[dict]:
    """Return the logged losses, gradient norms, and loads of the experts."""
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry for entry in history if "loss" in entry]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data) -> Path:
    """An uninterrupted run, which begins although there is nothing to resume."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(str(folder), str(data))
    assert [entry["step"] for entry in curve(folder)] == [2, 4, 6, 8, 10, 12]
    assert all(len(entry["experts/encoder_1/load"]) == 4 for entry in curve(folder))
    return folder


def assert_same_end(folder: Path, whole: Path) -> None:
    assert curve(folder) == curve(whole)
    expected, found = (load_file(path / "model.safetensors") for path in (whole, folder))
    assert any(name.endswith("selection_bias") for name in expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    # the files at the end are complete, and nothing is left of an interrupted save
    left = {path.name for path in folder.iterdir()}
    assert left == {path.name for path in whole.iterdir()} and not any(name.startswith(".") for name in left)


@pytest.mark.integration
def test_run_that_is_killed_in_a_save_ends_the_same(whole, data, tmp_path):
    folder = tmp_path / "run"
    killed = multiprocessing.get_context("spawn").Process(target=run, args=(str(folder), str(data), STEPS, "save 10"))
    killed.start()
    killed.join(300)
    assert killed.exitcode == -signal.SIGKILL
    assert {"checkpoint-6", "checkpoint-8"} == {path.name for path in folder.glob("checkpoint-*")}
    assert (folder / ".saving-checkpoint").is_dir()
    run(str(folder), str(data))
    assert_same_end(folder, whole)


def test_a_finished_run_stays_as_it_is(whole, data, tmp_path):
    """Also in the middle of an epoch, where transformers' Trainer takes another step before it asks whether to."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / f"checkpoint-{STEPS}")
    run(str(folder), str(data), steps=STEPS - 2)
    state = json.loads((folder / "trainer_state.json").read_text())
    assert state["global_step"] == STEPS - 2 and state["epoch"] % 1
    assert all("train_loss" not in entry for entry in state["log_history"])
    expected, found = (load_file(path / "model.safetensors") for path in (folder / f"checkpoint-{STEPS - 2}", folder))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)

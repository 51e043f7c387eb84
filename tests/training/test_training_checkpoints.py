"""The output folder: refusals, resuming, and removal of old checkpoints."""

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from weftformer import WeftConfig
from weftformer.training import WeftTrainingArguments
from weftformer.training.checkpoints import (
    check_output_dir,
    check_same_model,
    checkpoints,
    find_checkpoint,
    output_lock,
    remove_earlier_run,
    save_model_folder,
)

FILES = ("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth")


def _arguments(folder, **values):
    return WeftTrainingArguments(output_dir=str(folder), use_cpu=True, **values)


def _checkpoint(folder, step, leave_out=()):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for name in set(FILES) - set(leave_out):
        (path / name).write_text("{}")
    if "model.safetensors" not in leave_out:
        save_file({"a": torch.zeros(1)}, path / "model.safetensors")
    return path


def test_last_step_by_number_not_by_name(tmp_path):
    for step in (9, 10):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-9"]
    assert find_checkpoint(_arguments(tmp_path, resume_from_checkpoint="true")).endswith("checkpoint-10")
    assert find_checkpoint(_arguments(tmp_path)) is None


def test_an_incomplete_checkpoint_is_passed_over_and_named(tmp_path, caplog):
    path, broken = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10, leave_out=["rng_state.pth"])
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        assert find_checkpoint(_arguments(tmp_path, resume_from_checkpoint="true")) == str(path)
    assert f"{broken} lacks rng_state.pth" in caplog.text
    with pytest.raises(ValueError, match=r"checkpoint-10 lacks rng_state.pth"):
        find_checkpoint(_arguments(tmp_path, resume_from_checkpoint=str(broken)))
    (path / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(ValueError, match=r"checkpoint-5.*not a complete safetensors file"):
        find_checkpoint(_arguments(tmp_path, resume_from_checkpoint="true"))


def test_nothing_to_resume(tmp_path, caplog):
    """A run killed before its first checkpoint begins again; a model that was trained without any is not overwritten."""
    last = _arguments(tmp_path / "new", resume_from_checkpoint="true")
    assert find_checkpoint(last) is None
    (tmp_path / "new" / ".saving-checkpoint").mkdir(parents=True)
    (tmp_path / "new" / "README.md").touch()
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        assert find_checkpoint(last) is None
    assert f"no checkpoint in {tmp_path / 'new'} yet" in caplog.text
    (tmp_path / "new" / "model.safetensors").touch()
    with pytest.raises(ValueError, match="new has a model, but no checkpoint-<step>"):
        find_checkpoint(last)
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere"):
        find_checkpoint(_arguments(tmp_path, resume_from_checkpoint=str(tmp_path / "nowhere")))


def test_output_dir_that_is_not_empty(tmp_path):
    check_output_dir(_arguments(tmp_path))
    (tmp_path / ".gitattributes").touch()  # a clone of an empty repository is empty
    check_output_dir(_arguments(tmp_path))
    (tmp_path / "config.json").touch()
    with pytest.raises(ValueError, match=r"not empty .it has config.json.*--resume-from-checkpoint.*--overwrite"):
        check_output_dir(_arguments(tmp_path))
    check_output_dir(_arguments(tmp_path, overwrite_output_dir=True))
    check_output_dir(_arguments(tmp_path, resume_from_checkpoint="true"))
    with pytest.raises(ValueError, match="is a file"), output_lock(_arguments(tmp_path / "config.json")):
        pass


def test_overwriting_removes_checkpoints_and_scores_and_nothing_else(tmp_path):
    path = _checkpoint(tmp_path, 5)
    for name in ("all_results.json", "test_results.json", "generated_predictions.txt"):
        (tmp_path / name).touch()
    (tmp_path / "checkpoint-best").mkdir()
    for name in ("notes.txt", "my_results.json"):
        (tmp_path / name).touch()
    arguments = _arguments(tmp_path, overwrite_output_dir=True)
    with pytest.raises(ValueError, match=r"would remove .*checkpoint-5"):
        check_output_dir(arguments, inputs=(str(path), None))
    check_output_dir(arguments, inputs=(str(tmp_path),))
    remove_earlier_run(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint-best", "my_results.json", "notes.txt"]


def test_only_the_same_model_is_resumed(tmp_path):
    sizes = {"d_model": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    WeftConfig(**sizes).save_pretrained(tmp_path)
    check_same_model(WeftConfig(**sizes, dropout=0.5), str(tmp_path))
    with pytest.raises(ValueError, match=r"d_model \(32 in the checkpoint, 64 now\), .*norm_type"):
        check_same_model(WeftConfig(**sizes | {"d_model": 64, "norm_type": "layernorm"}), str(tmp_path))


class _Trainer:
    """A stand-in for the Trainer that writes the given files."""

    class args:
        should_save = True

    def __init__(self, *names):
        self.names, self.accelerator = names, self

    def wait_for_everyone(self):
        pass

    def save_model(self, folder, _internal_call):
        Path(folder).mkdir(parents=True)
        for name in self.names:
            (Path(folder) / name).write_text("new")


def test_saving_replaces_whole_files_and_removes_stale_weights(tmp_path):
    for name in ("config.json", "model.safetensors", "notes.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / ".saving").mkdir()
    (tmp_path / ".saving" / "left_by_a_crash").touch()
    sharded = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    save_model_folder(_Trainer(*sharded, "model.safetensors.index.json"), tmp_path)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    # the old single file would be loaded before the new shards
    assert found == dict.fromkeys([*sharded, "model.safetensors.index.json"], "new") | {"notes.txt": "old"}
    save_model_folder(_Trainer("config.json", "model.safetensors"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]

"""Pushes of a Trainer during training: whole models, checkpoints to resume from, and nothing unfinished."""

import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from weftformer.hub.export import flat_files
from weftformer.tokenization import train_tokenizer
from weftformer.training import PushCodeCallback, WeftTrainer, WeftTrainingArguments
from weftformer.training import trainer as trainer_module
from weftformer.training.checkpoints import checkpoints, find_checkpoint, save_model_folder

from ..models import tiny_model

WEIGHTS = "model.safetensors"
MODEL = {
    "config.json", "generation_config.json", WEIGHTS, "training_args.bin", "tokenizer.json", "tokenizer_config.json",
    *flat_files(),
}  # fmt: skip


def build(folder: Path, kind: type[Seq2SeqTrainer] = WeftTrainer, callbacks=(), **settings):
    given = {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True,
        "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True, "push_to_hub": True,
        "hub_model_id": "someone/model",
    }  # fmt: skip
    tokenizer = train_tokenizer(["a b"], vocab_size=259)
    return kind(
        model=tiny_model(encoder_layers=1, decoder_layers=1, dropout=0.1),
        args=Seq2SeqTrainingArguments(str(folder), **(given | settings)),
        train_dataset=[{"input_ids": [5 + row, 6, 7, 2], "labels": [7, 6 + row, 2]} for row in range(8)],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("strategy", ["end", "every_save", "checkpoint", "all_checkpoints"])
def test_each_push_holds_a_whole_model_and_nothing_else(strategy, hub, tmp_path):
    """Nor does it hold what a run that was killed left in the output folder."""
    folder = tmp_path / "run"
    (folder / ".saving-checkpoint/.cache/huggingface/checkpoint-7").mkdir(parents=True)
    (folder / ".saving-checkpoint/.cache/huggingface/checkpoint-7/optimizer.pt").touch()
    run = build(folder, hub_strategy=strategy, hub_always_push=True)
    run.train()
    assert not hidden(folder)
    run.push_to_hub()
    files = {path.name for path in (folder / "checkpoint-3").iterdir()}
    expected = []
    for step in [] if strategy == "end" else [1, 2, 3]:
        name = {"checkpoint": "last-checkpoint", "all_checkpoints": f"checkpoint-{step}"}.get(strategy)
        expected += [MODEL] + ([{f"{name}/{file}" for file in files}] if name else [])
    assert [set(commit) for commit in hub.pushed] == [*expected, MODEL | {"README.md"}]


def test_a_trainer_of_transformers_pushes_the_code_too(hub, tmp_path):
    build(tmp_path / "run", Seq2SeqTrainer, [PushCodeCallback()], save_steps=3, hub_strategy="every_save").train()
    assert [set(commit) for commit in hub.pushed] == [MODEL]


class OpenAtTheEnd(TrainerCallback):
    """The connection is slow: what is pushed first arrives when the last step is taken."""

    def __init__(self, hub):
        self.hub = hub

    def on_train_begin(self, args, state, control, **kwargs):
        self.hub.is_open.clear()

    def on_train_end(self, args, state, control, **kwargs):
        self.hub.is_open.set()


def test_a_checkpoint_stays_while_it_is_uploaded_and_a_run_goes_on_from_it(hub, tmp_path):
    """`save_total_limit` removes it when the upload is through."""
    folder = tmp_path / "run"
    run = build(folder, callbacks=[OpenAtTheEnd(hub)], hub_strategy="checkpoint", save_total_limit=1)
    run.train()
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-3"] and not hidden(folder)
    # the other two were skipped, because that of step 1 was in progress
    root, checkpoint = hub.pushed
    assert checkpoint["last-checkpoint/" + WEIGHTS] == root[WEIGHTS]
    pushed = str(hub.folder / "someone/model/last-checkpoint")
    assert find_checkpoint(WeftTrainingArguments(str(folder), use_cpu=True, resume_from_checkpoint=pushed)) == pushed
    resumed = build(tmp_path / "resumed", push_to_hub=False, save_strategy="no")
    resumed.train(resume_from_checkpoint=pushed)
    expected = run.model.state_dict()
    for name, value in resumed.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


class SaveBetween(TrainerCallback):
    """A person's own call, with the push of the first step going on."""

    run: WeftTrainer

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            self.run.save_model()


def test_a_save_does_not_write_over_what_is_being_uploaded(hub, tmp_path):
    hub.delay, callback = 0.3, SaveBetween()
    callback.run = build(tmp_path / "run", callbacks=[callback], hub_strategy="every_save", max_steps=2)
    callback.run.train()
    first, second = ((tmp_path / "run" / f"checkpoint-{step}" / WEIGHTS).read_bytes() for step in (1, 2))
    assert first != second and hub.pushed[0][WEIGHTS] == first


@pytest.mark.parametrize("what", ["checkpoint", "model", "code"])
def test_what_is_being_written_is_not_listed(what, hub, tmp_path, monkeypatch):
    """Nor is what a crash at that moment leaves, whoever uploads the folder."""
    folder, replace, write_manifest = tmp_path / "run", os.replace, trainer_module.write_manifest
    run = build(folder, push_to_hub=False, max_steps=1)
    (folder / "notes.txt").touch()
    seen = []

    def upload(unfinished):
        if not seen:
            seen.append(unfinished)
            assert Path(unfinished).is_relative_to(folder) and Path(unfinished).exists()
            HfApi().upload_folder(repo_id="someone/model", folder_path=folder)

    def replacing(source, target):
        if Path(target).name == {"model": WEIGHTS, "code": "modeling_weft.py"}.get(what):
            upload(source)
        replace(source, target)

    def writing(new):
        if what == "checkpoint":
            upload(new)
        write_manifest(new)

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr(trainer_module, "write_manifest", writing)
    {"checkpoint": run.train, "model": lambda: save_model_folder(run, folder), "code": run.save_model}[what]()
    assert seen
    (listed,) = hub.pushed
    assert "notes.txt" in listed and not [path for path in listed if path.startswith(".")]
    assert not hidden(folder)

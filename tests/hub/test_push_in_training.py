"""Pushes of a Trainer during training: whole models, checkpoints to resume from, and nothing unfinished."""

import os
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

from weftformer.hub.export import flat_files
from weftformer.tokenization import train_tokenizer
from weftformer.training import WeftTrainer
from weftformer.training.checkpoints import save_model_folder

from ..models import tiny_model

WEIGHTS = "model.safetensors"
MODEL = {
    "config.json", "generation_config.json", WEIGHTS, "training_args.bin", "tokenizer.json", "tokenizer_config.json",
    *flat_files(),
}  # fmt: skip


def build(folder: Path, **settings) -> WeftTrainer:
    given = {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True,
        "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True, "push_to_hub": True,
        "hub_model_id": "someone/model",
    }  # fmt: skip
    tokenizer = train_tokenizer(["a b"], vocab_size=259)
    return WeftTrainer(
        model=tiny_model(encoder_layers=1, decoder_layers=1, dropout=0.1),
        args=Seq2SeqTrainingArguments(str(folder), **(given | settings)),
        train_dataset=[{"input_ids": [5 + row, 6, 7, 2], "labels": [7, 6 + row, 2]} for row in range(8)],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
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


@pytest.mark.parametrize("what", ["checkpoint", "model", "code"])
def test_what_is_being_written_is_not_listed(what, hub, tmp_path, monkeypatch):
    """Nor is what a crash at that moment leaves, whoever uploads the folder."""
    folder, replace = tmp_path / "run", os.replace
    run = build(folder, push_to_hub=False, max_steps=1)
    (folder / "notes.txt").touch()
    seen = []

    def upload(unfinished):
        if not seen:
            seen.append(unfinished)
            assert Path(unfinished).is_relative_to(folder) and Path(unfinished).exists()
            HfApi().upload_folder(repo_id="someone/model", folder_path=folder)

    def replacing(source, target):
        if Path(target).name == {"checkpoint": "checkpoint-1", "model": WEIGHTS, "code": "modeling_weft.py"}[what]:
            upload(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replacing)
    {"checkpoint": run.train, "model": lambda: save_model_folder(run, folder), "code": run.save_model}[what]()
    assert seen
    (listed,) = hub.pushed
    assert "notes.txt" in listed and not [path for path in listed if path.startswith(".")]
    assert not hidden(folder)

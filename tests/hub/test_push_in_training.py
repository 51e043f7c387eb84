"""What a Trainer pushes while it trains: each repository loads where Weft is not, and nothing unfinished is in one."""

import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from weftformer import WeftForConditionalGeneration
from weftformer.hub.export import flat_files
from weftformer.training import PushCodeCallback, WeftTrainer, WeftTrainingArguments, find_checkpoint
from weftformer.training import trainer as trainer_module
from weftformer.training.checkpoints import checkpoints, save_model_folder

from ..models import tiny_model
from .conftest import words_tokenizer

SPARSE = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "decoder_mlp_layer_types": "sparse",
    "num_experts": 4,
    "dropout": 0.1,
}
IDS = torch.tensor([[5, 6, 7, 8]])
STRATEGIES = ["end", "every_save", "checkpoint", "all_checkpoints"]
WEIGHTS = "model.safetensors"
MODEL = {
    "config.json",
    "generation_config.json",
    WEIGHTS,
    "training_args.bin",
    "tokenizer.json",
    "tokenizer_config.json",
}


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS, decoder_input_ids=IDS).logits


def build(folder: Path, repository: str, kind: type[Seq2SeqTrainer] = WeftTrainer, callbacks=(), **settings):
    given = {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True,
        "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True, "push_to_hub": True,
    }  # fmt: skip
    tokenizer = words_tokenizer()
    return kind(
        model=tiny_model(**SPARSE),
        args=Seq2SeqTrainingArguments(str(folder), hub_model_id=repository, **(given | settings)),
        train_dataset=[{"input_ids": [5 + row, 6, 7, 2], "labels": [7, 6 + row, 2]} for row in range(8)],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )


def crash_before(folder: Path) -> None:
    """What runs that were killed may leave in an output folder."""
    for name in (".saving-checkpoint", ".saving-checkpoint/.cache/huggingface"):
        (folder / name / "checkpoint-7").mkdir(parents=True)
        (folder / name / "checkpoint-7" / "optimizer.pt").touch()


def train_and_push(run, hub, repository: str) -> tuple[list, list]:
    """The files of each commit while a trainer trains, and of those of `push_to_hub` after it. Both repositories load."""
    run.train()
    during = [set(commit) for commit in hub.pushed]
    if during:
        WeftForConditionalGeneration.from_pretrained(hub.folder / repository)
    run.push_to_hub()
    assert words_tokenizer().from_pretrained(hub.folder / repository)("w2 w3").input_ids == [5, 6]
    other = WeftForConditionalGeneration.from_pretrained(hub.folder / repository)
    torch.testing.assert_close(logits(other), logits(run.model), rtol=1e-5, atol=1e-5)
    return during, [set(commit) for commit in hub.pushed[len(during) :]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_push_holds_a_whole_model_and_nothing_else(name, hub, tmp_path):
    folder, whole = tmp_path / "run", MODEL | set(flat_files())
    crash_before(folder)
    run = build(folder, "someone/model", hub_strategy=name, hub_always_push=True)
    during, after = train_and_push(run, hub, "someone/model")
    assert after == [whole | {"README.md"}]
    files = {path.name for path in (folder / "checkpoint-3").iterdir()}
    expected = []
    for step in [] if name == "end" else [1, 2, 3]:
        pushed = {"checkpoint": "last-checkpoint", "all_checkpoints": f"checkpoint-{step}"}.get(name)
        expected += [whole] + ([{f"{pushed}/{file}" for file in files}] if pushed else [])
    assert during == expected
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    for pushed, step in {"checkpoint": [("last-checkpoint", 3)], "all_checkpoints": [("checkpoint-2", 2)]}.get(
        name, []
    ):
        given = hub.folder / "someone/model" / pushed
        arguments = WeftTrainingArguments(str(tmp_path), use_cpu=True, resume_from_checkpoint=str(given))
        assert find_checkpoint(arguments) == str(given)
        for file in files:
            assert (given / file).read_bytes() == (folder / f"checkpoint-{step}" / file).read_bytes(), file


def test_transformers_own_trainer_pushes_the_code_by_a_callback(hub, tmp_path):
    """Once: this trainer may write what it is still uploading."""
    callbacks = [PushCodeCallback()]
    run = build(tmp_path / "run", "someone/model", Seq2SeqTrainer, callbacks, save_steps=3, hub_strategy="every_save")
    during, after = train_and_push(run, hub, "someone/model")
    assert [*during, *after] == [MODEL | set(flat_files()), MODEL | set(flat_files()) | {"README.md"}]


class OpenAtTheEnd(TrainerCallback):
    """The connection is slow: what is pushed first arrives when the last step is taken."""

    def __init__(self, hub):
        self.hub = hub

    def on_train_begin(self, args, state, control, **kwargs):
        self.hub.is_open.clear()

    def on_train_end(self, args, state, control, **kwargs):
        self.hub.is_open.set()


def test_a_checkpoint_stays_while_it_is_uploaded(hub, tmp_path):
    """`save_total_limit` removes it when the upload is through."""
    run = build(
        tmp_path / "run", "someone/model", callbacks=[OpenAtTheEnd(hub)], hub_strategy="checkpoint", save_total_limit=1
    )
    run.train()
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-3"]
    # the other two were skipped, as that of step 1 was going on
    root, checkpoint = hub.pushed
    assert checkpoint["last-checkpoint/" + WEIGHTS] == root[WEIGHTS]
    folder = hub.folder / "someone/model/last-checkpoint"
    arguments = WeftTrainingArguments(str(tmp_path), use_cpu=True, resume_from_checkpoint=str(folder))
    assert find_checkpoint(arguments) == str(folder)
    assert {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")} == set()


class SaveBetween(TrainerCallback):
    """A person's own call, with the push of the first step going on."""

    run: WeftTrainer

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            self.run.save_model()


def test_each_push_is_that_of_its_step(hub, tmp_path):
    """The next one does not write over what is still being read."""
    hub.delay = 0.3
    build(tmp_path / "run", "someone/model", hub_strategy="every_save", hub_always_push=True).train()
    steps = [(tmp_path / "run" / f"checkpoint-{step}" / WEIGHTS).read_bytes() for step in (1, 2, 3)]
    assert [commit[WEIGHTS] for commit in hub.pushed] == steps and len(set(steps)) == 3


def test_a_save_does_not_write_over_what_is_being_uploaded(hub, tmp_path):
    hub.delay, callback = 0.3, SaveBetween()
    callback.run = build(
        tmp_path / "run", "someone/model", callbacks=[callback], hub_strategy="every_save", max_steps=2
    )
    callback.run.train()
    first, second = ((tmp_path / "run" / f"checkpoint-{step}" / WEIGHTS).read_bytes() for step in (1, 2))
    assert first != second
    assert hub.pushed[0][WEIGHTS] == first and hub.pushed[1][WEIGHTS] == second


@pytest.mark.parametrize("what", ["checkpoint", "model", "code"])
def test_what_is_being_written_is_not_listed(what, hub, tmp_path, monkeypatch):
    """Nor is what a crash at that moment leaves, whoever uploads the folder."""
    folder, replace, write_manifest = tmp_path / "run", os.replace, trainer_module.write_manifest
    run = build(folder, "someone/model", push_to_hub=False, max_steps=1)
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
    assert not any(path.name.startswith(".") for path in folder.iterdir())

"""The files that are pushed to the Hub, as a stand-in receives them. No test talks to the Hub itself."""

import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

from weftformer import WeftForConditionalGeneration, WeftModel
from weftformer.hub.export import CODE_FILE
from weftformer.hub.trained import training_table
from weftformer.tokenization import train_tokenizer
from weftformer.training import WeftTrainer
from weftformer.training.checkpoints import save_model_folder

from ..models import tiny_model

IDS = torch.tensor([[5, 6, 7, 8]])
REPOSITORY, WEIGHTS = "someone/model", "model.safetensors"
MODEL = {
    "config.json", "generation_config.json", WEIGHTS, "training_args.bin", "tokenizer.json", "tokenizer_config.json",
    CODE_FILE,
}  # fmt: skip


def build(kind=WeftForConditionalGeneration, **fields):
    return tiny_model(kind, encoder_layers=1, decoder_layers=1, **fields)


@pytest.mark.parametrize("kind", [WeftForConditionalGeneration, WeftModel])
def test_a_whole_model_is_pushed_with_its_code_and_a_card(kind, hub):
    model = build(kind)
    model.push_to_hub(REPOSITORY)
    expected = {"config.json", "model.safetensors", "README.md", CODE_FILE}
    expected |= {"generation_config.json"} if kind is WeftForConditionalGeneration else set()
    assert hub.files(REPOSITORY) == expected
    assert len(hub.pushed) == 1
    folder = hub.folder / REPOSITORY
    other = kind.from_pretrained(folder)
    given = {"input_ids": IDS, "decoder_input_ids": IDS}
    torch.testing.assert_close(other(**given)[0], model(**given)[0])
    card = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, "weft" in card.data.tags) == ("transformers", True)
    assert f"| parameters | {model.num_parameters():,} |" in card.text
    assert "How these weights were trained is not recorded here." in card.text and "None were measured." in card.text


def test_tags_and_a_card_that_a_person_wrote_stay(hub):
    file = hub.folder / REPOSITORY / "README.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nlicense: mit\n---\n\n# Mine\n")
    build().push_to_hub(REPOSITORY)
    assert "# Mine" in file.read_text() and ModelCard.load(file).data.license == "mit"
    file.unlink()
    build().push_to_hub(REPOSITORY, tags=["opera"])
    tags = ModelCard.load(file).data.tags
    assert tags == ["weft", "encoder-decoder", "opera"]


# --- by a Trainer: whole models, checkpoints to resume from, and nothing unfinished


def trainer(folder: Path, fields=None, **settings) -> WeftTrainer:
    given = {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True,
        "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True, "hub_model_id": REPOSITORY,
        "logging_steps": 1,
    }  # fmt: skip
    tokenizer = train_tokenizer(["a b"], vocab_size=259)
    rows = [{"input_ids": [5 + row, 6, 7, 2], "labels": [7, 6 + row, 2]} for row in range(8)]
    return WeftTrainer(
        model=build(dropout=0.1, **(fields or {})), args=Seq2SeqTrainingArguments(str(folder), **(given | settings)),
        train_dataset=rows, eval_dataset=rows, data_collator=DataCollatorForSeq2Seq(tokenizer), processing_class=tokenizer,
    )  # fmt: skip


def test_a_trainer_pushes_a_repository_that_stands_alone(hub, tmp_path):
    run = trainer(tmp_path / "run", {"decoder_mlp_layer_types": "sparse"}, max_steps=2, save_strategy="no")
    run.train()
    loss = run.evaluate()["eval_loss"]
    run.push_to_hub(language=["de", "en"], license="mit", tasks="translation", dataset_tags="someone/pairs")
    assert {*MODEL, "README.md"} <= hub.files(REPOSITORY)
    card = ModelCard.load(hub.folder / REPOSITORY / "README.md")
    data = card.data
    assert (data.language, data.license, data.pipeline_tag) == (["de", "en"], "mit", "translation")
    assert data.datasets == ["someone/pairs"] and "mixture-of-experts" in data.tags
    (result,) = data.eval_results
    assert (result.metric_type, result.dataset_split, result.metric_args) == ("loss", "validation", {"n": 8})
    assert result.metric_value == pytest.approx(loss, abs=1e-6)
    assert "| learning_rate | 0.01 |" in card.text and "| steps | 2 (1.0 epochs) |" in card.text


def test_the_table_of_a_training_says_how_much_of_it_took_place(tmp_path):
    table = training_table(trainer(tmp_path, max_steps=-1, num_train_epochs=4, warmup_steps=0.05))
    assert table["steps"] == "0 (0.0 of 4 epochs)" and "num_epochs" not in table
    assert table["lr_scheduler_warmup_steps"] == "5% of the steps"
    assert training_table(trainer(tmp_path, warmup_steps=2))["lr_scheduler_warmup_steps"] == 2


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("strategy", ["end", "every_save", "checkpoint", "all_checkpoints"])
def test_each_push_holds_a_whole_model_and_nothing_else(strategy, hub, tmp_path):
    """Nor does it hold what a run that was killed left in the output folder."""
    folder = tmp_path / "run"
    (folder / ".saving-checkpoint/.cache/huggingface/checkpoint-7").mkdir(parents=True)
    (folder / ".saving-checkpoint/.cache/huggingface/checkpoint-7/optimizer.pt").touch()
    run = trainer(folder, push_to_hub=True, hub_strategy=strategy, hub_always_push=True)
    run.train()
    assert not hidden(folder)
    run.push_to_hub()
    files = {path.name for path in (folder / "checkpoint-3").iterdir()}
    expected = []
    for step in [] if strategy == "end" else [1, 2, 3]:
        name = {"checkpoint": "last-checkpoint", "all_checkpoints": f"checkpoint-{step}"}.get(strategy)
        expected += [MODEL] + ([{f"{name}/{file}" for file in files}] if name else [])
    *during, last = (set(commit) for commit in hub.pushed)
    assert last == MODEL | {"README.md"}
    assert sorted(map(sorted, during)) == sorted(map(sorted, expected))  # from several threads, in any order


@pytest.mark.parametrize("what", ["checkpoint", "model", "code"])
def test_what_is_being_written_is_not_listed(what, hub, tmp_path, monkeypatch):
    """Nor is what a crash at that moment leaves, whoever uploads the folder."""
    folder, replace = tmp_path / "run", os.replace
    run = trainer(folder, max_steps=1)
    (folder / "notes.txt").touch()
    seen = []

    def upload(unfinished):
        if not seen:
            seen.append(unfinished)
            assert Path(unfinished).is_relative_to(folder) and Path(unfinished).exists()
            HfApi().upload_folder(repo_id=REPOSITORY, folder_path=folder)

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

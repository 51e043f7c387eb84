"""What a Trainer pushes while it trains: each repository loads where Weft is not, and nothing unfinished is in one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.hub.export import flat_files
from weftformer.training import PushCodeCallback, WeftTrainer, WeftTrainingArguments
from weftformer.training import trainer as trainer_module
from weftformer.training.checkpoints import checkpoints, find_checkpoint, save_model_folder

from ..models import TINY_CONFIG

TINY = TINY_CONFIG | {
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

SCRIPT = """
import sys

class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "weftformer":
            raise ModuleNotFoundError("No module named 'weftformer'")

sys.meta_path.insert(0, Blind())

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

target, configuration, *folders = sys.argv[1:]
ids, found = torch.tensor({ids}), {{}}
for folder in folders:
    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
        assert type(model).__module__.startswith("transformers_modules."), type(model)
        with torch.no_grad():
            logits = model(input_ids=ids, decoder_input_ids=ids).logits.contiguous()
        assert AutoTokenizer.from_pretrained(folder)("w2 w3").input_ids == [5, 6]
        found[folder] = logits
    except Exception as error:  # the tests that ask for it will miss it, and others not
        print(folder, repr(error))
config = AutoConfig.from_pretrained(configuration, trust_remote_code=True)
assert AutoModelForSeq2SeqLM.from_config(config, trust_remote_code=True).num_parameters() > 0
save_file(found, target)
"""


def logits_without_weft(folders: list[Path], configuration: Path, scratch: Path) -> dict[Path, torch.Tensor]:
    """What models and tokenizers of these folders say in a process that cannot import the package."""
    script, target = scratch / "script.py", scratch / "logits.safetensors"
    script.write_text(SCRIPT.format(ids=IDS.tolist()))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_MODULES_CACHE": str(scratch / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(target), str(configuration), *map(str, folders)],
        cwd=scratch, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    return {Path(folder): value for folder, value in load_file(target).items()}


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS, decoder_input_ids=IDS).logits


def build_model() -> WeftForConditionalGeneration:
    torch.manual_seed(0)
    return WeftForConditionalGeneration(WeftConfig(**TINY))


def build_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<s>", "</s>", *(f"w{index}" for index in range(28))]
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def build(folder: Path, repository: str, kind: type[Seq2SeqTrainer] = WeftTrainer, callbacks=(), **settings):
    given = {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True,
        "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True, "push_to_hub": True,
    }  # fmt: skip
    tokenizer = build_tokenizer()
    return kind(
        model=build_model(),
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


@pytest.fixture(scope="module")
def pushed(module_hub, tmp_path_factory) -> dict[str, dict]:
    """Of each strategy: commits while it trained, the repository then and after `trainer.push_to_hub()`, their logits."""
    hub, root = module_hub, tmp_path_factory.mktemp("runs")
    found = {}
    for name in [*STRATEGIES, "plain"]:
        repository = f"someone/{name}"
        if name == "plain":  # one push: this trainer may write what it is still uploading
            run = build(
                root / name, repository, Seq2SeqTrainer, [PushCodeCallback()], save_steps=3, hub_strategy="every_save"
            )
        else:
            crash_before(root / name)
            run = build(root / name, repository, hub_strategy=name, hub_always_push=True)
        before = len(hub.pushed)
        run.train()
        during, then = hub.pushed[before:], root / f"{name}-while-training"
        if during:
            shutil.copytree(hub.folder / repository, then)
        left = {path.name for path in (root / name).iterdir()}
        before = len(hub.pushed)
        run.push_to_hub()
        found[name] = {
            "run": root / name, "left": left, "during": during, "last": hub.pushed[before:], "model": run.model,
            "folders": [*([then] if during else []), hub.folder / repository],
        }  # fmt: skip
    model, tokenizer = build_model(), build_tokenizer()
    model.push_to_hub("someone/model")
    tokenizer.push_to_hub("someone/model")
    found["model"] = {"model": model, "folders": [hub.folder / "someone/model"]}
    model.config.push_to_hub("someone/config")
    folders = [folder for one in found.values() for folder in one["folders"]]
    folders += [
        found["checkpoint"]["folders"][0] / "last-checkpoint",
        found["all_checkpoints"]["folders"][0] / "checkpoint-2",
    ]
    scratch = tmp_path_factory.mktemp("scratch")
    said = logits_without_weft(folders, hub.folder / "someone/config", scratch)
    return found | {"said": said}


@pytest.mark.integration
@pytest.mark.parametrize("name", [*STRATEGIES, "plain"])
def test_each_push_holds_a_whole_model_and_nothing_else(name, pushed):
    found = pushed[name]
    whole = MODEL | set(flat_files())
    (last,) = found["last"]
    assert set(last) == whole | {"README.md"}
    files = {path.name for path in (found["run"] / "checkpoint-3").iterdir()}
    expected = []
    for step in {"end": [], "plain": [3]}.get(name, [1, 2, 3]):
        folder = {"checkpoint": "last-checkpoint", "all_checkpoints": f"checkpoint-{step}"}.get(name)
        expected += [whole] + ([{f"{folder}/{file}" for file in files}] if folder else [])
    assert [set(commit) for commit in found["during"]] == expected


@pytest.mark.integration
@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_of_a_push_is_left_beside_the_checkpoints(name, pushed):
    assert not [left for left in pushed[name]["left"] if left.startswith(".")]


@pytest.mark.integration
@pytest.mark.parametrize("name", [*STRATEGIES, "plain", "model"])
def test_each_repository_loads_without_weft(name, pushed):
    found = pushed[name]
    assert len(found["folders"]) == (1 if name in ("end", "model") else 2)
    for folder in found["folders"]:
        torch.testing.assert_close(pushed["said"][folder], logits(found["model"]), rtol=1e-5, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "folder", "step"), [("checkpoint", "last-checkpoint", 3), ("all_checkpoints", "checkpoint-2", 2)]
)
def test_a_run_goes_on_from_what_was_pushed(name, folder, step, pushed, tmp_path):
    given = pushed[name]["folders"][0] / folder
    other = WeftForConditionalGeneration.from_pretrained(pushed[name]["run"] / f"checkpoint-{step}")
    torch.testing.assert_close(pushed["said"][given], logits(other), rtol=1e-5, atol=1e-5)
    arguments = WeftTrainingArguments(str(tmp_path), use_cpu=True, resume_from_checkpoint=str(given))
    assert find_checkpoint(arguments) == str(given)
    whole = build(tmp_path / "whole", "", max_steps=5, push_to_hub=False, save_strategy="no")
    whole.train()
    resumed = build(tmp_path / "resumed", "", max_steps=5, push_to_hub=False, save_strategy="no")
    resumed.train(resume_from_checkpoint=str(given))
    expected = whole.model.state_dict()
    for name, value in resumed.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


class OpenAtTheEnd(TrainerCallback):
    """The connection is slow: what is pushed first arrives when the last step is taken."""

    def __init__(self, hub):
        self.hub = hub

    def on_train_begin(self, args, state, control, **kwargs):
        self.hub.is_open.clear()

    def on_train_end(self, args, state, control, **kwargs):
        self.hub.is_open.set()


@pytest.mark.integration
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

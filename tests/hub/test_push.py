"""What would be pushed to the Hub, seen by a stand-in for it: no test talks to the Hub itself."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from transformers import modeling_utils
from transformers.utils import hub

from weft import WeftConfig, WeftForConditionalGeneration, WeftModel
from weft.hub.export import flat_files

TINY = {
    "vocab_size": 31,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
IDS = torch.tensor([[5, 6, 7, 8]])


class StandIn:
    """Takes the place of the Hub's interface: keeps what is committed in a folder."""

    def __init__(self, folder):
        self.folder, self.commits = folder, 0

    def create_repo(self, api, repo_id, **kwargs):
        return SimpleNamespace(repo_id=repo_id)

    def create_commit(self, api, repo_id, operations, **kwargs):
        self.commits += 1
        for operation in operations:
            target = self.folder / operation.path_in_repo
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(operation.path_or_fileobj, target)
        return SimpleNamespace(oid="0")

    @property
    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def stand_in(monkeypatch, tmp_path) -> StandIn:
    stand_in = StandIn(tmp_path / "repository")
    stand_in.folder.mkdir()
    for name in ("create_repo", "create_commit"):
        method = getattr(stand_in, name)
        monkeypatch.setattr(HfApi, name, lambda api, *args, method=method, **kwargs: method(api, *args, **kwargs))
    for module in (hub, modeling_utils):  # it asks the Hub for the card that is there
        monkeypatch.setattr(
            module, "create_and_tag_model_card", lambda *args, **kwargs: ModelCard("---\n---\n# A model")
        )
    return stand_in


def build(kind=WeftForConditionalGeneration, **fields):
    torch.manual_seed(0)
    return kind(WeftConfig(**(TINY | fields))).eval()


@pytest.mark.parametrize("kind", [WeftForConditionalGeneration, WeftModel])
def test_stand_in_for_the_hub_gets_a_whole_model_with_its_code(kind, stand_in):
    model = build(kind)
    model.push_to_hub("someone/model")
    expected = {"config.json", "model.safetensors", "README.md", *flat_files()}
    expected |= {"generation_config.json"} if kind is WeftForConditionalGeneration else set()
    assert stand_in.files == expected
    assert stand_in.commits == 1
    other = kind.from_pretrained(stand_in.folder)
    given = {"input_ids": IDS, "decoder_input_ids": IDS}
    torch.testing.assert_close(other(**given)[0], model(**given)[0])


def test_stand_in_for_the_hub_gets_every_shard(stand_in):
    build().push_to_hub("someone/model", max_shard_size="4KB")
    shards = {name for name in stand_in.files if name.endswith(".safetensors")}
    assert len(shards) > 1 and "model.safetensors.index.json" in stand_in.files
    WeftForConditionalGeneration.from_pretrained(stand_in.folder)


def test_stand_in_for_the_hub_gets_the_code_when_a_folder_is_saved_and_pushed(stand_in, tmp_path):
    build().save_pretrained(str(tmp_path / "model"), push_to_hub=True, repo_id="someone/model")
    assert {"config.json", "model.safetensors", *flat_files()} <= stand_in.files
    WeftForConditionalGeneration.from_pretrained(stand_in.folder)


def test_stand_in_for_the_hub_gets_the_code_with_a_configuration_alone(stand_in, tmp_path):
    WeftConfig(**TINY).push_to_hub("someone/configuration")
    assert {"config.json", *flat_files()} <= stand_in.files
    shutil.rmtree(stand_in.folder)
    WeftConfig(**TINY).save_pretrained(
        str(tmp_path / "configuration"), push_to_hub=True, repo_id="someone/configuration"
    )
    assert stand_in.files == {"config.json", *flat_files()}


def test_stand_in_for_the_hub_gets_nothing_that_stood_there_before_but_code(stand_in, tmp_path):
    folder = tmp_path / "configuration"
    WeftConfig(**TINY).save_pretrained(folder)
    (folder / "diary.txt").write_text("private")
    (folder / "config.json").unlink()
    WeftConfig(**TINY).save_pretrained(str(folder), push_to_hub=True, repo_id="someone/configuration")
    assert stand_in.files == {"config.json", *flat_files()}

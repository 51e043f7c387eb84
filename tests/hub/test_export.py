"""The code that travels with the weights: one file, complete, never half written, and enough for other processes."""

import ast
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from weftformer import WeftConfig, WeftForConditionalGeneration, WeftModel
from weftformer.hub import export_code
from weftformer.hub.export import AUTO_MAP, CODE_FILE, ROOT, code_text, exported_modules

from .. import models
from ..conftest import printed_elsewhere
from ..models import IDS, TARGET, TINY_CONFIG, tiny_model


def test_only_changed_files_are_written_again(tmp_path):
    export_code(tmp_path)
    before = (tmp_path / CODE_FILE).stat().st_ino
    export_code(tmp_path)
    assert (tmp_path / CODE_FILE).stat().st_ino == before
    (tmp_path / CODE_FILE).write_text("old")
    export_code(tmp_path)
    assert (tmp_path / CODE_FILE).read_text() == code_text()


def test_fast_path_and_splitting_over_processes_stay_here():
    assert len(exported_modules()) > 10
    assert not [name for name in exported_modules() if ".decoding." in name or name.endswith("parallel")]


def test_imports_are_of_what_transformers_needs():
    nodes = list(ast.walk(ast.parse(code_text())))
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert found == {"torch", "transformers", "huggingface_hub", "safetensors"}


def test_a_name_means_the_same_in_all_modules():
    """They become one module."""
    meanings = {}
    for module in exported_modules():
        for name, value in vars(import_module(module)).items():
            if not name.startswith("__") and name != "logger":
                assert meanings.setdefault(name, value) is value, f"{module}.{name}"


@pytest.mark.parametrize("kind", [WeftConfig, WeftModel, WeftForConditionalGeneration])
def test_every_save_writes_the_code_and_names_it(kind, tmp_path):
    config = WeftConfig(**TINY_CONFIG)
    (config if kind is WeftConfig else kind(config)).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert {path.name: path.read_text() for path in tmp_path.glob("*.py")} == {CODE_FILE: code_text()}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") or path.is_dir()]


# --- in processes that cannot see the package

KINDS = {
    "rotary": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    "sparse": models.KINDS["sparse"] | models.KINDS["smaller target"] | {"router_bias_update_rate": 0.1},
    "learned": models.KINDS["learned"] | {"cross_attention_position_type": "relative"},
}

SCRIPT = """
import sys

sys.modules["weftformer"] = None  # as if it were not installed

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

source, target = sys.argv[1], sys.argv[2]
ids, prefix = torch.tensor({ids}), torch.tensor({prefix})
for kind in {kinds}:
    folder = f"{{source}}/{{kind}}"
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForSeq2SeqLM.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    assert type(model.config) is type(AutoConfig.from_pretrained(folder, trust_remote_code=True))
    base = AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert type(base).__name__ == "WeftModel"
    encoder = AutoModel.from_pretrained(f"{{folder}}/encoder", trust_remote_code=True)
    assert type(encoder).__name__ == "WeftEncoder"
    assert torch.equal(encoder(ids)[0], base.encoder(ids)[0])
    with torch.no_grad():
        found = {{
            "logits": model(input_ids=ids, decoder_input_ids=prefix).logits,
            "greedy": model.generate(ids, min_new_tokens=6, max_new_tokens=6),
            "beams": model.generate(ids, num_beams=3, max_new_tokens=6),
        }}
    model.save_pretrained(f"{{target}}/{{kind}}", max_shard_size="8KB")
    save_file({{name: value.contiguous() for name, value in found.items()}}, f"{{target}}/{{kind}}.safetensors")
assert not any(name.startswith("weftformer.") for name in sys.modules)
"""


def run(source: Path, target: Path, python: str | Path = sys.executable) -> None:
    """Load the folders in a process that cannot see the package, and save them again."""
    target.mkdir()
    code = SCRIPT.format(ids=IDS.tolist(), prefix=TARGET.tolist(), kinds=list(KINDS))
    printed_elsewhere(code, source, target, folder=target, python=python, PYTHONPATH="")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """The folder with the models saved by this process."""
    folder = tmp_path_factory.mktemp("folders") / "first"
    for kind, fields in KINDS.items():
        model = tiny_model(random=True, **fields)
        model.save_pretrained(folder / kind)
        model.get_encoder().save_pretrained(folder / kind / "encoder")
    return folder


@torch.no_grad()
def assert_same_results(saved: Path, again: Path) -> None:
    for kind in KINDS:
        model = WeftForConditionalGeneration.from_pretrained(saved / kind)
        found = load_file(again / f"{kind}.safetensors")
        # float32 in two processes: up to 1e-5 was seen; other weights differ by 1
        expected = model(input_ids=IDS, decoder_input_ids=TARGET).logits
        torch.testing.assert_close(found["logits"], expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(found["greedy"], model.generate(IDS, min_new_tokens=6, max_new_tokens=6))
        assert torch.equal(found["beams"], model.generate(IDS, num_beams=3, max_new_tokens=6))


@pytest.mark.integration
@pytest.mark.parametrize("release", ["oldest", "newest-but-one", "newest"])
def test_other_releases_compute_the_same_from_a_saved_folder(saved, release):
    python = ROOT / ".venv" / "versions" / release / "bin" / "python"
    if not python.exists():
        pytest.skip(f"`make test-with-{release}` makes the environment")
    run(saved, saved.parent / release, python)
    assert_same_results(saved, saved.parent / release)


@pytest.mark.integration
def test_without_weft_scores_texts_and_saved_folder_are_the_same(saved):
    """In a second process that knows no Weft."""
    again = saved.parent / "second"
    run(saved, again)
    assert_same_results(saved, again)
    for kind in KINDS:
        folders = saved / kind, again / kind
        code = [{path.name: path.read_text() for path in folder.glob("*.py")} for folder in folders]
        assert code[0] == code[1]
        weights = [WeftForConditionalGeneration.from_pretrained(folder).state_dict() for folder in folders]
        torch.testing.assert_close(*weights, rtol=0, atol=0)
        one, two = (json.loads((folder / "config.json").read_text()) for folder in folders)
        # the second process knows the classes it has loaded, under the names it loaded them by
        assert one.pop("auto_map").items() >= two.pop("auto_map").items() >= {
            ("AutoConfig", "modeling_weft.WeftConfig"), ("AutoModelForSeq2SeqLM", "modeling_weft.WeftForConditionalGeneration")
        }  # fmt: skip
        assert one == two


@pytest.mark.parametrize("trust", [True, False])
def test_where_weft_is_imported_its_own_classes_are_taken(trust, saved):
    model = AutoModelForSeq2SeqLM.from_pretrained(saved / "rotary", trust_remote_code=trust)
    assert type(model) is WeftForConditionalGeneration and model.fast_path is not None
    assert type(AutoConfig.from_pretrained(saved / "rotary", trust_remote_code=trust)) is WeftConfig

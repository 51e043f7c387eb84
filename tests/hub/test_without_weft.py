"""Folders load with transformers alone, in other processes that cannot see the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from weftformer import WeftConfig, WeftForConditionalGeneration

from ..models import tiny_model

KINDS = {
    "dense": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    "sparse": {
        "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["sparse", "dense"], "num_experts": 4,
        "router_bias_update_rate": 0.1, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23,
    },
    "planner": {
        "position_embedding_type": "learned", "self_attention_position_type": "none",
        "cross_attention_position_type": "relative", "norm_type": "layernorm", "norm_first": False,
        "num_condition_features": 1, "max_source_positions": 16, "max_target_positions": 16,
    },
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])

SCRIPT = """
import sys

class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "weftformer":
            raise ModuleNotFoundError("No module named 'weftformer'")

sys.meta_path.insert(0, Blind())
sys.path[:] = [path for path in sys.path if path != {root!r}]
try:
    import weftformer
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("weftformer is visible")

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

source, target = sys.argv[1], sys.argv[2]
ids, prefix = torch.tensor({ids}), torch.tensor({prefix})
for kind in {kinds}:
    folder = f"{{source}}/{{kind}}"
    try:
        AutoModelForSeq2SeqLM.from_pretrained(folder)
    except ValueError as error:
        assert "trust_remote_code" in str(error), error
    else:
        raise SystemExit("foreign code ran without being trusted")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    assert type(model.config) is type(AutoConfig.from_pretrained(folder, trust_remote_code=True))
    base = AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert type(base).__name__ == "WeftModel"
    with torch.no_grad():
        found = {{
            "logits": model(input_ids=ids, decoder_input_ids=prefix).logits,
            "greedy": model.generate(ids, min_new_tokens=6, max_new_tokens=6),
            "beams": model.generate(ids, num_beams=3, max_new_tokens=6),
        }}
    model.save_pretrained(f"{{target}}/{{kind}}", max_shard_size="8KB")
    save_file({{name: value.contiguous() for name, value in found.items()}}, f"{{target}}/{{kind}}.safetensors")
assert not any(name == "weftformer" or name.startswith("weftformer.") for name in sys.modules)
"""


ROOT = Path(__file__).parents[2]


def run(source: Path, target: Path, python: str | Path = sys.executable) -> None:
    """Load the folders in a process that cannot see the package, and save them again."""
    target.mkdir()
    script = target / "script.py"
    script.write_text(SCRIPT.format(root=str(ROOT), ids=IDS.tolist(), prefix=TARGET.tolist(), kinds=list(KINDS)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_MODULES_CACHE": str(target / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(python), str(script), str(source), str(target)],
        cwd=target, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """The folder with the models saved by this process."""
    folder = tmp_path_factory.mktemp("folders") / "first"
    for kind, fields in KINDS.items():
        tiny_model(random=True, **fields).save_pretrained(folder / kind)
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
            ("AutoConfig", "configuration_weft.WeftConfig"), ("AutoModelForSeq2SeqLM", "modeling_weft.WeftForConditionalGeneration")
        }  # fmt: skip
        assert one == two


@pytest.mark.parametrize("trust", [True, False])
def test_where_weft_is_imported_its_own_classes_are_taken(trust, saved):
    model = AutoModelForSeq2SeqLM.from_pretrained(saved / "dense", trust_remote_code=trust)
    assert type(model) is WeftForConditionalGeneration and model.fast_path is not None
    assert type(AutoConfig.from_pretrained(saved / "dense", trust_remote_code=trust)) is WeftConfig

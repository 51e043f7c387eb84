"""Folders saved by earlier versions load and compute the same. A later format is refused with a message."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration import version

from .test_loading_damaged import fields

FIXTURES = Path(__file__).parent / "fixtures"
RELEASED = sorted(str(path.parent.relative_to(FIXTURES)) for path in FIXTURES.glob("*/*/config.json"))


@torch.no_grad()
def outputs(model: WeftForConditionalGeneration, tokenizer: Any, text: str) -> dict[str, list]:
    """Return what each later version must find too: ids, scores, and what greedy and beam search write."""
    given = {"input_ids": torch.tensor([tokenizer(text)["input_ids"]])}
    if model.config.num_condition_features:
        given["condition_values"] = torch.tensor([[2.0]])
    start = torch.tensor([[model.config.decoder_start_token_id, 5]])
    return {
        "input_ids": given["input_ids"].tolist(),
        "logits": model(**given, decoder_input_ids=start).logits.tolist(),
        "greedy": model.generate(**given, num_beams=1, min_new_tokens=6, max_new_tokens=6).tolist(),
        "beams": model.generate(**given, num_beams=3, min_new_tokens=6, max_new_tokens=6).tolist(),
    }


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(FIXTURES / "0.1.0" / "texts", tmp_path / "model"))


def test_every_format_has_a_folder():
    formats = {json.loads((FIXTURES / name / "config.json").read_text())["weft_format"] for name in RELEASED}
    assert formats == set(range(1, version.FORMAT + 1)), (
        "save small models of the new format beside the others, with their `outputs`"
    )


def test_the_version_is_one():
    project = tomllib.loads((Path(weftformer.__file__).parent / "pyproject.toml").read_text())["project"]
    assert version.__version__ == weftformer.__version__ == project["version"]


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_folder_loads_and_computes_what_it_did(name):
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    model, tokenizer = (
        one.from_pretrained(FIXTURES / name, local_files_only=True) for one in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    assert type(model) is WeftForConditionalGeneration and model.generation_config.num_beams == 2
    found = outputs(model, tokenizer, expected.pop("text"))
    logits, other = (torch.tensor(one.pop("logits")) for one in (found, expected))
    torch.testing.assert_close(logits, other, rtol=1e-4, atol=1e-4)
    assert found == expected


def test_a_saved_file_says_which_weft_wrote_it(folder):
    fields(folder / "config.json", weft_version="0.0.1")
    config = WeftConfig.from_pretrained(folder)
    config.save_pretrained(folder)
    found = json.loads((folder / "config.json").read_text())
    assert (found["weft_version"], found["weft_format"]) == (weftformer.__version__, version.FORMAT)
    assert WeftConfig(**config.to_dict()).to_dict() == config.to_dict()


@pytest.mark.parametrize("later", [version.FORMAT + 1, "2", None, True], ids=str)
def test_a_later_format_is_refused(folder, later):
    fields(folder / "config.json", weft_version="99.0.0", weft_format=later, norm_type=["what will be"])
    message = rf"99.0.0 .*format {later!r}, and Weft {weftformer.__version__} .*pip install -U weftformer"
    for load in (AutoConfig.from_pretrained, AutoModelForSeq2SeqLM.from_pretrained, WeftConfig.from_json_file):
        with pytest.raises(ValueError, match=message):
            load(folder / "config.json" if load == WeftConfig.from_json_file else folder)

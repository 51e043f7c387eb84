"""Damaged and hostile files of a folder are refused in a sentence that names the folder."""

import io
import json
import re
import sys

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer.hub.loading import check_family, check_generates, load, load_generator

from ..conftest import save_both
from ..models import tiny_text_model
from .test_export import ROOT


def fields(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


class Printed:
    def __reduce__(self):
        return print, ("this ran",)


def pickled(folder, write):
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        write(Printed(), file)


REGEX = {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
MODEL, TOKENIZER = AutoModelForSeq2SeqLM, AutoTokenizer
# what is loaded, the damage, and words of the message
DAMAGE = {
    "list of lists": (MODEL, lambda folder: (folder / "config.json").write_text("[" * 100_000), "RecursionError"),
    "d_model in words": (MODEL, lambda folder: fields(folder / "config.json", d_model="wide"), "d_model='wide'"),
    "end in words": (MODEL, lambda folder: fields(folder / "config.json", eos_token_id="a"), "eos_token_id='a'"),
    "end of generation in words": (
        MODEL, lambda folder: fields(folder / "generation_config.json", eos_token_id="a"), "generation_config.eos_token_id='a'"),
    "pickle of torch": (MODEL, lambda folder: pickled(folder, torch.save), "UnpicklingError"),
    "empty tokenizer": (TOKENIZER, lambda folder: (folder / "tokenizer.json").write_text("{}"), "KeyError"),
    "deep tokenizer": (TOKENIZER, lambda folder: (folder / "tokenizer.json").write_text("[" * 100_000), "RecursionError"),
    "length in words": (TOKENIZER, lambda folder: fields(folder / "tokenizer_config.json", model_max_length="x"), "TypeError"),
    "bad expression": (
        TOKENIZER, lambda folder: fields(folder / "tokenizer.json", pre_tokenizer=REGEX), "Oniguruma error"),
}  # fmt: skip


@pytest.fixture(scope="module")
def parts():
    return tiny_text_model(["one two"], encoder_layers=1, decoder_layers=1)


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_told_in_a_sentence(case, parts, tmp_path, capsys):
    kind, damage, words = DAMAGE[case]
    save_both(tmp_path, *parts)
    assert load(kind, tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=words) as error:
        load(kind, tmp_path)
    assert type(error.value) is ValueError and "this ran" not in capsys.readouterr().out


UNUSABLE = {"forced_bos_token_id": 10**9, "cache_implementation": "quantized", "length_penalty": "x", "num_beams": "x"}


@pytest.mark.parametrize("setting", UNUSABLE)
def test_settings_that_cannot_generate_are_found_by_a_trial(setting, parts, tmp_path):
    save_both(tmp_path, *parts)
    assert load_generator(str(tmp_path))
    fields(tmp_path / "generation_config.json", **{setting: UNUSABLE[setting]})
    with pytest.raises(ValueError, match=r"generation_config\.json"):
        load_generator(str(tmp_path))


@pytest.mark.parametrize(
    "setting", [{"decoder_start_token_id": [1, 1, 1]}, {"stop_strings": ["x"]}, {"max_length": 9}], ids=str
)
def test_settings_that_need_more_than_the_trial_are_allowed(setting, parts, tmp_path):
    parts[0].save_pretrained(tmp_path)
    fields(tmp_path / "generation_config.json", **setting)
    model = load(MODEL, tmp_path)
    check_generates(model, tmp_path)
    assert all(getattr(model.generation_config, name) == value for name, value in setting.items())


@pytest.mark.parametrize("kind", [MODEL, TOKENIZER])
def test_code_beside_a_model_does_not_run_even_if_standard_input_consents(kind, parts, tmp_path, monkeypatch):
    save_both(tmp_path, *parts)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    classes = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"), "evil.Evil")
    fields(tmp_path / "config.json", model_type="evil", auto_map=classes)
    fields(tmp_path / "tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": ["evil.Evil", None]})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 20)))
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load(kind, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_commands_load_by_this_function_alone():
    """A class for any family may run the code of a folder."""
    packages = [
        file.parent
        for file in ROOT.glob("*/__init__.py")
        if file.parent.name not in ("benchmarks", "recipes", "tests")
    ]
    files = [file for package in packages for file in package.rglob("*.py") if file.parent.name != "recipes"]
    loading = [file.name for file in files if re.search(r"\b(Auto\w+|kind)\.from_pretrained\(", file.read_text())]
    assert len(packages) > 10 and loading == ["loading.py"]


@pytest.mark.parametrize("field", ["d_model", "encoder_ffn_dim", "decoder_ffn_dim"])
def test_a_model_larger_than_the_memory_is_refused_before_it_is_made(field, parts, tmp_path):
    parts[0].save_pretrained(tmp_path)
    check_family(tmp_path)
    fields(tmp_path / "config.json", **{field: 10**12})
    with pytest.raises(ValueError, match=rf"{field}=1,000,000,000,000 right"):
        check_family(tmp_path)

"""Damaged and hostile files of a folder are refused in a sentence that names the folder."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer.hub.loading import check_generates, load
from weftformer.serving import load_task

from ..models import tiny_text_model


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
    for part in parts:
        part.save_pretrained(tmp_path)
    assert load(kind, tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=words) as error:
        load(kind, tmp_path)
    assert type(error.value) is ValueError and "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "setting",
    [
        {"forced_bos_token_id": 10**9},
        {"cache_implementation": "quantized"},
        {"length_penalty": "x"},
        {"num_beams": "x"},
    ],
    ids=str,
)
def test_settings_that_cannot_generate_are_found_by_a_trial(setting, parts, tmp_path):
    for part in parts:
        part.save_pretrained(tmp_path)
    assert load_task(str(tmp_path))
    fields(tmp_path / "generation_config.json", **setting)
    with pytest.raises(ValueError, match=r"generation_config\.json"):
        load_task(str(tmp_path))


@pytest.mark.parametrize(
    "setting", [{"decoder_start_token_id": [1, 1, 1]}, {"stop_strings": ["x"]}, {"max_length": 9}], ids=str
)
def test_settings_that_need_more_than_the_trial_are_allowed(setting, parts, tmp_path):
    parts[0].save_pretrained(tmp_path)
    fields(tmp_path / "generation_config.json", **setting)
    model = load(MODEL, tmp_path)
    check_generates(model, tmp_path)
    assert all(getattr(model.generation_config, name) == value for name, value in setting.items())

"""Damaged and hostile files of a folder are refused in a sentence that names the folder."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer.hub.loading import load

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

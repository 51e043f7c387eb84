"""`weftformer adapt`: a decoder-only folder with its tokenizer becomes an encoder-decoder's, or one line says why not."""

import json
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, LlamaConfig

from weftformer import conversion
from weftformer.conversion import files
from weftformer.conversion.adaptation import DTYPES, FAMILIES
from weftformer.scripts import adapt
from weftformer.scripts.cli import main
from weftformer.tokenization import train_tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small Llama in shards, whose tokenizer has no pad token and puts the bos in front."""
    folder = tmp_path_factory.mktemp("checkpoints") / "small-llama"
    tokenizer = train_tokenizer(["the weft crosses the warp"] * 4, vocab_size=270)
    tokenizer.pad_token = None
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder, max_shard_size="10KB")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def checkpoint(made, tmp_path):
    return shutil.copytree(made, tmp_path / made.name)


def test_help_names_what_the_room_can_do():
    assert [str(dtype) for dtype in DTYPES] == [f"torch.{name}" for name in adapt.DTYPES]
    assert all(family in adapt.EPILOG for family in FAMILIES)


def test_a_folder_that_loads_and_generates(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["adapt", str(checkpoint), str(out), "--pad-token", "<pad>"]) == 0
    printed = capsys.readouterr().out
    assert (
        f" parameters is in {out}. It has to be trained before use: weftformer pretrain --model-name-or-path {out}"
        in printed
    )
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForSeq2SeqLM.from_pretrained(out)
    assert tokenizer.pad_token == "<pad>" and tokenizer.padding_side == "right"
    inputs = tokenizer(["the weft", "the weft crosses the warp"], return_tensors="pt", padding=True)
    assert model.generate(**inputs, max_new_tokens=5).shape[0] == 2
    settings = json.loads((out / "generation_config.json").read_text())
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    assert [settings[name] for name in names] == [0, 1, 2, 1] == [getattr(model.config, name) for name in names]
    card = ModelCard.load(out / "README.md")
    assert "made from the decoder-only checkpoint small-llama" in card.text and "zhang2025t5gemma" in card.text
    assert str(tmp_path) not in card.content and card.data.base_model is None


def test_a_dtype_fields_and_a_folder_to_write_over(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    words = ["adapt", str(checkpoint), str(out), "--pad-token", "<pad>", "--dtype", "bfloat16"]
    words += ["--config-overrides", "dropout=0.1"]
    assert main(words) == 1
    assert "is not empty" in capsys.readouterr().err and (out / "old").exists()
    assert main([*words, "--overwrite"]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(out, dtype="auto")
    assert model.dtype == torch.bfloat16 and model.config.dropout == 0.1 and not (out / "old").exists()


def test_a_name_on_the_hub(checkpoint, tmp_path, monkeypatch):
    asked = []

    def download(name, allow_patterns):
        asked.append((name, "model*.safetensors" in allow_patterns))
        return str(checkpoint)

    monkeypatch.setattr(files, "snapshot_download", download)
    assert main(["adapt", "someone/small-llama", str(tmp_path / "out"), "--pad-token", "<pad>"]) == 0
    assert asked == [("someone/small-llama", False), ("someone/small-llama", True)]
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.base_model == "someone/small-llama" and "huggingface.co/someone/small-llama" in card.text


def test_two_checkpoints_and_some_of_their_layers(checkpoint, tmp_path, capsys):
    other = shutil.copytree(checkpoint, tmp_path / "other-llama")
    words = ["adapt", str(checkpoint), str(tmp_path / "out"), "--encoder", str(other), "--pad-token", "<pad>"]
    assert main([*words, "--num-encoder-layers", "1"]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert (model.config.encoder_layers, model.config.decoder_layers) == (1, 2)
    assert not model.config.share_encoder_decoder_embeddings
    text = ModelCard.load(tmp_path / "out" / "README.md").text
    assert "checkpoints small-llama and other-llama" in text and "the encoder with those of other-llama" in text
    train_tokenizer(["other texts have another vocabulary"] * 4, vocab_size=270).save_pretrained(other)
    assert main([*words, "--overwrite"]) == 1
    assert "has another vocabulary than" in capsys.readouterr().err


def test_a_folder_without_tokenizer(checkpoint, tmp_path, caplog):
    for file in checkpoint.glob("token*"):
        file.unlink()
    change(checkpoint, pad_token_id=0)
    assert main(["adapt", str(checkpoint), str(tmp_path / "out")]) == 0
    assert "has no tokenizer" in caplog.text and not list((tmp_path / "out").glob("tokenizer*"))


def change(folder, **fields):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


@pytest.mark.parametrize(
    ("fields", "words", "message"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, [], "quantization_config={'quant_method': 'awq'"),
        ({}, [], "has no pad token"),
        ({}, ["--pad-token", "<pad>", "--config-overrides", "dropuot=1"], "Did you mean `dropout`?"),
    ],
)
def test_what_cannot_be_is_said_before_weights_are_read(
    checkpoint, tmp_path, monkeypatch, capsys, fields, words, message
):
    monkeypatch.setattr(conversion, "read_weights", lambda folder: pytest.fail("the weights were read"))
    change(checkpoint, **fields)
    assert main(["adapt", str(checkpoint), str(tmp_path / "out"), *words]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]


def test_refusals(checkpoint, tmp_path, capsys):
    out = str(tmp_path / "out")
    wide = ["--pad-token", "<pad>", "--config-overrides", "decoder_ffn_dim=8"]
    for words, message in (
        (["./nowhere", out], "MODEL ./nowhere: there is no such folder"),
        ([str(checkpoint), str(checkpoint), "--overwrite"], "is the folder of a checkpoint"),
        ([str(checkpoint), out, *wide], "by the configuration it is"),
    ):
        assert main(["adapt", *words]) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists() and (checkpoint / "config.json").is_file()

"""`weftformer convert` and `weftformer upcycle`: output, files, refusals and exit codes."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartConfig, BartForConditionalGeneration

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.conversion import SOURCES, export
from weftformer.scripts.cli import main
from weftformer.tokenization import build_route_tokenizer

WORDS = {"input_ids": torch.tensor([[4, 5, 6, 52, 52, 7]]), "decoder_input_ids": torch.tensor([[0, 3, 4]])}


def small_dms(**fields):
    torch.manual_seed(0)
    widths = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    return WeftForConditionalGeneration(WeftConfig.from_preset("dms-flash-10m", **(widths | fields))).eval()


@pytest.fixture
def checkpoint(tmp_path):
    """A file in the form that DirectMultiStep saves."""
    model = small_dms()
    torch.save(export(model, SOURCES["dms"]), tmp_path / "small.ckpt")
    return model, tmp_path / "small.ckpt"


@pytest.mark.parametrize("prefix", ["", "net."])
def test_a_checkpoint_becomes_a_folder_that_loads(checkpoint, tmp_path, capsys, prefix):
    model, file = checkpoint
    torch.save({prefix + key: tensor for key, tensor in torch.load(file).items()}, file)
    out = tmp_path / "out"
    rename = ["--rename", "^net\\.="] if prefix else []
    assert main(["convert", str(file), str(out), "--heads", "8", *rename]) == 0
    printed = capsys.readouterr().out
    assert "source      dms: DirectMultiStep" in printed
    assert "encoder.tok_embedding.weight" not in printed  # patterns, not keys
    for line in ("matched         40", "missing          0", "unexpected       0", "Saved WeftFor"):
        assert line in printed
    loaded = AutoModelForSeq2SeqLM.from_pretrained(out)
    assert torch.equal(loaded(**WORDS).logits, model(**WORDS).logits)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.convert_ids_to_tokens([0, 22, 52]) == ["<SOS>", "?", " "]
    settings = json.loads((out / "generation_config.json").read_text())
    expected = {"decoder_start_token_id": 0, "eos_token_id": 22, "pad_token_id": 52, "max_length": 1074}
    assert settings | expected == settings


def nothing_written(tmp_path):
    return not any(path.is_dir() for path in tmp_path.iterdir())


def test_weights_that_do_not_fit_are_shown_and_nothing_is_written(checkpoint, tmp_path, capsys):
    weights = torch.load(checkpoint[1])
    del weights["decoder.fc_out.bias"]
    torch.save(weights, checkpoint[1])
    assert main(["convert", "dms", str(checkpoint[1]), str(tmp_path / "out"), "--heads", "8"]) == 1
    captured = capsys.readouterr()
    assert "1 missing (decoder.fc_out.bias (for lm_head.bias))" in captured.err and captured.err.count("\n") == 1
    assert "matched" in captured.out and nothing_written(tmp_path)


def test_refusals(checkpoint, tmp_path, capsys):
    _, file = checkpoint
    out = str(tmp_path / "out")
    for arguments, words in (
        ([str(file), out], "does not record encoder_attention_heads and decoder_attention_heads"),
        (["torhc", str(file), out], "there is no source 'torhc': choose from torch, bart,"),
        ([str(file), out, "--heads", "8", "--config-overrides", "dropuot=0.1"], "Did you mean `dropout`?"),
        ([str(file), out, "--heads", "8", "--rename", "^encoder=enc"], "No source has keys such as"),
        ([str(file), str(tmp_path)], "is not empty"),
    ):
        assert main(["convert", *arguments]) == 1, arguments
        assert words in capsys.readouterr().err, arguments
        assert nothing_written(tmp_path)


def test_a_folder_of_transformers_keeps_its_tokenizer_and_its_way_of_generating(tmp_path, capsys):
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=53, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    model.generation_config.num_beams = 3
    model.save_pretrained(tmp_path / "bart")
    words = {"input_ids": WORDS["input_ids"], "attention_mask": torch.ones(1, 6, dtype=torch.long)}
    assert main(["convert", str(tmp_path / "bart"), str(tmp_path / "out")]) == 0
    assert "Training differs: the bias of the head (final_logits_bias)" in capsys.readouterr().out
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert loaded.generation_config.num_beams == 3
    assert torch.equal(loaded.generate(**words, max_new_tokens=9), model.generate(**words, max_new_tokens=9))
    assert not (tmp_path / "out" / "tokenizer_config.json").exists()  # there was none
    build_route_tokenizer().save_pretrained(tmp_path / "bart")
    assert main(["convert", str(tmp_path / "bart"), str(tmp_path / "with-tokenizer")]) == 0
    assert len(AutoTokenizer.from_pretrained(tmp_path / "with-tokenizer")) == 53
    # a field on the command line is one of the search, too
    settings = ["--config-overrides", "decoder_start_token_id=5"]
    assert main(["convert", str(tmp_path / "bart"), str(tmp_path / "other"), *settings]) == 0
    other = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "other")
    assert other.generate(**words, max_new_tokens=2)[0, 0] == 5 and other.generation_config.num_beams == 3
    # older folders have all settings in config.json
    (tmp_path / "bart" / "generation_config.json").unlink()
    file = tmp_path / "bart" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_beams": 3}))
    assert main(["convert", str(tmp_path / "bart"), str(tmp_path / "old")]) == 0
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "old").generation_config.num_beams == 3


@pytest.mark.dtype(torch.float64)
def test_upcycle(tmp_path, capsys):
    model = small_dms()
    model.save_pretrained(tmp_path / "dense")
    build_route_tokenizer().save_pretrained(tmp_path / "dense")
    arguments = [str(tmp_path / "dense"), str(tmp_path / "sparse"), "--experts", "4", "--every", "1"]
    assert main(["upcycle", *arguments]) == 0
    sparse = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "sparse")
    assert len(sparse.routers()) == 2 and sparse.config.num_experts == 4
    torch.testing.assert_close(sparse(**WORDS).logits, model(**WORDS).logits, atol=1e-10, rtol=1e-10)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "sparse")) == 53
    assert "Saved the sparse model in" in capsys.readouterr().out
    card = (tmp_path / "sparse" / "README.md").read_text()
    assert "The dense model dense as a mixture of experts" in card and "2212.05055" in card
    assert main(["upcycle", str(tmp_path / "sparse"), str(tmp_path / "twice")]) == 1
    assert "sparse layers already" in capsys.readouterr().err and not (tmp_path / "twice").exists()

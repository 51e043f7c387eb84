"""`weftformer estimate`: tables, models in folders, JSON, and mistakes."""

import json
import re

import pytest

from weftformer import WeftConfig
from weftformer.estimation import Workload, estimate
from weftformer.scripts import cli

SMALL = (
    "d_model=32,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2,vocab_size=100"
)
QUICK = ["--tokens-per-batch", "512", "--source-length", "16", "--target-length", "16"]


def test_a_table_has_what_was_asked(capsys):
    sizes = ["--distributed-config", "fsdp_size=2", "--gpu", "h100,memory_gb=0.0001", "--tokens", "1e9"]
    overrides = ["--config-overrides", SMALL + ',encoder_mlp_layer_types="sparse"']
    assert cli.main(["estimate", *overrides, *sizes, *QUICK]) == 0
    text = capsys.readouterr().out
    for word in (
        "Parameters", "active for a token", "Memory of each of 2 processes", "weights", "gradients", "optimizer", "activations",
        "communication", "peak", "does not fit", "operations of a token", "1e+09 tokens", "days", "cache of a row",
        "searches with 5 beams",
    ):  # fmt: skip
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 140
    assert re.search(r"\n\nTraining\n", text) and re.search(r"rows that fit +0 ", text)


def test_a_folder_and_json(tmp_path, capsys):
    WeftConfig(d_model=32, vocab_size=100, encoder_layers=1, decoder_layers=2).save_pretrained(tmp_path)
    file = tmp_path / "cost.json"
    words = ["--model", str(tmp_path), "--config-overrides", "encoder_ffn_dim=64", "--gpu", "t4", "--json"]
    assert cli.main(["estimate", *words, str(file), *QUICK]) == 0
    assert "Training" in capsys.readouterr().out
    config = WeftConfig(d_model=32, vocab_size=100, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=64)
    expected = json.loads(json.dumps(estimate(config, Workload(512, 16, 16), "t4").to_dict()))
    assert json.loads(file.read_text()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "modern-tiny", "--model", "somewhere"], "exclude each other"),
        (["--tokens-per-batch", "0"], "tokens_per_batch=0"),
        (["--json", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_mistakes_are_named(words, message, capsys):
    assert cli.main(["estimate", *QUICK, *words]) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_another_family_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    assert cli.main(["estimate", "--model", str(tmp_path)]) == 1
    assert "is a t5 model" in capsys.readouterr().err

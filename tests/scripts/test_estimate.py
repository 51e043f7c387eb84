"""`weftformer estimate`: the words of the issue, models in folders, JSON, and mistakes."""

import json
import re

import pytest

from weftformer import WeftConfig
from weftformer.scripts import cli
from weftformer.training import DEVICES, Workload, estimate

SMALL = (
    "d_model=32,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2,vocab_size=100"
)
QUICK = ["--tokens-per-batch", "512", "--source-length", "16", "--target-length", "16"]


def test_a_table_has_what_was_asked(capsys):
    sizes = ["--distributed-config", "fsdp_size=2,ep_size=2", "--gpu", "h100", "--tokens", "1e9"]
    overrides = ["--config-overrides", SMALL + ',encoder_mlp_layer_types="sparse"']
    assert cli.main(["estimate", *overrides, *sizes, *QUICK]) == 0
    text = capsys.readouterr().out
    for word in (
        "Parameters", "active for a token", "Memory of each of 2 processes", "weights", "gradients", "optimizer", "activations",
        "communication", "peak", "operations of a token", "arithmetic", "bandwidth", "1e+09 tokens", "days", "kWh",
        "read for a token", "cache of a row", "searches with 5 beams",
    ):  # fmt: skip
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 140
    assert re.search(r"\n\nTraining\n", text)


def test_a_preset_and_its_overrides(capsys):
    assert (
        cli.main(
            ["estimate", "--preset", "modern-tiny", "--config-overrides", "vocab_size=100", "--json", "-", *QUICK]
        )
        == 0
    )
    numbers = json.loads(capsys.readouterr().out)
    config = WeftConfig.from_preset("modern-tiny", vocab_size=100)
    expected = estimate(config, Workload(512, 16, 16))
    assert numbers == json.loads(json.dumps(expected.to_dict()))


def test_a_folder_and_a_file(tmp_path, capsys):
    WeftConfig(d_model=32, vocab_size=100, encoder_layers=1, decoder_layers=2).save_pretrained(tmp_path)
    file = tmp_path / "cost.json"
    words = ["--model", str(tmp_path), "--config-overrides", "encoder_ffn_dim=64", "--json", str(file), "--gpu", "t4"]
    assert cli.main(["estimate", *words, *QUICK]) == 0
    assert "Training" in capsys.readouterr().out
    numbers = json.loads(file.read_text())
    assert numbers["device"]["name"] == "t4" and numbers["precision"] == "fp32"
    wanted = estimate(
        WeftConfig(d_model=32, vocab_size=100, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=64),
        Workload(512, 16, 16),
        "t4",
    )
    assert numbers["parameters"]["total"] == wanted.parameters.total


def test_a_model_that_does_not_fit_is_called_so(capsys):
    gpu = "h100,memory_gb=0.0001"
    assert cli.main(["estimate", "--config-overrides", SMALL, "--gpu", gpu, *QUICK]) == 0
    text = capsys.readouterr().out
    assert "does not fit" in text and re.search(r"rows that fit +0 ", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "huge"], "There is no preset 'huge'"),
        (["--preset", "modern-tiny", "--model", "somewhere"], "exclude each other"),
        (["--model", "/nowhere/at/all"], "there is no such folder"),
        (["--gpu", "h1000"], "no device 'h1000'"),
        (["--config-overrides", "d_modell=3"], "d_modell"),
        (["--tokens-per-batch", "0"], "tokens_per_batch=0"),
        (["--distributed-config", "ep_size=2,fsdp_size=2"], "needs experts"),
        (["--json", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert cli.main(["estimate", *words]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_another_family_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    assert cli.main(["estimate", "--model", str(tmp_path)]) == 1
    assert "is a t5 model" in capsys.readouterr().err


def test_every_device_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        cli.main(["estimate", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(re.search(rf"{name}[, ]", text.replace("- ", "-")) for name in DEVICES)

import json

import pytest

pytest.importorskip("rdkit")

from weft import WeftConfig, WeftForConditionalGeneration
from weft.scripts import cli
from weft.tokenization import build_route_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_target_positions=60,
    )  # fmt: skip
    WeftForConditionalGeneration(config).save_pretrained(folder)
    build_route_tokenizer().save_pretrained(folder)
    return str(folder)


def test_prints_and_writes_all_candidates(folder, tmp_path, capsys):
    file = tmp_path / "routes.json"
    assert cli.main(["plan", "OCC", "--model", folder, "--steps", "1", "--beams", "3", "--json", str(file)]) == 0
    assert "CCO: " in capsys.readouterr().out
    (plan,) = json.loads(file.read_text())
    assert plan["target"] == "CCO" and len(plan["candidates"]) == 3
    assert {"text", "score", "n_steps", "route", "problem"} <= set(plan["candidates"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [(["CC("], "'CC(' is not a molecule"), (["CCO", "--beams", "0"], "--beams must be at least 1")],
)
def test_errors_are_one_line(words, message, folder, capsys):
    assert cli.main(["plan", *words, "--model", folder]) == 1
    assert message in capsys.readouterr().err

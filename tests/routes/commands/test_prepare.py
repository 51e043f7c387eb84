"""`weftformer routes prepare` from the command line."""

import json
from dataclasses import asdict

import pytest
from datasets import load_from_disk

from weftformer.routes import Route, write_routes
from weftformer.routes.files.formats import to_reaction_tree
from weftformer.routes.training.preparation import Preparation
from weftformer.scripts import cli

AMIDE = Route("CCNC(C)=O", (Route("CC(=O)O"), Route("CCN")))
ESTER = Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO")))


def weft(*words) -> int:
    return cli.main(["routes", "prepare", *map(str, words)])


@pytest.fixture
def files(tmp_path):
    write_routes(tmp_path / "a.jsonl.gz", [AMIDE, ESTER])
    trees = [[to_reaction_tree(route)] for route in (AMIDE, Route("CCO", (Route("C=C"), Route("O"))))]
    (tmp_path / "b.json").write_text(json.dumps(trees, indent=1))
    (tmp_path / "test.txt").write_text(ESTER.to_string())
    return [tmp_path / "a.jsonl.gz", tmp_path / "b.json"]


def test_every_argument_arrives(files, tmp_path, capsys):
    out = tmp_path / "out"
    given = {"exclude_by": "made", "max_source_length": 200, "max_target_length": 50,
             "starting_material": "random", "permutations": 4, "seed": 7}  # fmt: skip
    arguments = ["--workers", 1]
    for name, value in given.items():
        arguments += [f"--{name.replace('_', '-')}", value]
    assert weft(tmp_path / "test.txt", "--output-dir", out, *arguments, "--no-progress") == 1
    message = capsys.readouterr().err
    assert "0 of 1 routes were kept: 1 route too long" in message and message.count("\n") == 1 and not out.exists()
    assert weft(*files, "--output-dir", out, *arguments, "--sub-routes", "--exclude", tmp_path / "test.txt") == 0
    printed = capsys.readouterr().out
    assert all(f"  {words}\n" in printed for words in ("2  kept", "1  dropped: duplicate", "1  dropped: excluded"))
    assert f"rows, in {out}; counts" in printed and json.loads((out / "report.json").read_text())["files"] == list(
        map(str, files)
    )
    expected = asdict(Preparation()) | given | {"sub_routes": True}
    assert json.loads((out / "report.json").read_text())["settings"] == expected
    assert weft(files[0], "--output-dir", out, "--aligned", 2, "--overwrite") == 0
    assert json.loads((out / "report.json").read_text())["settings"] == asdict(Preparation(aligned=2))


@pytest.mark.integration
def test_a_text_model_learns_to_predict_products(tmp_path, capsys):
    """As the documentation says, only shorter."""
    write_routes(tmp_path / "routes.jsonl", [AMIDE, ESTER])
    rows, model = tmp_path / "rows", tmp_path / "model"
    assert weft(tmp_path / "routes.jsonl", "--forward", "--output-dir", rows, "--no-progress", "--workers", 1) == 0
    size = "d_model=48,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=64,decoder_ffn_dim=64"
    words = ["--train-file", rows, "--tokenizer-vocab-size", 270, "--preset", "modern-tiny", "--config-overrides",
             size, "--max-steps", 120, "--per-device-train-batch-size", 3, "--learning-rate", 4e-3, "--warmup-steps",
             5, "--validation-split", 0, "--output-dir", model, "--use-cpu"]  # fmt: skip
    assert cli.main(["train", *map(str, words)]) == 0
    data = load_from_disk(rows)
    capsys.readouterr()
    assert cli.main(["generate", "--model", str(model), *data["source"]]) == 0
    assert capsys.readouterr().out.splitlines() == list(data["target"]) and len(data) == 3

"""`weftformer routes prepare` from the command line."""

import json
from dataclasses import asdict

import datasets
import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Route, write_routes
from weftformer.routes.data.preparation import Preparation
from weftformer.routes.files.formats import to_reaction_tree
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


def test_a_data_set_and_what_was_left_out(files, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    arguments = ["--exclude", tmp_path / "test.txt", "--permutations", 2, "--starting-material", "all", "--seed", 3]
    assert weft(*files, "--output-dir", out, *arguments) == 0
    shown = capsys.readouterr()
    assert "4  read" in shown.out and "2  kept" in shown.out and "1  dropped: duplicate" in shown.out
    assert "1  dropped: excluded" in shown.out and f"8 rows, in {out}" in shown.out
    data = datasets.load_from_disk(str(out))
    assert data.column_names == ["source", "target", "n_steps", "starting_material"] and len(data) == 8
    report = json.loads((out / "report.json").read_text())
    assert report["settings"]["seed"] == 3 and report["files"] == [str(file) for file in files]
    assert report["dropped"]["duplicate"]["examples"] == [
        {"file": str(files[1]), "index": "[0][0]", "why": AMIDE.smiles}
    ]


def test_every_argument_arrives(files, tmp_path, capsys):
    out = tmp_path / "out"
    given = {"exclude_by": "made", "max_source_length": 200, "max_target_length": 50,
             "starting_material": "random", "permutations": 4, "seed": 7}  # fmt: skip
    arguments = ["--workers", 1]
    for name, value in given.items():
        arguments += [f"--{name.replace('_', '-')}", value]
    assert weft(tmp_path / "test.txt", "--output-dir", out, *arguments, "--no-progress") == 1
    message = capsys.readouterr().err
    assert "0 of 1 routes were kept: 1 route too long" in message and not out.exists()
    assert weft(files[0], "--output-dir", out, *arguments, "--sub-routes") == 0
    expected = asdict(Preparation()) | given | {"sub_routes": True}
    assert json.loads((out / "report.json").read_text())["settings"] == expected
    assert weft(files[0], "--output-dir", out, "--aligned", 2, "--overwrite") == 0
    assert json.loads((out / "report.json").read_text())["settings"] == asdict(Preparation(aligned=2))


def test_a_mistake_is_one_line(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("\n\nDear diary\n" * 1001)
    assert weft(tmp_path / "notes.txt", "--output-dir", tmp_path / "out", "--no-progress", "--workers", 1) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "notes" in shown and not (tmp_path / "out").exists()

"""The study of training texts: what it counts, and that it runs from routes to a table."""

import json

import pytest

pytest.importorskip("rdkit")

from weftformer.benchmarks import route_texts as study
from weftformer.routes import Route, Stock, sample_routes, write_routes
from weftformer.routes.plans import Candidate, Plan

SMALL = "d_model=32,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=32,decoder_ffn_dim=32,max_target_positions=300"
TARGET = Route("CCNC(C)=O", (Route("CC(=O)O"), Route("CCN")))


def plan(*routes: Route | None) -> Plan:
    found = [Candidate("", -float(i), 1, route=route, rank=i + 1) for i, route in enumerate(routes)]
    return Plan(TARGET.smiles, found)


def test_what_is_counted():
    stock = Stock(["CC(=O)O", "CCN", "CC(=O)Cl", "C"])
    other = Route(TARGET.smiles, (Route("CC(=O)Cl"), Route("CCN")))
    longer = Route(TARGET.smiles, (Route("CCN"), Route("CC(=O)O", (Route("C"), Route("C")))))  # an O from nowhere
    short = Route(TARGET.smiles, (Route("CCN"),))
    plans = [plan(TARGET), plan(None, longer, TARGET), plan(short, other), plan(None)]
    found = study.figures(plans, [TARGET] * 4, stock)
    assert {name: value["value"] for name, value in found.items() if "@" in name} == {
        "exact@1": 0.25, "exact@10": 0.5, "last@1": 0.25, "last@10": 0.5, "possible@1": 0.25, "possible@10": 0.75}  # fmt: skip
    assert (found["valid"], found["of_these_possible"]) == (5 / 7, 3 / 5)
    assert found["exact@1"]["low"] == pytest.approx(0.0456, abs=1e-4) and found["exact@1"]["n"] == 4
    table = study.as_table([{"texts": "both", "seed": 0, "planning": "as it is", "steps": 3, **found}])
    assert "| both | 0 | as it is | 25.0% [4.6%, 69.9%] |" in table and "| 71%; 60% |" in table


@pytest.mark.slow
def test_from_routes_to_a_table(tmp_path, capsys):
    routes = sample_routes(40)
    write_routes(tmp_path / "train.jsonl", routes[:32])
    write_routes(tmp_path / "test.jsonl", routes[32:])
    (tmp_path / "reactions.jsonl").write_text('{"product": "CCNC(C)=O", "reactants": ["CCN", "CC(=O)O"]}\n')
    (tmp_path / "stock.smi").write_text("\n".join({leaf for route in routes for leaf in route.leaves()}))
    words = [
        "--train",
        "train.jsonl",
        "--test",
        "test.jsonl",
        "--reactions",
        "reactions.jsonl",
        "--stock",
        "stock.smi",
    ]
    words = [str(tmp_path / word) if "." in word else word for word in words]
    words += [
        "--out",
        str(tmp_path / "out"),
        "--texts",
        "canonical",
        "reactions",
        "--tokens",
        "3000",
        "--targets",
        "2",
    ]
    words += ["--max-tokens-per-batch", "1024", "--config-overrides", SMALL, "--beams", "2", "--max-new-tokens", "40"]
    words += ["--workers", "1", "--planning", "as it is=", "no grammar=--no-grammar"]
    study.main(words)
    table = capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "figures.json").read_text())["rows"]
    assert [(row["texts"], row["planning"]) for row in rows] == [
        ("canonical", "as it is"), ("canonical", "no grammar"), ("reactions", "as it is"), ("reactions", "no grammar")]  # fmt: skip
    # a token is a token, however many stand in a row
    assert all(2 <= row["steps"] <= 8 for row in rows) and table.count("| reactions | 0 |") == 2
    # nothing is done twice
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.name != "figures.json"}
    study.main(words)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert json.loads((tmp_path / "out" / "figures.json").read_text())["rows"] == rows


def test_mistakes(tmp_path):
    words = ["--train", "a", "--test", "b", "--stock", "c", "--out", str(tmp_path)]
    with pytest.raises(ValueError, match="--texts reactions needs --reactions FILE"):
        study.main([*words, "--texts", "reactions"])
    with pytest.raises(ValueError, match="--planning takes NAME=WORDS, got five"):
        study.main([*words, "--planning", "five"])

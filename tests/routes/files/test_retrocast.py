"""RetroCast, the package, reads what Weft writes, and Weft reads what RetroCast writes."""

import json

import pytest

from weftformer.routes import Route, read_routes, write_routes

retrocast = pytest.importorskip("retrocast", reason="the PyPI package retrocast is not installed")

# Canonical in RDKit, which RetroCast makes all SMILES; a chiral centre, a double bond and a molecule used twice are there.
ROUTES = [
    Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO"))),
    Route("COC(C)=O", (Route("CO"), Route("CC(=O)Cl", (Route("CC(=O)O"),)))),
    Route("C/C=C/COC(=O)[C@H](C)NC(C)=O", (Route("C/C=C/CO"), Route("CC(=O)N[C@@H](C)C(=O)O", (
        Route("C[C@H](N)C(=O)O"), Route("CC(=O)OC(C)=O", (Route("CC(=O)O"), Route("CC(=O)O"))))))),
]  # fmt: skip


def test_it_accepts_our_task_and_finds_our_routes_right(tmp_path):
    for name in ("task.json", "task.json.gz"):
        assert write_routes(tmp_path / name, ROUTES, "retrocast") == 3
        task = retrocast.load_task(tmp_path / name, chemistry=True)
        assert list(task["targets"]) == ["target-1", "target-2"] and task["name"] == "task"
        # its own copy of the task reads as ours does
        retrocast.write_task(task, tmp_path / "theirs.json")
        assert list(read_routes(tmp_path / "theirs.json")) == list(read_routes(tmp_path / name)) == ROUTES
    write_routes(tmp_path / "found", ROUTES[1:], "aizynthfinder")
    raw = dict(zip(task["targets"], json.loads((tmp_path / "found").read_text()), strict=True))
    predictions = retrocast.ingest(raw, "aizynthfinder", task)
    (tmp_path / "predictions.json").write_text(predictions.json())
    found = [route.canonical() for route in read_routes(tmp_path / "predictions.json")]
    assert found == [route.canonical() for route in ROUTES[1:]]
    stock = [leaf for route in ROUTES for leaf in route.leaves()]
    scored = retrocast.score(predictions, retrocast.validate_task(task), {"stock": stock}).to_dict()
    found = {name: result["candidates"][0] for name, result in scored["targets"].items()}
    assert {name: one["matched_acceptable_index"] for name, one in found.items()} == {"target-1": 1, "target-2": 0}
    assert all(one["matches_acceptable"] for one in found.values())

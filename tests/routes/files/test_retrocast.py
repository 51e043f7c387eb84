"""RetroCast, the package, reads what Weft writes, and Weft reads what RetroCast writes."""

import json

import pytest

from weftformer.routes import Candidate, Plan, Route, read_routes
from weftformer.routes.files.formats import to_reaction_tree, to_retrocast
from weftformer.routes.files.streams import write_plans

retrocast = pytest.importorskip("retrocast", reason="the PyPI package retrocast is not installed")

# Canonical in RDKit, which RetroCast makes all SMILES; a chiral centre, a double bond and a molecule used twice are
# there.
ROUTES = [
    Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO"))),
    Route("COC(C)=O", (Route("CO"), Route("CC(=O)Cl", (Route("CC(=O)O"),)))),
    Route("C/C=C/COC(=O)[C@H](C)NC(C)=O", (Route("C/C=C/CO"), Route("CC(=O)N[C@@H](C)C(=O)O", (
        Route("C[C@H](N)C(=O)O"), Route("CC(=O)OC(C)=O", (Route("CC(=O)O"), Route("CC(=O)O"))))))),
]  # fmt: skip


def test_predictions_are_those_of_retrocast(tmp_path):
    targets = {f"t{number}": route for number, route in enumerate(ROUTES)}
    molecules = {name: to_retrocast(route) for name, route in targets.items()}
    tasks = {
        name: {"id": name, "smiles": made["smiles"], "inchikey": made["inchikey"], "acceptable_routes": [
            {"target": made, "schema_version": "2"}]}
        for name, made in molecules.items()
    }  # fmt: skip
    about = {"name": "task", "description": "", "schema_version": "2", "targets": tasks}
    (tmp_path / "task.json").write_text(json.dumps(about))
    task = retrocast.load_task(tmp_path / "task.json", chemistry=True)
    # its own copy of the task reads as ours does
    retrocast.write_task(task, tmp_path / "theirs.json")
    assert list(read_routes(tmp_path / "theirs.json")) == list(read_routes(tmp_path / "task.json")) == ROUTES
    raw = {name: [to_reaction_tree(route)] for name, route in targets.items()}
    theirs = retrocast.ingest(raw, "aizynthfinder", task).json()
    (tmp_path / "theirs.json").write_text(theirs)
    assert [route.canonical() for route in read_routes(tmp_path / "theirs.json")] == [
        one.canonical() for one in ROUTES
    ]
    plans = [Plan(route.smiles, [Candidate("", -1.0, 1, route, rank=1)], id=name) for name, route in targets.items()]
    write_plans(tmp_path / "ours.json", plans, "retrocast")
    ours, theirs = json.loads((tmp_path / "ours.json").read_text()), json.loads(theirs)
    assert {name: found["route"]["target"] for name, (found,) in ours.items()} == molecules
    assert ours.keys() == theirs.keys() and ours["t0"][0].keys() <= theirs["t0"][0].keys()

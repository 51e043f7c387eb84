"""RetroCast, the package, reads what Weft writes, and Weft reads what RetroCast writes."""

import json
import sys

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


ASPIRIN, ACID, ANHYDRIDE = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccccc1O", "CC(=O)OC(C)=O"
URSA = "".join(f"<reactant><smiles>{one}</smiles></reactant>" for one in (ACID, ANHYDRIDE))
STEP = {"reactants": [ACID, ANHYDRIDE], "product": ASPIRIN, "probability": 0.5, "metadata": {}}
FOUND = {"reactions": [STEP], "num_steps": 1, "step_probability_min": 0.5, "step_probability_product": 0.5}
COUNTS = ["num_routes_initial_extraction", "num_model_calls_total", "num_model_calls_new", "num_model_calls_cached"]
COUNTS += ["num_routes", "num_nodes_explored", "time_taken_s_search", "time_taken_s_extraction"]
OUTPUT = {"routes": [FOUND], "target": ASPIRIN, "target_is_purchasable": False} | dict.fromkeys(COUNTS, 1)
OTHERS = {
    "retro-star": {"succ": True, "routes": f"{ASPIRIN}>0.58>{ACID}.{ANHYDRIDE}", "route_cost": 0.5},
    "dreamretro": {"succ": True, "routes": f"{ASPIRIN}>>{ACID}.{ANHYDRIDE}"},
    "synllama": [{"synthesis_string": f"{ACID};{ANHYDRIDE};R76;{ASPIRIN}"}],
    "retrochimera": {"smiles": ASPIRIN, "result": {"outputs": [OUTPUT]}},
    "ursa": [{"completion": f"<synthesis_step><product><smiles>{ASPIRIN}</smiles></product>{URSA}</synthesis_step>"}],
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("is_keyed", [False, True])
def test_results_of_other_programs_are_read(tmp_path, monkeypatch, name, is_keyed):
    data = {"target 1": OTHERS[name], "target 2": OTHERS[name]} if is_keyed else OTHERS[name]
    (tmp_path / "a.json").write_text(json.dumps(data))
    routes = list(read_routes(tmp_path / "a.json"))
    assert len(routes) == 1 + is_keyed and {route.smiles for route in routes} == {ASPIRIN}
    assert {*routes[-1].leaves()} == {ACID, ANHYDRIDE}
    monkeypatch.setitem(sys.modules, "retrocast", None)
    with pytest.raises(ValueError, match="pip install retrocast"):
        list(read_routes(tmp_path / "a.json"))

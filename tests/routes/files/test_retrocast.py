"""RetroCast, the package, reads what Weft writes, and Weft reads what RetroCast writes."""

import ast
import json

import pytest

from weftformer.routes import Route, read_routes, write_routes

pytest.importorskip("rdkit")
retrocast = pytest.importorskip("retrocast", reason="the PyPI package retrocast is not installed")

# Canonical in RDKit, which RetroCast makes all SMILES; a chiral centre, a double bond and a molecule used twice are there.
ROUTES = [
    Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO"))),
    Route("COC(C)=O", (Route("CO"), Route("CC(=O)Cl", (Route("CC(=O)O"),)))),
    Route("C/C=C/COC(=O)[C@H](C)NC(C)=O", (Route("C/C=C/CO"), Route("CC(=O)N[C@@H](C)C(=O)O", (
        Route("C[C@H](N)C(=O)O"), Route("CC(=O)OC(C)=O", (Route("CC(=O)O"), Route("CC(=O)O"))))))),
]  # fmt: skip


def target(route: Route) -> dict:
    return {"id": "t", "smiles": route.smiles, "inchikey": retrocast.get_inchi_key(route.smiles)}


def adapted(raw: list, adapter: str, route: Route) -> list:
    """What RetroCast makes of routes to the molecule of `route`, as JSON."""
    return json.loads(json.dumps(retrocast.adapt(raw, adapter, mode="strict", target=target(route))))


def read_back(tmp_path, data) -> list[Route]:
    (tmp_path / "theirs.json").write_text(json.dumps(data))
    return list(read_routes(tmp_path / "theirs.json"))


def sorted_routes(routes) -> list[Route]:
    return [route.canonical() for route in routes]


@pytest.mark.parametrize(("form", "adapter"), [("dms", "directmultistep"), ("aizynthfinder", "aizynthfinder"),
                                              ("paroutes", "paroutes"), ("weft", "directmultistep")])  # fmt: skip
@pytest.mark.parametrize("route", ROUTES)
def test_its_adapters_read_what_we_write(tmp_path, form, adapter, route):
    write_routes(tmp_path / "ours", [route], form)
    text = (tmp_path / "ours").read_text()
    raw = {
        "dms": lambda: [ast.literal_eval(line) for line in text.splitlines()],
        "weft": lambda: [json.loads(line)["route"] for line in text.splitlines()],
        "aizynthfinder": lambda: json.loads(text)[0],
        "paroutes": lambda: json.loads(text),
    }[form]()
    candidates = adapted(raw, adapter, route)
    (candidate,) = candidates
    assert shape(candidate["route"]["target"]) == shape_of(route)
    assert sorted_routes(read_back(tmp_path, candidates)) == [route.canonical()]


def shape(molecule: dict) -> tuple:
    """The tree of a route as RetroCast holds it; it sorts the reactants its own way."""
    step = molecule.get("product_of")
    return molecule["smiles"], tuple(sorted(map(shape, step["reactants"]))) if step else ()


def shape_of(route: Route) -> tuple:
    return route.smiles, tuple(sorted(map(shape_of, route.children)))


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
    assert sorted_routes(read_routes(tmp_path / "predictions.json")) == sorted_routes(ROUTES[1:])
    stock = [leaf for route in ROUTES for leaf in route.leaves()]
    scored = retrocast.score(predictions, retrocast.validate_task(task), {"stock": stock}).to_dict()
    found = {name: result["candidates"][0] for name, result in scored["targets"].items()}
    assert {name: one["matched_acceptable_index"] for name, one in found.items()} == {"target-1": 1, "target-2": 0}
    assert all(one["matches_acceptable"] for one in found.values())

"""The model that comes with the package: how its files are made, and what it says of itself."""

import gzip
import json

import pytest

pytest.importorskip("rdkit")

import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from weftformer.benchmarks import shipped_routes
from weftformer.routes import Route, RoutePlanner, Stock, write_routes
from weftformer.routes.scoring.round_trip import ForwardModel
from weftformer.routes.shipped import (
    FORWARD_MODEL,
    MODEL,
    STOCK,
    about_model,
    describe_figures,
    describe_model,
    provenance,
)
from weftformer.scripts import cli


@pytest.fixture(scope="module")
def shipped(planner, known, tmp_path_factory):
    """Folder and stock as `shipped_routes` makes them of a small model, and the folder that it was made of."""
    folder = tmp_path_factory.mktemp("shipped")
    source, routes = folder / "source", folder / "known.jsonl"
    planner.model.save_pretrained(source)
    settings = json.loads((source / "generation_config.json").read_text())
    settings |= {"_from_model_config": False, "routes": {"steps": [1, 3], "aligned": 8, "sub_routes": True}}
    (source / "generation_config.json").write_text(json.dumps(settings))
    planner.tokenizer.save_pretrained(source)
    write_routes(routes, known)
    words = [routes, "--model", source, "--with", "steps", "--beams", "2", "--json", folder / "found.json"]
    assert cli.main(["routes", "evaluate", *map(str, words)]) == 0
    arguments = ["--model", source, "--evaluation", folder / "found.json", "--num-routes", 1234, "--num-reactions", 5]
    arguments += ["--forward-model", source, "--out-forward", folder / "forward"]
    arguments += ["--stock-routes", routes, "--out", folder / "model", "--out-stock", folder / "stock.smi.gz"]
    shipped_routes.main([str(word) for word in arguments])
    return folder


def test_weights_are_stored_in_half_and_plan_what_the_trained_model_plans(shipped, planner, known):
    stored = load_file(shipped / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = RoutePlanner.from_pretrained(shipped / "model")
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert len(loaded.tokenizer) == 53
    expected, found = (one.plan([known[0].smiles], n_steps=known[0].depth, beams=2)[0] for one in (planner, loaded))
    assert found.routes[0] == expected.routes[0]
    assert found.candidates[0].score == pytest.approx(expected.candidates[0].score, abs=0.05)


def test_the_model_of_products_has_a_card_and_loads(shipped):
    assert "| parameters |" not in (card := (shipped / "forward" / "README.md").read_text()) and "## Training" in card
    assert AutoModelForSeq2SeqLM.from_pretrained(shipped / "forward").config.num_condition_features == 1
    assert {path.suffix for path in (shipped / "forward").iterdir()} == {".json", ".md", ".safetensors"}


def test_counts_of_a_search_are_taken_from_its_evaluation():
    shares = {"purchasable": 0.97, "purchasable_precedented": 0.83, "exact": 0.215}
    overall = {name: {"top-10": {"value": value}} for name, value in shares.items()}
    found = shipped_routes.searched({"columns": {"told nothing": {"num_targets": 200, "overall": overall}}})
    assert found == about_model()["searched"] == {"targets": 200, "purchasable": 194, "precedented": 166, "exact": 43}


def test_the_stock_is_the_starting_materials(shipped, known):
    lines = gzip.decompress((shipped / "stock.smi.gz").read_bytes()).decode().split()
    assert lines == sorted(set(lines))
    stock = Stock.from_file(shipped / "stock.smi.gz", progress=False, cache=False)
    assert len(stock) == len(lines) and not any(stock.missing(route) for route in known)
    assert stock.missing(Route("CCCCCCCCI", (Route("CCCCCCCCO"),))) == ["CCCCCCCCO"]
    assert [file.name for file in shipped.glob("*.npz")] == []


def test_the_figures_are_those_of_the_evaluation(shipped):
    measured = json.loads((shipped / "found.json").read_text())["columns"]["told steps"]["overall"]
    about = about_model(shipped / "model")
    assert about["figures"]["exact_top_1"] == measured["exact"]["top-1"]
    card = ModelCard.load(shipped / "model" / "README.md")
    shown = {one.metric_name: one.metric_value for one in card.data.eval_results}
    assert shown["recorded route, top-1"] == measured["exact"]["top-1"]["value"]
    assert card.data.license == "apache-2.0"
    assert "genheden2022paroutes" in card.text and "1,234 recorded routes" in card.text
    assert "from_pretrained()" in card.text and "trust_remote_code" not in card.text


def test_one_line_says_what_answers(shipped):
    about = about_model(shipped / "model")
    shares = {"exact_top_1": 0.081, "exact_top_10": 0.2, "last_reaction_top_1": 0.3, "last_reaction_top_10": 0.45}
    figures = {name: {"value": value, "n": 1000} for name, value in shares.items()}
    (shipped / "other").mkdir()
    (shipped / "other" / "about.json").write_text(json.dumps(about | {"figures": figures}))
    line = describe_model(shipped / "other")
    assert "\n" not in line and "Of 1,000 unseen recorded targets" in line
    assert "8.1 % (among the first ten: 20.0 %)" in line and "30.0 % (among the first ten: 45.0 %)" in line
    searched = {"targets": 50, "purchasable": 40, "precedented": 30, "exact": 10}
    (shipped / "other" / "about.json").write_text(json.dumps(about | {"searched": searched}))
    line = describe_model(shipped / "other")
    assert "for 50 unseen recorded targets" in line and all(f"{share} %" in line for share in (80, 60, 20))


def test_what_a_page_tells_of_model_and_stock(tmp_path):
    told = provenance(MODEL, STOCK, 7615)
    assert told["model"].startswith(f"{about_model()['name']}, ") and told["figures"] == describe_figures()
    assert told["stock"] == "the included one, 7,615 molecules"
    assert provenance(tmp_path, tmp_path / "own.smi") == {"model": tmp_path.name, "stock": "own.smi"}
    assert provenance("org/routes") == {"model": "org/routes"} and provenance() == {}


def test_what_comes_with_the_package():
    for folder in (MODEL, FORWARD_MODEL):
        assert 1e6 < sum(file.stat().st_size for file in folder.iterdir()) < 10e6
    likely, unlikely = ForwardModel.from_pretrained().ranks(
        [("CC(=O)NCc1ccccc1", ("CC(=O)Cl", "NCc1ccccc1")), ("CC(=O)NCc1ccccc1", ("CCBr", "NCc1ccccc1"))]
    )
    assert likely and not unlikely
    stock = Stock.from_file(STOCK, progress=False, cache=False)
    assert len(stock) == 7615 and stock.num_bad == 0
    about, planner = about_model(), RoutePlanner.from_pretrained()
    assert about["figures"]["exact_top_1"]["n"] >= 200 and planner.model.num_parameters() == about["parameters"]
    assert planner.about["starting_material"] is False
    (plan,) = planner.plan(["CC(=O)NCc1ccccc1"], n_steps=1, beams=3, stock=stock, progress=False)
    assert plan.routes and not any(candidate.fails_because for candidate in plan.distinct)

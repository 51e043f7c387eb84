"""The included model: how its files are made, and the facts about it."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import weftformer
from weftformer.routes import Route, RoutePlanner, Stock, write_routes
from weftformer.routes.commands.tasks import PlanTask
from weftformer.routes.recipes import shipped_routes
from weftformer.routes.shipped import MODEL, STOCK, about_model
from weftformer.routes.stock.offers import Offer


@pytest.fixture(scope="module")
def shipped(planner_folder, known, tmp_path_factory):
    """The folder and the stock that `shipped_routes` makes from a small model."""
    folder = tmp_path_factory.mktemp("shipped")
    write_routes(folder / "known.jsonl", known)
    arguments = ["--model", planner_folder, folder / "model"]
    arguments += ["--stock-routes", folder / "known.jsonl", "--out-stock", folder / "stock.csv.gz"]
    shipped_routes.main([str(word) for word in arguments])
    return folder


def test_weights_are_stored_in_half_and_plan_what_the_trained_model_plans(shipped, planner, known):
    stored = load_file(shipped / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = RoutePlanner.from_pretrained(shipped / "model")
    assert {path.suffix for path in (shipped / "model").iterdir()} == {".json", ".safetensors"}
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert len(loaded.tokenizer) == 53
    expected, found = (one.plan([known[0].smiles], n_steps=known[0].depth, beams=2)[0] for one in (planner, loaded))
    assert found.routes[0] == expected.routes[0]
    assert found.candidates[0].score == pytest.approx(expected.candidates[0].score, abs=0.05)


def test_the_stock_is_the_starting_materials(shipped, known):
    with gzip.open(shipped / "stock.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = {row["smiles"]: int(row["reactions"]) for row in csv.DictReader(file)}
    lines = list(rows)
    assert lines == sorted(lines) and rows == Counter(leaf for route in known for leaf in route.leaves())
    stock = Stock.from_file(shipped / "stock.csv.gz", progress=False, cache=False)
    assert len(stock) == len(lines) and not any(stock.missing(route) for route in known)
    assert stock.missing(Route("CCCCCCCCI", (Route("CCCCCCCCO"),))) == ["CCCCCCCCO"]
    assert [file.name for file in shipped.glob("*.npz")] == []


def test_what_comes_with_the_package():
    assert 1e6 < sum(file.stat().st_size for file in MODEL.iterdir()) < 10e6
    stock, benchmark = (Stock.from_file(name, progress=False) for name in (STOCK, "paroutes"))
    assert 10_000 < len(stock) < 60_000 and len(benchmark) == 7615 and stock.num_bad == benchmark.num_bad == 0
    for page in ("README.md", "docs/routes.md"):
        if (file := Path(weftformer.__file__).parent / page).is_file():  # the wheel has no pages
            assert f"{len(stock):,} molecules" in file.read_text(encoding="utf-8")
    phosgene, sold = stock.offer("ClC(Cl)=O"), stock.offer("CCO")
    assert phosgene.reactions > 100 and (sold.kind, sold.vendor) == ("sold", "ZINC20 in stock")
    common = stock.offer("CNC(=O)CCl")
    assert common == Offer("CNC(=O)CCl", kind="common", reactions=common.reactions) and common.reactions > 5
    assert common.description == f"used by {common.reactions} recorded reactions, no seller listed"
    about, planner = about_model(), RoutePlanner.from_pretrained()
    assert planner.model.num_parameters() == about["parameters"]
    assert planner.model.generation_config.routes["starting_material"] is False
    with pytest.raises(ValueError, match="starting material"):  # before any target
        PlanTask(str(MODEL), conditions={"starting_material": "CCO"}).load()
    (plan,) = planner.plan(["CC(=O)NCc1ccccc1"], n_steps=1, beams=3, stock=stock, progress=False)
    assert plan.routes and not any(candidate.fails_because for candidate in plan.distinct)
    # as the command does, it searches to the included stock
    (plan,) = planner.plan(["CC(=O)NCc1ccccc1"], num_routes=1, progress=False)
    assert plan.solved and plan.candidates[0].purchasable
    assert planner.expand("CC(=O)NCc1ccccc1", 1).candidates[0].missing is not None

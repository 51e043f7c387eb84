"""One object for all settings of a plan."""

import argparse
import inspect

import pytest

from weftformer.routes import NO_CONSTRAINTS, Constraints, PlanSettings, RoutePlanner, Stock
from weftformer.routes.commands import plan
from weftformer.routes.commands.arguments import plan_settings, take_shipped_model
from weftformer.routes.planning.constraints import is_forbidden
from weftformer.routes.server import RouteTask
from weftformer.routes.shipped import MODEL, STOCK
from weftformer.serving import Limits


def test_settings_shared_by_a_search():
    one = PlanSettings(
        beams=3, num_augmentations=4, seed=1, time_limit=3, per_reaction=1, on_salt="strip", max_new_tokens=5,
        enforce_limits=False,
    )  # fmt: skip
    assert one.for_search == PlanSettings(beams=3).for_search
    for other in ({"beams": 4}, {"ranking": "sqrt_length"}, {"grammar": False}, {"constraints": NO_CONSTRAINTS}):
        assert PlanSettings(**{"beams": 3} | other).for_search != one.for_search
    # a search to the stock goes on from what the stock lacks
    wishes = Constraints(only_purchasable=True, forbidden=("CO",))
    assert PlanSettings(constraints=wishes).for_search.rules == Constraints(forbidden=("CO",))
    assert PlanSettings(direct=True, constraints=wishes).for_search.rules == wishes


def test_rules_need_the_grammar():
    assert PlanSettings(grammar=False).rules == NO_CONSTRAINTS
    with pytest.raises(ValueError, match="Constraints need the grammar"):
        PlanSettings.from_options({"grammar": False, "required_leaf": "CO"})


def test_python_the_command_and_the_server_have_the_same_defaults():
    parser = argparse.ArgumentParser()
    plan.add_arguments(parser)
    arguments = parser.parse_args(["CCO"])
    take_shipped_model(arguments)
    assert plan_settings(arguments) == PlanSettings()
    python = inspect.signature(RoutePlanner.stream).parameters
    for name, option in (("n_steps", "steps"), ("starting_material", "starting_material"), ("settings", "library")):
        assert python[name].default is None is getattr(arguments, option)
    planner = RoutePlanner.from_pretrained()
    assert (
        arguments.stock == planner.stock.path == STOCK and arguments.model == str(MODEL) == planner.model.name_or_path
    )
    endpoint, *_ = RouteTask(planner, planner.stock).endpoints(Limits())
    request = endpoint.request(targets=["CCO"]).model_dump(exclude={"targets"})
    assert PlanSettings.from_options(request) == PlanSettings() and request["n_steps"] is None


def test_a_bond_is_kept_or_broken_and_a_price_is_a_limit(tmp_path):
    rules = Constraints(kept_substructures=["c-[CX3]=O"], broken_substructures=["C(=O)[NX3]"])
    acid, acetanilide = "O=C(O)c1ccccc1", "CC(=O)Nc1ccccc1"
    assert is_forbidden(acid, ["c1ccccc1", "O=C=O"], rules)
    assert not is_forbidden("COC(=O)c1ccccc1", [acid, "CO"], rules)
    (tmp_path / "stock.csv").write_text(f"smiles,price_usd\n{acid},5\nCO,7\n{acetanilide},1\nCCO,\n")
    stock = Stock.from_file(tmp_path / "stock.csv", progress=False)
    settings = PlanSettings(constraints=rules, max_price=5, have=["CN"])
    limited = settings.stock_of(stock)
    assert [smiles in limited for smiles in (acid, "CO", acetanilide, "CCO", "CN")] == [True, False, False, True, True]
    assert settings.for_search.stock_of(stock).offer("CO") is None and "CO" in stock
    assert settings.for_search != PlanSettings(constraints=rules, have=["CN"]).for_search
    with pytest.raises(ValueError, match="max_price"):
        PlanSettings(max_price=-1)
    with pytest.raises(ValueError, match="substructure"):
        Constraints(kept_substructures=["C.C"])

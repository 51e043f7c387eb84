import json

import pytest

pytest.importorskip("rdkit")

import transformers

import weftformer  # noqa: F401  registers the pipeline
from weftformer.routes import Stock
from weftformer.routes.planning.model_search import RouteSearch


def test_plans_as_the_planner_does(planner, known, planner_folder):
    pipeline = transformers.pipeline("weft-routes", model=planner_folder, beams=2)
    target, steps = known[3].smiles, known[3].depth
    (plan,) = planner.plan([target], n_steps=steps, beams=2, progress=False)
    found = pipeline(target, n_steps=steps)
    assert found["target"] == target and json.loads(json.dumps(found)) == found
    assert [c["text"] for c in found["candidates"]] == [c.text for c in plan.candidates]
    assert found["candidates"][0]["route"] == known[3].to_dict()


def test_several_targets_are_planned_together(known, planner_folder, monkeypatch):
    pipeline = transformers.pipeline("weft-routes", model=planner_folder, batch_size=3)
    searches, add = [], RouteSearch.add
    monkeypatch.setattr(
        RouteSearch, "add", lambda self, jobs, *rest: searches.append(len(jobs)) or add(self, jobs, *rest)
    )
    targets = [route.smiles for route in known]
    stock = Stock(known[0].leaves())
    plans = pipeline(iter(targets), n_steps=[route.depth for route in known], beams=2, stock=stock)
    assert [plan["target"] for plan in plans] == targets and searches == [3, 1]
    assert plans[0]["candidates"][0]["purchasable"] is True and plans[1]["candidates"][0]["purchasable"] is False

import json

import transformers

import weftformer  # noqa: F401  registers the pipeline
from weftformer.routes import Stock


def test_plans_as_the_planner_does(planner, known, planner_folder):
    pipeline = transformers.pipeline("weft-routes", model=planner_folder, batch_size=3, beams=2)
    targets, steps, stock = [one.smiles for one in known], [one.depth for one in known], Stock(known[0].leaves())
    found = list(pipeline(iter(targets), n_steps=steps, stock=stock))
    assert json.loads(json.dumps(found)) == found and [plan["target"] for plan in found] == targets
    for row, plan in zip(
        found, planner.plan(targets, n_steps=steps, beams=2, stock=stock, progress=False), strict=True
    ):
        assert [c["text"] for c in row["candidates"]] == [c.text for c in plan.candidates]
    assert found[0]["candidates"][0]["purchasable"] is True and found[1]["candidates"][0]["purchasable"] is False
    assert pipeline(targets[3], n_steps=2)["candidates"][0]["route"] == known[3].to_dict()

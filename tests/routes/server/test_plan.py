"""POST /plan: settings, drawings, refusals and time limits of a model that writes routes."""

import dataclasses
import html
import re
from types import SimpleNamespace

import pytest

from weftformer.routes import Candidate, Constraints, Plan, PlanSettings, Route, Stock
from weftformer.routes.server import RouteTask
from weftformer.serving import Limits

from ...serving.conftest import running


def schema(server):
    return server.client.get("/openapi.json").json()["components"]["schemas"]["PlanRequest"]["properties"]


def test_every_setting_reaches_the_planner(planner, known, monkeypatch):
    task, calls = RouteTask(planner, Stock(known[0].leaves())), []
    make, short = task.requests, PlanSettings(beams=1, max_new_tokens=1, direct=True)
    monkeypatch.setattr(task, "requests", lambda **arguments: calls.append(arguments) or make(["CCO"], short))
    body = {
        "beams": 3, "num_augmentations": 4, "seed": 3, "ranking": "sqrt_length", "max_new_tokens": 9,
        "time_limit": 20, "on_salt": "strip", "direct": True, "num_routes": 3, "per_reaction": 2, "max_price": 5.0,
    }  # fmt: skip
    rules = {
        "only_purchasable": True, "required_leaf": "OC", "forbidden": ["OCC"], "forbidden_substructures": ["[N+]"],
        "kept_substructures": ["cc"], "broken_substructures": ["CN"],
    }  # fmt: skip
    targets = {"targets": "CCO", "n_steps": 2, "starting_material": "CO"}
    assert task.rows(make(["CCO"], PlanSettings(beams=50), n_steps=[1, 2, 3])[0]) == 50  # one search at a time
    with running(task) as server:
        for more in (body | rules | {"allow": ["cycles"]}, {"grammar": False, "allow": ["cycles"]}, {}):
            assert server.client.post("/plan", json=targets | more).status_code == 200
    expected = {"targets": ["CCO"], "n_steps": [2], "starting_material": "CO", "on_error": "skip", "budget": 60.0}
    constraints = Constraints(acyclic=False, **rules)
    settings = [PlanSettings(**body, constraints=constraints), PlanSettings(grammar=False), PlanSettings()]
    assert calls == [expected | {"settings": setting} for setting in settings]


@pytest.mark.parametrize("has_stock", [True, False])
def test_page_and_schema_show_the_fields_of_the_model(planner, known, monkeypatch, has_stock):
    routes = {"steps": [1, 3], "starting_material": False}
    monkeypatch.setattr(planner.model.generation_config, "routes", routes, raising=False)
    with running(RouteTask(planner, Stock(known[0].leaves()) if has_stock else None)) as server:
        page, fields = html.unescape(server.client.get("/").text), schema(server)
        for body, reason in (
            ({"n_steps": 7}, "body.n_steps"), ({"starting_material": "CO"}, "without a starting material"),
        ):  # fmt: skip
            response = server.client.post("/plan", json={"targets": "CCO"} | body)
            assert response.status_code == 422 and reason in response.json()["detail"]
    assert "default: 60 for a search to the stock" in page and "no limit" not in page
    assert "POST /plan" in page and ("stock</th><td>2 molecules<" in page) == has_stock
    form = re.findall(r'name="(\w+)"', page[page.index("<form") :])
    expected = ["targets", "n_steps", "beams", "required_leaf", "num_routes", "time_limit"]
    assert form == expected + ["only_purchasable", "max_price"] * has_stock
    kinds = (PlanSettings, Constraints)
    settings = {field.name for kind in kinds for field in dataclasses.fields(kind) if "help" in field.metadata}
    assert settings - {"enforce_limits", "library"} | {"allow", "n_steps"} <= set(fields) and not {
        "starting_material",
        "library",
    } & {*fields}
    assert fields["on_salt"]["enum"] == ["error", "strip"] and fields["forbidden"]["maxItems"] == 100


def test_targets_steps_and_drawings(planner, known):
    with running(RouteTask(planner)) as server:
        body = {"targets": [route.smiles for route in known[:2]], "n_steps": [2, 1], "beams": 2}
        plans = server.client.post("/plan", json=body | {"max_routes": 1, "svg": True}).json()["plans"]
        assert [plan["target"] for plan in plans] == body["targets"]
        for plan, route in zip(plans, known, strict=False):
            (best,) = plan["candidates"]
            assert best["route"]["smiles"] == route.smiles and best["svg"].startswith("<svg")
        (step,) = plans[0]["candidates"][0]["reactions"]
        assert step["name"] == "amide coupling" and step["reaction"].endswith(f">>{known[0].smiles}")
        whole = server.client.post("/plan", json=body).json()["plans"]
        assert {c["n_steps"] for c in whole[1]["candidates"]} == {1, 2}
        assert 2 < len(whole[1]["candidates"]) <= 4  # a beam may have been given up
        page = server.client.post("/plan", json=body, headers={"accept": "text/html"}).text
        assert page.count("<details open>") == 2 and page.count("<svg") >= 2


class Finished(dict):
    """A pool that gives every input the same answer at once."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan

    add = dict.__setitem__

    def step(self):
        return [(self.popitem()[0], self.plan)] if self else []


def test_routes_are_drawn_once_and_in_time(planner, known, monkeypatch):
    routes = [Route("CCO", (Route("C" * carbons),)) for carbons in (1, 2, 3, 4, 4, 3)]
    plan = Plan("CCO", [Candidate("", float("-inf"), 1, route) for route in routes])
    pictures = []

    def draw(route, **settings):
        pictures.append(route)
        return f"<svg of {route.to_string()}>"

    monkeypatch.setattr("weftformer.routes.server.planning.route_svg", draw)
    task, body = RouteTask(planner), {"targets": known[0].smiles, "svg": True}
    monkeypatch.setattr(task, "open_pool", lambda key, watch: Finished(plan))
    with running(task) as server:
        rows = server.client.post("/plan", json=body).json()["plans"][0]["candidates"]
    assert [row["svg"] for row in rows] == [f"<svg of {route.to_string()}>" for route in routes]
    assert {row["score"] for row in rows} == {None}
    assert pictures == routes[:4]
    with pytest.raises(TimeoutError):  # which the server answers with 504
        task.endpoints(Limits())[0].respond(
            SimpleNamespace(targets=["CCO"], svg=True, max_routes=None), [plan], [None], 0.0
        )


def test_a_refused_target_does_not_harm_the_others(planner, known):
    with running(RouteTask(planner)) as server:
        body = {"targets": ["C(C", known[0].smiles, "", "CCO.CCN"], "n_steps": 1, "beams": 2}
        bad, good, empty, two = server.client.post("/plan", json=body).json()["plans"]
        assert good["problem"] is None and good["candidates"][0]["route"]["smiles"] == known[0].smiles
        assert "'C(C' is not a molecule" in bad["problem"] and bad["candidates"] == []
        assert "not a molecule" in empty["problem"]
        assert "`on_salt=strip` plans its largest" in two["problem"] and "--" not in two["problem"]
        answer = server.client.post("/plan", json=body | {"targets": ["C(C", "CCO.CCN"]})
    assert answer.status_code == 422 and "'C(C' is not a molecule" in answer.json()["detail"]


def test_a_search_to_the_stock_has_the_budget_of_the_server(planner, known):
    task = RouteTask(planner, Stock(known[0].leaves()))
    for settings, steps, seconds in (
        (PlanSettings(), None, 2.0),
        (PlanSettings(time_limit=0.1), None, 0.1),
        (PlanSettings(), [1], None),
    ):
        (request,) = task.requests([known[0].smiles], settings, n_steps=steps, budget=2.0)
        assert request.settings.time_limit == seconds

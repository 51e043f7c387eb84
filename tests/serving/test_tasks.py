"""Models behind the server give the same answers in batches as alone."""

import dataclasses
import html
import json
import re
import time
from pathlib import Path

import pytest

import weftformer
from weftformer.inference import tasks
from weftformer.inference.batching import Unwanted
from weftformer.inference.tasks import RouteTask, TextTask, load_task
from weftformer.routes import Candidate, Constraints, Plan, PlanSettings, Route, Stock
from weftformer.routes.scoring.round_trip import ForwardModel
from weftformer.serving import app

from ..models import tiny_text_model
from .conftest import StubTask, running, soon

TEXTS = ["one two three", "two", "three one four one five nine two six", "six six", "", "nine five"]


def pooled(task, pause=0.0):
    """Record the number of inputs in each step of a pool. `pause` makes steps longer by some seconds."""
    sizes, open_pool = [], task.open_pool

    def opened(key, watch):
        pool = open_pool(key, watch)
        step = pool.step

        def counted():
            sizes.append(len(pool))
            time.sleep(pause)
            return step()

        pool.step = counted
        return pool

    task.open_pool = opened
    return sizes


def asked_together(task, bodies):
    """Return the answers to simultaneous requests, each with its own body."""
    with running(task, max_batch_size=4) as server:
        got = [server.later(body) for body in bodies]
        soon(lambda: all(got), 60)
    assert [response.status_code for (response,) in got] == [200] * len(got), got[0][0].text
    return [response.json() for (response,) in got]


def test_a_target_with_many_searches_does_not_keep_another_waiting(planner):
    task = RouteTask(planner)
    (many,), (one,) = (task.works(["CCO"], PlanSettings(beams=50), n_steps=steps) for steps in ([1, 2, 3], [1]))
    assert task.rows(many) == 50 and task.pool_key(many) == task.pool_key(one)
    pool, ended = task.open_pool(task.pool_key(many), lambda: None), []
    pool.add("many", many)
    pool.step()
    pool.add("one", one)
    while len(pool):
        ended += [key for key, _ in pool.step()]
    assert ended == ["one", "many"]


def test_every_setting_reaches_the_planner(planner, known, monkeypatch):
    task, asked = RouteTask(planner, Stock(known[0].leaves())), []
    works, short = task.works, PlanSettings(beams=1, max_new_tokens=1, direct=True)
    monkeypatch.setattr(task, "works", lambda *given, **more: asked.append((*given, more)) or works(["CCO"], short))
    body = {
        "beams": 3, "num_augmentations": 4, "seed": 3, "ranking": "sqrt_length", "on_fail": "drop", "max_new_tokens": 9,
        "time_limit": 20, "on_salt": "strip", "direct": True, "num_routes": 3,
        "per_reaction": 2,
    }  # fmt: skip
    wishes = {
        "only_purchasable": True,
        "required_leaf": "OC",
        "forbidden": ["OCC"],
        "forbidden_substructures": ["[N+]"],
    }
    targets = {"targets": "CCO", "n_steps": 2, "starting_material": "CO"}
    with running(task) as server:
        for more in (body | wishes | {"allow": ["cycles"]}, {"grammar": False, "allow": ["cycles"]}, {}):
            assert server.client.post("/plan", json=targets | more).status_code == 200
    given = {"n_steps": [2], "starting_material": "CO", "on_error": "skip", "budget": 60.0}
    constraints = Constraints(acyclic=False, **wishes)
    assert asked == [
        (["CCO"], PlanSettings(**body, constraints=constraints), given),
        (["CCO"], PlanSettings(grammar=False), given),
        (["CCO"], PlanSettings(), given),
    ]


def test_the_pages_of_a_model_of_routes(planner, known):
    with running(RouteTask(planner, Stock(known[0].leaves()))) as server:
        first = html.unescape(server.client.get("/").text)
        assert "POST /plan" in first and re.search(r"stock</th><td>2 molecules<", first)
        fields = server.client.get("/openapi.json").json()["components"]["schemas"]["PlanRequest"]["properties"]
    kinds = (PlanSettings, Constraints)
    settings = {field.name for kind in kinds for field in dataclasses.fields(kind) if "help" in field.metadata}
    assert settings - {"enforce_limits"} | {"allow"} <= set(fields)
    assert fields["on_salt"]["enum"] == ["error", "strip"]


def test_what_the_model_refuses_is_not_described(planner, monkeypatch):
    about = {"steps": [1, 3], "starting_material": False}
    monkeypatch.setattr(planner.model.generation_config, "routes", about, raising=False)
    with running(RouteTask(planner)) as server:
        fields = server.client.get("/openapi.json").json()["components"]["schemas"]["PlanRequest"]["properties"]
        assert {"n_steps", "required_leaf", "only_purchasable", "time_limit"} <= set(fields)
        assert "starting_material" not in fields
        for body, reason in (
            ({"n_steps": 7}, "less than or equal to 6"), ({"starting_material": "CO"}, "without a starting material"),
        ):  # fmt: skip
            response = server.client.post("/plan", json={"targets": "CCO"} | body)
            assert response.status_code == 422 and reason in response.json()["detail"]


def test_a_list_of_targets_steps_and_drawings(planner, known):
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
        assert {c["n_steps"] for c in whole[0]["candidates"]} == {1, 2}
        assert 2 < len(whole[0]["candidates"]) <= 4  # a beam may have been given up
        assert server.client.post("/translate", json={"texts": "a"}).json() == {
            "detail": "stub writes routes: use POST /plan."
        }


class Finished(dict):
    """A pool that gives every input the same answer at once, whose first score is minus infinity."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan

    add = dict.__setitem__

    def step(self):
        return [(self.popitem()[0], self.plan)] if self else []


def test_routes_are_drawn_once_and_in_time(planner, known, monkeypatch):
    routes = [Route("CCO", (Route("C" * carbons),)) for carbons in (1, 2, 3, 4, 4, 3)]
    plan = Plan("CCO", [Candidate("", float("-inf"), 1, route) for route in routes])
    drawn, seconds = [], [0.0]

    def draw(route, **settings):
        drawn.append(route)
        time.sleep(seconds[0])
        return f"<svg of {route.to_string()}>"

    monkeypatch.setattr("weftformer.routes.drawing.svg.route_svg", draw)
    task, body = RouteTask(planner), {"targets": known[0].smiles, "svg": True}
    monkeypatch.setattr(task, "open_pool", lambda key, watch: Finished(plan))
    with running(task) as server:
        told = server.client.post("/plan", json=body).json()["plans"][0]["candidates"]
    assert [one["svg"] for one in told] == [f"<svg of {route.to_string()}>" for route in routes]
    assert {one["score"] for one in told} == {None}
    assert drawn == routes[:4]
    drawn.clear()
    seconds[0] = 0.3
    with running(task, timeout_s=0.5) as server:
        answer = server.client.post("/plan", json=body)
    assert answer.status_code == 504 and answer.json() == {"detail": "No answer within 0.5 s."}
    assert len(drawn) <= 2


REFUSED = [
    ({"targets": "C(C"}, "'C(C' is not a molecule"),
    ({"targets": "C" * 601}, "at most 600 characters: got 'CCC"),
    ({"targets": "CCO", "n_steps": 0}, "greater than or equal to 1: got 0"),
    ({"targets": "CCO", "n_steps": "2"}, "valid integer"),
    ({"targets": "CCO", "ranking": "best"}, "log_probability"),
    ({"targets": "CCO", "time_limit": 61}, "time_limit: Input should be less than or equal to 60"),
    ({"targets": "CCO", "only_purchasable": True}, "(only_purchasable) need a stock"),
    ({"targets": "CCO", "num_routes": 101}, "less than or equal to 100: got 101"),
    (
        {"targets": "CCO", "grammar": False, "required_leaf": "CO"},
        "Constraints need the grammar: leave out `grammar=False`",
    ),
    ({"targets": "CCO", "n_steps": 18}, "less than or equal to 17: got 18"),  # its positions have room for no more
    ({"targets": "CCO", "allow": ["magic"]}, "allow"),
]


def test_what_cannot_be_planned_is_refused_before_it_waits(planner):
    task = RouteTask(planner)
    steps = pooled(task)
    with running(task) as server:
        for body, reason in REFUSED:
            response = server.client.post("/plan", json=body)
            assert response.status_code == 422 and reason in response.json()["detail"], body
    assert steps == []


def test_one_target_that_is_refused_does_not_harm_the_others(planner, known):
    with running(RouteTask(planner)) as server:
        body = {"targets": ["C(C", known[0].smiles, "", "CCO.CCN"], "n_steps": 1, "beams": 2}
        bad, good, empty, two = server.client.post("/plan", json=body).json()["plans"]
        assert good["problem"] is None and good["candidates"][0]["route"]["smiles"] == known[0].smiles
        assert "'C(C' is not a molecule" in bad["problem"] and bad["candidates"] == []
        assert "not a molecule" in empty["problem"]
        assert '`on_salt="strip"` plans its largest' in two["problem"] and "--" not in two["problem"]
        answer = server.client.post("/plan", json=body | {"targets": ["C(C", "CCO.CCN"]})
    assert answer.status_code == 422 and "'C(C' is not a molecule" in answer.json()["detail"]


class Chain(RouteTask):
    """Searches with a table of reactions of the amide and its amine instead of the model."""

    def open_pool(self, key, watch):
        pool = super().open_pool(key, watch)
        pool._pool._search.add = self.add
        pool._pool._search.step = self.step
        pool._pool._search.remove = lambda tickets: None
        self.jobs, self.watch = {}, watch
        return pool

    def add(self, jobs, deadlines, limits):
        tickets = [f"{len(self.jobs)} {place}" for place in range(len(jobs))]
        self.jobs |= dict(zip(tickets, jobs, strict=True))
        return tickets

    def step(self):
        time.sleep(0.05)
        found, self.jobs = self.jobs, {}
        return [(ticket, self.proposed(job.smiles)) for ticket, job in found.items()]

    @staticmethod
    def proposed(smiles):
        used = {"CC(=O)NCc1ccccc1": ("CC(=O)O", "NCc1ccccc1"), "NCc1ccccc1": ("N", "BrCc1ccccc1")}.get(smiles)
        # what is not in the table is made from one carbon more, and so on
        route = Route(smiles, tuple(map(Route, used or (f"C{smiles}",))))
        return [Candidate(route.to_string(), -0.5, 1, route)]


def test_a_request_is_searched_to_the_stock_within_a_budget(planner, library):
    task, body = Chain(planner, Stock(["CC(=O)O", "N", "BrCc1ccccc1"])), {"beams": 2, "num_routes": 1}
    with running(task, timeout_s=1.0) as server:
        answer = server.client.post("/plan", json=body | {"targets": ["CC(=O)NCc1ccccc1", "C1CC"]}).json()["plans"]
        late = server.client.post("/plan", json=body | {"targets": ["CCO", "CC(=O)NCc1ccccc1"]})
        own = server.client.post("/plan", json=body | {"targets": "CCO", "time_limit": 0.1, "only_purchasable": True})
        unread = server.client.post("/plan", json=body | {"targets": "[Pt]", "direct": True})
        whole = server.client.post("/plan", json={"targets": "CCO", "beams": 1, "direct": True, "max_new_tokens": 9})
    best = Plan.from_dict(answer[0]).candidates[0]
    assert best.purchasable and best.route.num_reactions == 2 and "is not a molecule" in answer[1]["problem"]
    first, second = late.json()["plans"]  # half of the time of the server
    assert "No route to the stock was found in 0.5 s: " in first["remarks"][0] and first["candidates"][0]["missing"]
    assert second["candidates"][0]["purchasable"] and second["remarks"] == []
    [none] = own.json()["plans"][0]["candidates"]
    assert none["route"] is None and "no route to the stock was found in 0.1 s" in none["problem"]
    assert unread.status_code == 422 and "vocabulary" in unread.json()["detail"]
    assert whole.status_code == 200 and not whole.json()["plans"][0]["remarks"]


def test_the_example_of_the_documentation(planner):
    page = (Path(weftformer.__file__).parent / "docs" / "serving.md").read_text(encoding="utf-8")
    bodies = dict(re.findall(r"curl localhost:8000(/\S+) .*-d '(.*)'", page))
    assert set(bodies) == {"/plan", "/translate"}
    with running(RouteTask(planner)) as server:
        response = server.client.post("/plan", json=json.loads(bodies["/plan"]))
    assert response.status_code == 200 and len(response.json()["plans"]) == 1
    with running(StubTask()) as server:
        response = server.client.post("/translate", json=json.loads(bodies["/translate"]))
    assert response.json() == {"translations": ["EIN HAUS", "ZWEI HUNDE"]}


@pytest.fixture(scope="module")
def text_task():
    return TextTask(*tiny_text_model([*TEXTS, "four five six seven eight nine"], max_source_positions=40))


@pytest.mark.parametrize("in_batches", [False, True])
def test_translations_are_those_of_each_text_alone(text_task, monkeypatch, in_batches):
    monkeypatch.setattr(text_task, "open_pool", text_task.open_pool)  # put back afterwards
    if in_batches:
        monkeypatch.setattr(tasks, "reason_against", lambda model, **settings: "in batches")
    steps = pooled(text_task, pause=0.01)
    bodies = [{"texts": text, "beams": beams, "max_new_tokens": 12} for text in TEXTS[:4] for beams in (1, 3)]
    answers = asked_together(text_task, bodies)
    assert max(steps) > 1
    for body, answer in zip(bodies, answers, strict=True):
        inputs = text_task.tokenizer([body["texts"]], return_tensors="pt")
        ids = text_task.model.generate(**inputs, num_beams=body["beams"], do_sample=False, max_new_tokens=12)
        assert answer["translations"] == text_task.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert len({answer["translations"][0] for answer in answers}) > 1


def test_a_pool_whose_inputs_all_left_has_nothing_to_do(text_task, monkeypatch):
    monkeypatch.setattr(tasks, "reason_against", lambda model, **settings: "in batches")
    pool, (work,) = text_task.open_pool(1, lambda: None), text_task.works(["one"])
    pool.add("one", work)
    pool.remove("one")
    assert pool.step() == []


def test_settings_and_ends_are_those_saved_with_the_model():
    task = TextTask(*tiny_text_model(TEXTS))
    saved = task.model.generation_config
    saved.max_new_tokens = 7
    assert task.settings(None, None).max_new_tokens == 7 and task.settings(None, 3).max_new_tokens == 3
    saved.eos_token_id = task.model.config.eos_token_id = None
    ((written,),) = task.write(task.works(["one two"], max_new_tokens=4), with_scores=True)
    assert written.is_cut and written.score < 0


def test_texts_that_do_not_fit_are_refused(text_task):
    for text, conditions, reason in (
        ("one " * 50, (), "at most 40"),
        ("one", [1.0], "expects 0 conditions per text, got 1"),
    ):
        with pytest.raises(ValueError, match=reason):
            text_task.works([text], conditions=conditions)


def test_a_stock_and_a_forward_model_need_routes(text_task, tmp_path):
    text_task.model.save_pretrained(tmp_path)
    text_task.tokenizer.save_pretrained(tmp_path)
    assert isinstance(load_task(str(tmp_path)), TextTask)
    with pytest.raises(ValueError, match="A stock is only supported for route models"):
        load_task(str(tmp_path), stock=object())
    with pytest.raises(ValueError, match="A forward model is only supported for route models"):
        app.load_app(str(tmp_path), forward_model=str(tmp_path))


def test_weights_that_are_nan_are_refused(tmp_path):
    model, tokenizer = tiny_text_model(TEXTS)
    next(model.model.decoder.layers[0].parameters()).data.view(-1)[1] = float("nan")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"NaN or infinite, model\.decoder\.layers\.0\.\S+ and 0 other tensors"):
        load_task(str(tmp_path))


def test_the_time_limit_is_no_longer_than_the_answer_may_take(planner):
    with running(RouteTask(planner), timeout_s=1.5) as server:
        answer = server.client.post("/plan", json={"targets": "CCO", "time_limit": 2})
    assert answer.status_code == 422 and "less than or equal to 1.5: got 2" in answer.json()["detail"]


class KnowsTheAmide(ForwardModel):
    """Predicts the first route's product, and nothing else."""

    def __init__(self, route):
        self.beams, self.batch_size, self._known, self.route = 5, 16, {}, route

    def _predict(self, batch):
        amide = self.route.smiles, tuple(sorted(self.route.leaves()))
        return {one: 2 if one == amide else 0 for one in batch}


def test_feasibility(planner, known):
    forward = KnowsTheAmide(known[0])
    task = RouteTask(planner, forward=forward)
    with running(task) as server:
        body = {"targets": [route.smiles for route in known[:2]], "n_steps": 1, "beams": 2}
        first, second = server.client.post("/plan", json=body).json()["plans"]
        assert "predicts the products of reactions, 5 beams" in server.client.get("/").text
    assert first["candidates"][0]["feasibility"] == 1.0
    assert [one["forward_rank"] for one in first["candidates"][0]["reactions"]] == [2]
    assert {one["feasibility"] for one in second["candidates"] if one["route"]} == {0.0}

    def watch():
        raise Unwanted  # nobody waits any more when the search is done

    forward._predict = None
    with pytest.raises(Unwanted):
        task.open_pool(PlanSettings(), watch)._judged(Plan("CCO", [Candidate("", 0.0, 1, known[2])]), forward)


def test_an_engine_writes_what_the_model_writes(tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("WEFT_COMPILED_FOLDER", str(tmp_path))
    task = TextTask(*tiny_text_model(["one two three four five six nine"]))
    body = {"texts": TEXTS, "beams": 1, "max_new_tokens": 6}
    (expected,) = asked_together(task, [body])
    task.use_engine("ctranslate2")
    assert task.open_pool(1, lambda: None).search is None
    assert asked_together(task, [body]) == [expected]
    task.use_engine("auto")  # the beam search of this model ends by another rule
    assert task.open_pool(4, lambda: None).search is not None

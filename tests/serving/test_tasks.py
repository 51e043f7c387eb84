"""Models behind the server: what they answer in company is what they answer alone."""

import html
import json
import re
import time
from pathlib import Path

import pytest
import torch

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.inference.batching import Unwanted
from weftformer.inference.tasks import RouteTask, TextTask, load_task
from weftformer.routes import Candidate, Plan, Route, Stock
from weftformer.routes.scoring.round_trip import ForwardModel
from weftformer.tokenization import train_tokenizer

from .conftest import StubTask, running, soon

TEXTS = ["one two three", "two", "three one four one five nine two six", "six six", "", "nine five"]


def recorded(task):
    """The sizes of the batches that a task computes."""
    sizes, compute = [], task.compute

    def counted(works, is_wanted):
        sizes.append(len(works))
        return compute(works, is_wanted)

    task.compute = counted
    return sizes


def pooled(task, pause=0.0):
    """For each step of a pool, how many inputs were in it. Steps take a pause in seconds longer."""
    sizes, open_pool = [], task.open_pool

    def opened(key):
        pool = open_pool(key)
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
    """Answers to requests that come at once, each alone in its request."""
    with running(task, max_batch_size=4, max_wait_ms=300) as server:
        got = [server.later(body) for body in bodies]
        soon(lambda: all(got), 60)
    assert [response.status_code for (response,) in got] == [200] * len(got), got[0][0].text
    return [response.json() for (response,) in got]


def test_routes_are_those_of_the_planner_whoever_else_asks(planner, known):
    task = RouteTask(planner)
    sizes, steps = recorded(task), pooled(task)
    bodies = [{"targets": route.smiles, "n_steps": route.depth, "beams": 3} for route in known]
    answers = asked_together(task, [*bodies, bodies[0] | {"beams": 2}, bodies[1] | {"ranking": "sqrt_length"}])
    assert max(steps) > 1 and sizes == [1]  # of the other ranking
    same = {"max_new_tokens": task.max_new_tokens, "progress": False}  # texts that do not end are cut off there
    wanted = [planner.plan([b["targets"]], n_steps=b["n_steps"], beams=3, **same)[0] for b in bodies]
    wanted += planner.plan([known[0].smiles], n_steps=known[0].depth, beams=2, **same)
    wanted += planner.plan([known[1].smiles], n_steps=1, beams=3, ranking="sqrt_length", **same)
    for answer, alone in zip(answers, wanted, strict=True):
        plan = Plan.from_dict(answer["plans"][0])
        assert plan.target == alone.target
        assert [(c.text, c.route, c.n_steps, c.rank) for c in plan.candidates] == [
            (c.text, c.route, c.n_steps, c.rank) for c in alone.candidates
        ]
        scores = [candidate.score for candidate in alone.candidates]
        assert [candidate.score for candidate in plan.candidates] == pytest.approx(scores, abs=2e-4)


def test_several_texts_of_a_target(planner, known):
    task, target = RouteTask(planner), known[0].smiles
    bodies = [{"targets": target, "n_steps": 1, "beams": 2, "texts": texts, "seed": 3} for texts in (1, 4)]
    one, four = asked_together(task, bodies)
    settings = {"n_steps": 1, "beams": 2, "max_new_tokens": task.max_new_tokens, "progress": False, "seed": 3}
    (alone,) = planner.plan([target], texts=4, **settings)
    found = [candidate["text"] for candidate in four["plans"][0]["candidates"]]
    assert found == [candidate.text for candidate in alone.candidates]
    assert len(found) > len(one["plans"][0]["candidates"])


def test_reactions_are_named(planner, known):
    with running(RouteTask(planner)) as server:
        body = {"targets": known[0].smiles, "n_steps": 1, "beams": 2}
        best, *_ = server.client.post("/plan", json=body).json()["plans"][0]["candidates"]
        (step,) = best["reactions"]
        assert step["name"] == "amide coupling" and step["reaction"].endswith(f">>{known[0].smiles}")


def test_the_pages_of_a_model_of_routes(planner, known):
    with running(RouteTask(planner, Stock(known[0].leaves()))) as server:
        first = html.unescape(server.client.get("/").text)
        assert "POST /plan" in first and re.search(r"stock</th><td>2 molecules<", first)
        [(url, body)] = re.findall(r"curl (\S+) -H 'content-type: application/json' -d '(.*)'", first)
        assert len(server.client.post(url, json=json.loads(body)).json()["plans"]) == 1
        text = html.unescape(re.sub(r"<[^>]*>", " ", server.client.get("/docs").text))
        fields = server.client.get("/openapi.json").json()["components"]["schemas"]["PlanRequest"]["properties"]
        assert all(
            name in text and field["description"] in text for name, field in fields.items() if "description" in field
        )
        wishes = {
            "texts",
            "seed",
            "allow",
            "impossible",
            "only_purchasable",
            "required_leaf",
            "forbidden",
            "forbidden_substructures",
            "time_limit",
            "salts",
            "expand_leaves",
            "per_reaction",
        }
        assert wishes <= set(fields)


def test_a_longer_neighbour_takes_no_room_away(untrained_folder):
    # untrained, it writes until there is no room: a batch has the room of its longest target
    task = load_task(untrained_folder)
    targets = ["CCO", "CCCCCCCCCCCCCCCCCCCC", "CCN", "CCCCCCCC"]
    answers = asked_together(task, [{"targets": target, "n_steps": 1, "beams": 2} for target in targets])
    for target, answer in zip(targets, answers, strict=True):
        (alone,) = task.planner.plan([target], n_steps=1, beams=2, max_new_tokens=task.max_new_tokens, progress=False)
        assert [c["text"] for c in answer["plans"][0]["candidates"]] == [c.text for c in alone.candidates]


def test_a_list_of_targets_steps_and_drawings(planner, known):
    with running(RouteTask(planner)) as server:
        body = {"targets": [route.smiles for route in known[:2]], "n_steps": [2, 1], "beams": 2}
        plans = server.client.post("/plan", json=body | {"max_routes": 1, "svg": True}).json()["plans"]
        assert [plan["target"] for plan in plans] == body["targets"]
        for plan, route in zip(plans, known, strict=False):
            (best,) = plan["candidates"]
            assert best["route"]["smiles"] == route.smiles and best["svg"].startswith("<svg")
        whole = server.client.post("/plan", json=body).json()["plans"]
        assert {c["n_steps"] for c in whole[0]["candidates"]} == {1, 2}
        assert 2 < len(whole[0]["candidates"]) <= 4  # a beam may have been given up
        assert server.client.post("/translate", json={"texts": "a"}).json() == {
            "detail": "stub writes routes: POST /plan."
        }


def test_routes_are_drawn_once_and_in_time(planner, known, monkeypatch):
    routes = [Route("CCO", (Route("C" * carbons),)) for carbons in (1, 2, 3, 4, 4, 3)]
    plan = Plan("CCO", [Candidate("", -1.0, 1, route) for route in routes])
    drawn, seconds = [], [0.0]

    def draw(route, **settings):
        drawn.append(route)
        time.sleep(seconds[0])
        return f"<svg of {route.to_string()}>"

    monkeypatch.setattr("weftformer.routes.drawing.svg.route_svg", draw)
    task, body = RouteTask(planner), {"targets": known[0].smiles, "svg": True}
    monkeypatch.setattr(task, "compute", lambda works, is_wanted: iter([(0, plan)]))
    monkeypatch.setattr(task, "pool_key", lambda work: None)
    with running(task, max_wait_ms=0) as server:
        told = server.client.post("/plan", json=body).json()["plans"][0]["candidates"]
    assert [one["svg"] for one in told] == [f"<svg of {route.to_string()}>" for route in routes]
    assert drawn == routes[:4]
    drawn.clear()
    seconds[0] = 0.3
    with running(task, max_wait_ms=0, timeout_s=0.5) as server:
        answer = server.client.post("/plan", json=body)
    assert answer.status_code == 504 and answer.json() == {"detail": "There was no answer within 0.5 s."}
    assert len(drawn) <= 2


def test_a_beam_that_found_nothing_has_no_score(planner, known, monkeypatch):
    task, (plan,) = RouteTask(planner), planner.plan([known[0].smiles], n_steps=1, beams=1, progress=False)
    (best,) = plan.candidates
    object.__setattr__(best, "score", float("-inf"))
    monkeypatch.setattr(task, "compute", lambda works, is_wanted: iter([(0, plan)]))
    monkeypatch.setattr(task, "pool_key", lambda work: None)
    with running(task) as server:
        answer = server.client.post("/plan", json={"targets": known[0].smiles}).json()
    assert answer["plans"][0]["candidates"][0]["score"] is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"targets": "C(C"}, "'C(C' is not a molecule"),
        ({"targets": ["CCO", "C.C"]}, "2 molecules, a salt or a mixture"),
        (
            {"targets": "C" * 150},
            "product has 152 tokens (150 characters, <SOS> and ?), at most 145 are allowed (product_length=145): 'CCC",
        ),
        ({"targets": "C" * 601}, "at most 600 characters: got 'CCC"),
        ({"targets": "CCO", "n_steps": 0}, "greater than or equal to 1: got 0"),
        ({"targets": "CCO", "texts": 17}, "less than or equal to 16: got 17"),
        ({"targets": "CCO", "forbidden": ["C1CC"]}, "'C1CC' is not a molecule"),
        ({"targets": "CCO", "required_leaf": "CC("}, "'CC(' is not a molecule"),
        ({"targets": "CCO", "n_steps": "2"}, "valid integer"),
        ({"targets": "CCO", "ranking": "best"}, "log_probability"),
        ({"targets": ["CCO", "CC"], "starting_material": ["C"]}, "1 starting materials for 2 targets"),
        ({"targets": "CCO", "starting_material": "nothing"}, "'nothing' is not a molecule"),
        ({"targets": "CCO", "time_limit": 0}, "time_limit=0.0 is not allowed: give a number of seconds above 0."),
        ({"targets": "CCO", "time_limit": 61}, "time_limit: Input should be less than or equal to 60"),
        ({"targets": "CCO", "salts": "keep"}, "'refuse' or 'strip': got 'keep'"),
        ({"targets": "CCO", "per_reaction": 0}, "per_reaction=0 is not allowed: give at least 1."),
        ({"targets": "CCO", "expand_leaves": -1}, "expand_leaves=-1 is not allowed: give at least 0."),
        ({"targets": "CCO", "expand_leaves": 1}, "expand_leaves=1 needs a stock"),
        ({"targets": "CCO", "expand_leaves": 3}, "less than or equal to 2: got 3"),
    ],
)
def test_what_cannot_be_planned_is_refused_before_it_waits(planner, body, reason):
    task = RouteTask(planner)
    sizes = recorded(task)
    with running(task) as server:
        response = server.client.post("/plan", json=body)
    assert response.status_code == 422 and reason in response.json()["detail"] and sizes == []


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
    tokenizer = train_tokenizer([*TEXTS, "four five six seven eight nine"] * 3, vocab_size=300)
    torch.manual_seed(0)
    config = WeftConfig.from_preset(
        "modern-tiny", vocab_size=len(tokenizer), d_model=48, encoder_layers=1, decoder_layers=1,
        encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=40,
    )  # fmt: skip
    return TextTask(WeftForConditionalGeneration(config), tokenizer)


def test_translations_are_those_of_each_text_alone(text_task, monkeypatch):
    for name in ("compute", "open_pool"):
        monkeypatch.setattr(text_task, name, getattr(text_task, name))  # put back afterwards
    sizes, steps = recorded(text_task), pooled(text_task)
    bodies = [{"texts": text, "beams": beams, "max_new_tokens": 12} for text in TEXTS[:4] for beams in (1, 3)]
    answers = asked_together(text_task, bodies)
    assert max(steps) > 1 and sizes == []
    for body, answer in zip(bodies, answers, strict=True):
        inputs = text_task.tokenizer([body["texts"]], return_tensors="pt")
        ids = text_task.model.generate(**inputs, num_beams=body["beams"], do_sample=False, max_new_tokens=12)
        assert answer["translations"] == text_task.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert len({answer["translations"][0] for answer in answers}) > 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"texts": "one " * 50}, "at most 40"),
        ({"texts": "one", "conditions": [1.0]}, "takes 0 conditions with a text: got 1"),
    ],
)
def test_texts_that_do_not_fit_are_refused(text_task, body, reason):
    with running(text_task) as server:
        response = server.client.post("/translate", json=body)
    assert response.status_code == 422 and reason in response.json()["detail"]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_computation_that_nobody_wants_ends_at_the_next_token(text_task, beams):
    asked = []

    def is_wanted():
        asked.append(True)
        return len(asked) < 3

    works = text_task.works(["one two"], beams=beams, max_new_tokens=100)
    with pytest.raises(Unwanted):
        list(text_task.compute(works, is_wanted))
    assert len(asked) == 3


def test_a_search_that_nobody_wants_ends_at_the_next_token(planner, known):
    task = RouteTask(planner)
    with pytest.raises(Unwanted):
        list(task.compute(task.works([known[0].smiles], beams=2), lambda: False))


def test_conditions_reach_the_model(text_task):
    torch.manual_seed(1)
    config = WeftConfig(**(text_task.model.config.to_dict() | {"num_condition_features": 1}))
    model = WeftForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "condition" in name:
                weight.normal_()
    task = TextTask(model, text_task.tokenizer)
    written = [
        next(iter(task.compute(task.works(["one two"], conditions=[value], max_new_tokens=8), lambda: True)))[1]
        for value in (0.0, 30.0)
    ]
    assert written[0] != written[1]


def test_a_stock_needs_routes(text_task, tmp_path):
    text_task.model.save_pretrained(tmp_path)
    text_task.tokenizer.save_pretrained(tmp_path)
    assert isinstance(load_task(str(tmp_path)), TextTask)
    with pytest.raises(ValueError, match="A stock is for models that write routes"):
        load_task(str(tmp_path), stock=object())


def test_what_routes_have_to_be(planner, known):
    route = known[0]
    with running(RouteTask(planner, Stock(route.leaves()))) as server:
        body = {"targets": route.smiles, "n_steps": 2, "beams": 8}

        def ask(**wishes):
            return server.client.post("/plan", json=body | wishes)

        def routes(**wishes):
            (plan,) = ask(**wishes).json()["plans"]
            return [candidate for candidate in plan["candidates"] if candidate["route"]]

        first = routes()[0]
        assert (first["purchasable"], first["possible"], first["impossible_because"]) == (True, True, None)
        assert all(candidate["possible"] for candidate in routes())
        free = routes(allow=["cycles", "missing-atoms"])
        assert not all(candidate["possible"] for candidate in free)
        assert [c["possible"] for c in free] == sorted((c["possible"] for c in free), reverse=True)
        assert len(routes(allow=["cycles", "missing-atoms"], impossible="drop")) < len(free)
        acid = {"smiles": "CC(=O)O"}
        assert all(acid not in one["route"]["children"] for one in routes(forbidden=["OC(C)=O"]))
        assert all(one["purchasable"] for one in routes(only_purchasable=True))
        for wishes, reason in (
            ({"forbidden": ["C1CC"]}, "'C1CC' is not a molecule"), ({"forbidden_substructures": ["[N"]}, "substructure"),
            ({"forbidden_substructures": [".".join(["[#6]"] * 21)]}, "several parts"),
            ({"grammar": False, "required_leaf": "CO"}, "Constraints need the grammar"), ({"allow": ["magic"]}, "allow"),
        ):  # fmt: skip
            answer = ask(**wishes)
            assert answer.status_code == 422 and reason in answer.json()["detail"]
    with running(RouteTask(planner)) as server:
        answer = server.client.post("/plan", json=body | {"only_purchasable": True})
        assert answer.status_code == 422 and "need a stock" in answer.json()["detail"]


def test_salts_last_reactions_and_time(planner, known):
    """Each setting gives what the planner gives."""
    task, target = RouteTask(planner), known[3].smiles
    body = {"targets": target, "n_steps": 2, "beams": 4}
    same = {"n_steps": 2, "beams": 4, "max_new_tokens": task.max_new_tokens, "progress": False}

    def ask(**settings):
        return server.client.post("/plan", json=body | settings).json()["plans"][0]

    with running(task) as server:
        salt = f"{target}.Cl"
        stripped = ask(targets=salt, salts="strip")
        (alone,) = planner.plan([salt], salts="strip", **same)
        assert stripped["target"] == target and stripped["remarks"] == list(alone.remarks) != []
        every, few = ask(), ask(per_reaction=1)
        (alone,) = planner.plan([target], per_reaction=1, **same)
        assert [one["text"] for one in few["candidates"]] == [one.text for one in alone.candidates]
        assert len(few["candidates"]) < len(every["candidates"])
        assert_same_candidates(ask(time_limit=60), every)
        over = ask(time_limit=1e-6)
    assert "The time limit of 1e-06 s ended the search" in over["remarks"][-1]
    assert [one["route"] for one in over["candidates"]] == [None] * len(over["candidates"])


def test_what_the_stock_lacks_is_planned(chain_planner):
    target, amine = "CC(=O)NCc1ccccc1", "NCc1ccccc1"
    task = RouteTask(chain_planner, Stock(["CC(=O)O", "N", "BrCc1ccccc1"]))
    body = {"targets": target, "n_steps": 1, "beams": 2}
    with running(task, max_expand_leaves=1) as server:
        plain, joined = (
            server.client.post("/plan", json=body | {"expand_leaves": levels, "svg": True}).json()["plans"][0]
            for levels in (0, 1)
        )
        refused = server.client.post("/plan", json=body | {"expand_leaves": 2})
    assert not plain["candidates"][0]["purchasable"] and plain["candidates"][0]["joined_at"] == []
    assert joined["candidates"][0]["purchasable"] and joined["candidates"][0]["joined_at"] == [amine]
    assert refused.status_code == 422 and "less than or equal to 1" in refused.json()["detail"]


def assert_same_candidates(plan, other):
    """The scores of a search differ by rounding with the number of rows that run beside it."""
    found, expected = plan["candidates"], other["candidates"]
    scores = [[candidate["score"] for candidate in part] for part in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
    assert [one | {"score": 0} for one in found] == [one | {"score": 0} for one in expected]


def test_searches_with_time_limits_run_together_and_end_each_at_its_own(planner, known):
    task = RouteTask(planner)
    sizes, steps = recorded(task), pooled(task)
    bodies = [
        {"targets": known[0].smiles, "n_steps": 1, "beams": 2} | limit
        for limit in ({"time_limit": 1e-6}, {"time_limit": 30}, {})
    ]
    over, limited, free = asked_together(task, bodies)
    assert sizes == [] and max(steps) > 1
    assert_same_candidates(limited["plans"][0], free["plans"][0])
    assert not limited["plans"][0]["remarks"]
    assert "The time limit of 1e-06 s ended the search" in over["plans"][0]["remarks"][-1]


def test_whoever_comes_later_waits_for_no_long_search(untrained_folder):
    task = load_task(untrained_folder)  # untrained, it writes until there is no room, some 40 tokens
    pooled(task, pause=0.05)
    body = {"targets": "CCO", "n_steps": 1, "beams": 2}
    with running(task, max_batch_size=4) as server:
        long = server.later(body)
        soon(lambda: server.batcher.computing)
        short = server.client.post("/plan", json=body | {"max_new_tokens": 3}).json()
        assert not long
        soon(lambda: long, 60)
        (alone,) = task.planner.plan(["CCO"], n_steps=1, beams=2, max_new_tokens=3, progress=False)
        assert [c["text"] for c in short["plans"][0]["candidates"]] == [c.text for c in alone.candidates]


def test_other_settings_take_turns(untrained_folder):
    task = load_task(untrained_folder)
    pooled(task, pause=0.05)
    with running(task, max_batch_size=4) as server:
        long = server.later({"targets": "CCO", "n_steps": 1, "beams": 2})
        soon(lambda: server.batcher.computing)
        other = server.client.post("/plan", json={"targets": "CCO", "n_steps": 1, "beams": 3, "max_new_tokens": 3})
        assert other.status_code == 200 and not long
        soon(lambda: long, 60)


def test_who_leaves_takes_the_search_along(untrained_folder):
    task = load_task(untrained_folder)
    steps = pooled(task, pause=0.1)
    with running(task, max_batch_size=4) as server:
        server.later({"targets": "CCO", "n_steps": 1, "beams": 2}, timeout=1.0)
        soon(lambda: server.batcher.computing)
        soon(lambda: not server.batcher.computing)
    assert 0 < len(steps) < 30


def test_the_time_limit_is_no_longer_than_the_answer_may_take(planner):
    with running(RouteTask(planner), timeout_s=1.5) as server:
        answer = server.client.post("/plan", json={"targets": "CCO", "time_limit": 2})
        page = html.unescape(re.sub(r"<[^>]*>", " ", server.client.get("/docs").text))
    assert answer.status_code == 422 and "less than or equal to 1.5: got 2" in answer.json()["detail"]
    assert "number, at most 1.5" in page


class KnowsTheAmide(ForwardModel):
    """Predicts the first route's product, and nothing else."""

    def __init__(self, route):
        self.beams, self.batch_size, self._known = 5, 16, {}
        self.route, self.asked = route, []

    def _predict(self, batch):
        self.asked += batch
        amide = tuple(sorted(self.route.leaves()))
        return [[self.route.smiles] if one == amide else ["C"] for one in batch]


def test_feasibility(planner, known):
    forward = KnowsTheAmide(known[0])
    task = RouteTask(planner, forward=forward)
    with running(task) as server:
        body = {"targets": [route.smiles for route in known[:2]], "n_steps": 1, "beams": 2}
        first, second = server.client.post("/plan", json=body).json()["plans"]
        assert "says which reactions it predicts, 5 beams" in server.client.get("/").text
    assert first["candidates"][0]["feasibility"] == 1.0
    assert {one["feasibility"] for one in second["candidates"] if one["route"]} == {0.0}
    # nobody waits any more when the search is done
    asked = len(forward.asked)
    (plan,) = planner.plan([known[2].smiles], n_steps=1, beams=2, progress=False)
    with pytest.raises(Unwanted):
        task._judged(plan, forward, lambda: False)
    assert len(forward.asked) == asked


def test_a_forward_model_needs_routes(text_task, tmp_path):
    text_task.model.save_pretrained(tmp_path)
    text_task.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="A forward model is for models that write routes"):
        load_task(str(tmp_path), forward=object())

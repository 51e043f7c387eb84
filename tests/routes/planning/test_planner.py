from types import SimpleNamespace

import numpy as np
import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.routes import Candidate, Constraints, Route, Stock
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.planning import model_search as search
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.planning.requests import _logger, default_steps
from weftformer.routes.planning.whole_routes import WholeRoutes
from weftformer.tokenization import encode_route, encode_source


def test_finds_the_routes_it_knows_in_a_batch_of_targets_of_all_lengths(planner, known):
    targets, steps = [route.smiles for route in known], [route.depth for route in known]
    plans = planner.plan(targets, n_steps=steps, beams=3, progress=False)
    assert [plan.target for plan in plans] == targets
    assert [plan.candidates[0].route for plan in plans] == known
    # the longest first, each as soon as it is done, and what cannot be planned before all
    settings = {"n_steps": [*steps, 1], "beams": 2, "batch_size": 1, "progress": False}
    order = [index for index, _ in planner.stream([*targets, "C1CC"], **settings)]
    longest = max(range(4), key=lambda index: len(targets[index]))
    assert order[:2] == [4, longest] and sorted(order) == list(range(5))
    with pytest.raises(ValueError, match="is not a molecule"):  # at once, not at the first `next`
        planner.stream(["C1CC"], n_steps=1, on_error="raise")


@pytest.mark.parametrize("beams", [1, 3])
def test_score_is_the_log_probability_after_the_forced_beginning(planner, known, beams):
    route, tokenizer = known[0], planner.tokenizer
    (plan,) = planner.plan([route.smiles], n_steps=route.depth, beams=beams, progress=False)
    best = plan.candidates[0]
    labels = torch.tensor([encode_route(tokenizer, best.text)])
    with torch.no_grad():
        logits = planner.model(
            input_ids=torch.tensor([encode_source(tokenizer, route.smiles)]),
            labels=labels,
            condition_values=torch.tensor([[float(route.depth)]]),
        ).logits
    steps = logits.log_softmax(dim=-1).gather(-1, labels[..., None])[0, :, 0]
    beginning = f"{{'smiles':'{route.smiles}','children':[{{'smiles':'"
    forced = len(tokenizer(beginning, add_special_tokens=False)["input_ids"])
    assert best.score == pytest.approx(steps[forced:].sum().item(), abs=1e-4)


def test_a_range_of_steps_is_pooled_and_ranked_together(planner, known):
    settings = {"beams": 2, "max_new_tokens": 40, "progress": False}
    (plan,) = planner.plan([known[0].smiles], n_steps=range(1, 3), **settings)
    alone = [planner.plan([known[0].smiles], n_steps=steps, **settings)[0].candidates for steps in (1, 2)]
    every = [candidate for candidates in alone for candidate in candidates]
    best = {c.route.canonical() if c.route else id(c): c for c in sorted(every, key=lambda one: one.score)}
    apart = sorted(best.values(), key=lambda candidate: -candidate.score)
    assert [c.text for c in plan.candidates] == [c.text for c in apart]
    routes = [c.route.canonical() for c in plan.candidates if c.route]
    # a route that several searches find stands once
    assert len(set(routes)) == len(routes) and len(apart) < len(every)
    few, every_route = (
        planner.plan([known[3].smiles], n_steps=2, beams=8, per_reaction=number, progress=False)[0].distinct
        for number in (1, None)
    )
    assert len({c.group for c in few}) == len(few) < len(every_route)
    plans = planner.plan(["CCO", "CCN"], n_steps=[range(2, 4), np.int64(5)], **settings)  # each target its own
    assert [sorted({c.n_steps for c in plan.candidates}) for plan in plans] == [[2, 3], [5]]


@pytest.mark.parametrize(
    ("targets", "settings", "said"),
    [
        ("CCO", {}, "is a string: give a list"),
        (["CCO.Cl"], {}, "is 2 molecules"),
        (["CCO"], {"starting_material": "CCN.Cl", "on_error": "skip"}, "is 2 molecules, a salt or a mixture"),
        (["[18F]CCO"], {}, "[18F]CCO"),
        (["CCO"], {"on_error": "ignore"}, "on_error"),
        (["CCO"], {"n_steps": 0}, "n_steps"),
        (["CCO"], {"starting_material": ["CO", "CN"]}, "2 starting materials for 1 targets"),
        (["CCO"], {"constraints": Constraints(only_purchasable=True)}, "stock"),
        (["CCO"], {"n_steps": [range(2, 60)]}, "59 steps exceed the limit of this model, 17"),
        (["CCO"], {"beams": 100_000}, "100,000 beams exceed the limit of 1,060"),
    ],
)
def test_requests_that_are_refused(planner, targets, settings, said):
    with pytest.raises(ValueError) as error:
        planner.plan(targets, progress=False, **{"on_error": "raise"} | settings)
    assert said in str(error.value)


def test_steps_are_refused_by_a_model_that_is_not_told_them(planner):
    config = WeftConfig(**(planner.model.config.to_dict() | {"num_condition_features": 0}))
    blind = RoutePlanner(WeftForConditionalGeneration(config), planner.tokenizer)
    with pytest.raises(ValueError, match="without the number of steps"):
        blind.plan(["CCO"], n_steps=2, progress=False)
    (plan,) = blind.plan(["CCO"], beams=2, max_new_tokens=4, progress=False)
    assert [candidate.n_steps for candidate in plan.candidates] == [None, None]


def test_several_texts_are_searched_and_pooled(planner, known):
    route = known[0]
    settings = {"n_steps": route.depth, "beams": 3, "progress": False, "max_new_tokens": 60}
    (alone,) = planner.plan([route.smiles], **settings)
    (plan,) = planner.plan([route.smiles], num_augmentations=4, **settings)
    assert plan.target == route.smiles and plan.candidates[0].route == route
    assert plan.candidates[0].score >= alone.candidates[0].score - 1e-4
    begun = {candidate.text.split("'")[3] for candidate in plan.candidates if candidate.text}
    assert len(begun) > 1 and {canonical_smiles(text) for text in begun} == {route.smiles}
    assert len({r.canonical() for r in plan.routes}) == sum(c.route is not None for c in plan.candidates)
    assert [c.rank for c in plan.distinct] == list(range(1, len(plan.distinct) + 1))
    assert {r.canonical() for r in alone.routes} <= {r.canonical() for r in plan.routes}


def test_steps_that_were_not_trained_are_warned_of(planner, known, monkeypatch, caplog):
    def about(**routes):
        monkeypatch.setattr(planner.model.generation_config, "routes", routes, raising=False)

    _logger.warning_once.cache_clear()
    settings = {"beams": 1, "max_new_tokens": 5, "progress": False}
    assert default_steps(planner.model) == [1, 2, 3, 4, 5] and planner.most_steps == 160 // 9
    assert planner.most_beams == 20 * 53
    planner.plan([known[0].smiles], n_steps=9, **settings)
    assert not caplog.records  # it does not say what it was trained on
    about(steps=[2, 3])
    (plan,) = planner.plan([known[0].smiles], **settings)
    assert {candidate.n_steps for candidate in plan.candidates} == {2, 3} and not caplog.records
    planner.plan([known[0].smiles], n_steps=range(3, 6), **settings)
    assert "trained on routes of 2 to 3 steps and has not seen 4, 5 steps" in caplog.text
    with pytest.raises(ValueError, match="exceed the limit of this model, 6"):
        planner.plan(["CCO"], n_steps=7, **settings)
    (plan,) = planner.plan(["CCO"], n_steps=7, enforce_limits=False, **settings)
    assert plan.candidates[0].n_steps == 7
    about(steps=[7, 9], starting_material=False)
    assert default_steps(planner.model) == [7]
    with pytest.raises(ValueError, match="was trained without a starting material"):
        planner.plan(["CCO"], starting_material="CC", **settings)


class Clock:
    """A clock that moves on by a second whenever it is read: the steps of a search read it once each."""

    def __init__(self):
        self.now = 0

    def monotonic(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize("ranking", ["log_probability", "sqrt_length"])
def test_routes_within_a_time_limit_equal_those_without(planner, known, monkeypatch, ranking):
    route, settings = known[1], {"n_steps": 1, "beams": 4, "ranking": ranking, "progress": False}
    (whole,) = planner.plan([route.smiles], **settings)
    written = len(encode_route(planner.tokenizer, whole.candidates[0].text))
    found = []
    for seconds in (5, written, 10_000):
        monkeypatch.setattr(search, "time", Clock())
        found += planner.plan([route.smiles], time_limit=seconds, **settings)
        assert search.time.now < seconds + 5 or not found[-1].remarks
    early, late, never = found
    assert not early.routes and early.nothing_because == "no route was found: the time limit was reached"
    assert early.remarks == ("The time limit of 5 s was reached: these are the routes found until then.",)
    assert late.candidates[0].route == route
    assert late.candidates[0].score == pytest.approx(whole.candidates[0].score, abs=1e-4)
    assert not never.remarks and [c.text for c in never.candidates] == [c.text for c in whole.candidates]


def test_salts_are_refused_or_stripped(planner, known):
    settings = {"n_steps": 1, "beams": 2, "progress": False}
    salts = ["Cl." + known[0].smiles, "[Na+].[O-]C(=O)C", "C[NH3+].[Cl-]", "[Na+].[Cl-]", "CCO"]
    plans = planner.plan(salts, on_salt="strip", **settings)
    assert [plan.target for plan in plans[:3]] == [known[0].smiles, "CC(=O)O", "CN"]
    assert plans[0].candidates[0].route == known[0]
    assert plans[1].remarks == ("[Na+].[O-]C(=O)C is 2 molecules: CC(=O)O, its largest organic part, was planned.",)
    assert plans[4].remarks == ()


def test_equal_scores_keep_the_order_of_their_jobs():
    jobs = WholeRoutes(SimpleNamespace(jobs=range(11)), None)
    for number in reversed(range(11)):
        jobs.add_candidates(number, [Candidate("", 0.0, number, Route("C" * (number + 1)))])
    assert [candidate.n_steps for candidate in jobs.candidates()] == [*range(11)]


def test_whole_routes_in_place_of_a_search_are_told(planner, known):
    stock, settings = Stock(known[0].leaves()), {"beams": 2, "max_new_tokens": 40, "progress": False}
    for asked, reason in ({"n_steps": 1}, "a number of steps"), ({"num_augmentations": 2}, "several SMILES"):
        (plan,) = planner.plan([known[0].smiles], stock=stock, **settings, **asked)
        assert reason in " ".join(plan.remarks)
        (plan,) = planner.plan([known[0].smiles], **settings, **asked)
        assert plan.remarks == ()
    (plan,) = planner.plan([known[0].smiles], stock=stock, direct=True, **settings)
    assert plan.remarks == ()

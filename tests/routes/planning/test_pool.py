"""Searches that join and leave give what they give in batches, and targets what they give alone."""

import dataclasses
import itertools
import math
import time
from functools import partial

import pytest

from weftformer.inference import search
from weftformer.routes import Candidate, Constraints, PlanSettings, Route, Stock
from weftformer.routes.judging import Transformation
from weftformer.routes.planning import stock_search as stock_module
from weftformer.routes.planning.model_search import Job, RouteSearch
from weftformer.routes.planning.pool import PlanPool
from weftformer.routes.planning.retro_star import RetroStarSearch

pytestmark = pytest.mark.usefixtures("library")

SETTINGS = {
    "wishes": {"beams": 3, "constraints": Constraints(forbidden=("CC(=O)O",), only_purchasable=True)},
    "no grammar": {"beams": 3, "grammar": False},
    "greedy": {"beams": 1},
}
BEAMS = PlanSettings(beams=4, max_new_tokens=60)


def told(candidates):
    return [(one.text, one.n_steps, one.route, one.problem) for one in candidates]


@pytest.mark.parametrize("name", SETTINGS)
def test_joined_jobs_equal_jobs_alone(planner, known, name, monkeypatch):
    settings, stock = (
        PlanSettings(**SETTINGS[name]),
        Stock([leaf for route in known for leaf in route.leaves()]),
    )
    running = RouteSearch(planner.model, planner.tokenizer, settings, stock)
    monkeypatch.setattr(search, "reason_against", lambda *args, **settings: "in batches")
    alone = RouteSearch(planner.model, planner.tokenizer, settings, stock)
    targets = [(route.smiles, steps) for route in known[:2] for steps in (1, 2)]
    jobs = [Job(*target, max_new_tokens=60) for target in [*targets, ("CCCCCCCCCCCCCCCCO", 1)]]
    found, tickets, waiting = {}, {}, jobs[:]
    while waiting or len(running):
        if waiting and len(running) < 4:
            job = waiting.pop(0)
            tickets |= dict.fromkeys(running.add([job]), job)
        found |= dict(running.step())
    assert found.keys() == tickets.keys() and len(found) == len(jobs)
    for ticket, job in tickets.items():
        alone.add([job])
        [(_, expected)] = alone.step()
        assert told(found[ticket]) == told(expected)
        scores = [one.score for one in expected]
        assert [one.score for one in found[ticket]] == pytest.approx(scores, abs=2e-4, rel=1e-5)
    alone.add([Job(route.smiles, 1) for route in known])  # of any length, they share a batch
    assert len(alone.step()) == len(known)


@pytest.fixture(scope="module")
def alone(planner, known):
    """Plans of one target at a time."""
    return {key: planner.plan([known[key].smiles], BEAMS, n_steps=range(1, 3), progress=False)[0] for key in (0, 2)}


@pytest.mark.parametrize("how", ["one by one", "together", "in batches"])
def test_targets_wait_for_capacity(planner, known, alone, how, monkeypatch):
    in_batches = how == "in batches"
    if in_batches:
        monkeypatch.setattr(search, "reason_against", lambda *args, **settings: "in batches")
    settings = dataclasses.replace(BEAMS, time_limit=100.0)
    pool = PlanPool(planner.model, planner.tokenizer, settings.for_search, most=3, together=how == "together")
    joined, add = [], pool._search.add
    monkeypatch.setattr(pool._search, "add", lambda *given: joined.append(len(pool._search)) or add(*given))
    requests = planner.requests([route.smiles for route in known], settings, n_steps=[range(1, 3)] * len(known))
    for key, request in enumerate(requests):
        pool.add(key, request)
    assert len(pool) == len(known)
    plans = dict(pool.step())
    assert len(pool._search) == (1 if in_batches else 3)
    for key in {1, len(known) - 1} - plans.keys():  # one whose searches run or wait, and one that has not begun
        pool.remove(key)
    left = {*range(len(known))} - {1, len(known) - 1}
    while len(pool):
        plans |= dict(pool.step())
        assert len(pool._search) <= 3
    assert plans.keys() == left
    assert (max(joined) == 0) == (how != "one by one")
    for key in left:
        assert plans[key].routes and told(plans[key].candidates) == told(alone[key].candidates)
        assert plans[key].seconds > 0 and not plans[key].remarks


AMIDE, AMINE, ALCOHOL = "CC(=O)NCc1ccccc1", "NCc1ccccc1", "OCc1ccccc1"
# What a model proposes for each molecule, with the log-probability.
REACTIONS = {
    AMIDE: {
        ("CNC(C)=O", "c1ccccc1"): -0.1,  # no precedent
        ("CC(=O)O", AMINE): -0.5,
    },
    AMINE: {("N", "BrCc1ccccc1"): -0.3, (ALCOHOL, "N"): -2.5},
    "BrCc1ccccc1": {(ALCOHOL,): -0.2},
}


class Proposals:
    """Takes the place of a search of the model: a step ends the searches that have begun, with the reactions of a
    table.
    """

    is_continuous = True

    def __init__(self, planner):
        self.model, self.tokenizer = planner.model, planner.tokenizer
        self.running, self.asked = {}, []

    def __len__(self):
        return len(self.running)

    def add(self, jobs):
        assert {job.n_steps for job in jobs} == {1}
        tickets = range(len(self.asked), len(self.asked) + len(jobs))
        self.asked += [job.smiles for job in jobs]
        self.running |= dict(zip(tickets, jobs, strict=True))
        return list(tickets)

    def remove(self, tickets):
        for ticket in tickets:
            del self.running[ticket]

    def step(self):
        found = [(ticket, self.proposed(job.smiles)) for ticket, job in self.running.items()]
        self.running.clear()
        return found

    def proposed(self, smiles):
        routes = {Route(smiles, tuple(map(Route, used))): score for used, score in REACTIONS.get(smiles, {}).items()}
        no_route = Candidate("?", -0.01, 1, problem="it is no route")
        return [no_route, *(Candidate(route.to_string(), score, 1, route) for route, score in routes.items())]


def to_the_stock(planner, targets, stock, constraints=None, together=True, on_first=None, **settings):
    """Plans of a pool over the table, and the molecules that its searches were asked for."""
    settings, stock = PlanSettings(beams=3, constraints=constraints, **settings), Stock(stock)
    pool = PlanPool(planner.model, planner.tokenizer, settings.for_search, stock, together=together)
    pool._search = search = Proposals(planner)
    pool.on_first = on_first
    for target, request in zip(targets, planner.requests(targets, settings, stock=stock), strict=True):
        assert request.searches_steps
        pool.add(target, request)
    plans = {}
    while len(pool):
        plans |= dict(pool.step())
    assert not len(search)
    return [plans[target] for target in targets], search.asked


def test_recorded_steps_come_first(planner):
    stock = ["CC(=O)O", "N", "C", "Cc1ccccc1", "BrCc1ccccc1", "CNC(C)=O", "c1ccccc1"]
    [plan], asked = to_the_stock(planner, [AMIDE], stock)
    assert asked[0] == AMIDE and set(asked) == {AMIDE, AMINE, ALCOHOL}
    first, second = plan.distinct
    assert set(first.route.leaves()) == {"CC(=O)O", "N", "BrCc1ccccc1"}
    assert set(second.route.leaves()) == {"CNC(C)=O", "c1ccccc1"}
    assert (first.is_recorded, second.is_recorded) == (True, False)
    assert all(one.purchasable for one in plan.distinct) and not plan.failed and plan.remarks == ()
    # 0.3 a step, 1 for a step without precedent
    assert first.score == pytest.approx(-0.5 - 0.3 - 2 * 0.3) and second.score == pytest.approx(-0.1 - 1 - 0.3)


def test_reasons_for_no_route_to_the_stock(planner, monkeypatch):
    [plan], _ = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N"])
    assert plan.routes and not any(one.purchasable for one in plan.distinct)
    [why] = plan.remarks
    assert why == (
        "No route by any steps ends in the stock: 5 molecules were expanded, 5 of them by the model, and there are no other "
        "reactions. Use more beams or a larger stock."
    )
    [plan], _ = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N"], constraints=Constraints(only_purchasable=True))
    assert not plan.routes and plan.remarks == ()
    assert plan.nothing_because.startswith("no route was found: no route by any steps ends in the stock: ")
    monkeypatch.setattr(stock_module, "RetroStarSearch", partial(RetroStarSearch, most_reactions=1))
    [plan], _ = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N", "BrCc1ccccc1"])
    assert plan.remarks[0].startswith("No route by any steps of at most 1 reactions ends in the stock: ")
    for together in (True, False):
        [plan], asked = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N"], together=together, time_limit=1e-9)
        assert asked == [] and "was found in 1e-09 s: 1 molecules" in plan.nothing_because
        assert "Give it more time" in plan.nothing_because
    [plan], asked = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N"], max_expansions=1)
    assert asked == [AMIDE] and "1 of them by the model. Use more expansions" in plan.nothing_because


COUPLING = (
    "([C;D1;H3:2]-[C:3](=[O;D1;H0:4])-[NH;D2;+0:1]-[C:5])>>O-[C:3](-[C;D1;H3:2])=[O;D1;H0:4].[C:5]-[NH2;D1;+0:1]"
)
CHLORIDE = COUPLING.replace("O-[C:3]", "Cl-[C:3]")


@pytest.mark.parametrize(
    ("forbidden", "is_found"),
    [
        ({}, True),
        ({"forbidden": ("ClC(C)=O",)}, False),
        ({"forbidden_substructures": ("C(=O)Cl",)}, False),
        ({"forbidden": (AMIDE,)}, True),  # the rule is not for the target
    ],
)
def test_the_library_adds_allowed_reactions_that_the_model_does_not_propose(planner, library, forbidden, is_found):
    library(("O1", Transformation(COUPLING, 30)), ("O1", Transformation(CHLORIDE, 10)))
    [plan], _ = to_the_stock(planner, [AMIDE], ["CC(=O)Cl", AMINE], constraints=Constraints(**forbidden))
    found = [one for one in plan.distinct if one.purchasable]
    assert [set(one.route.leaves()) for one in found] == [{"CC(=O)Cl", AMINE}] * is_found
    assert [one.score for one in found] == [pytest.approx(math.log(0.25) - 0.3, rel=0.01)] * is_found


@pytest.mark.parametrize(("more", "is_found"), [(2, True), (1, False)])
def test_a_stuck_search_asks_the_library_for_more(planner, library, monkeypatch, more, is_found):
    monkeypatch.setattr(stock_module, "SEARCHED_STEPS", 1)
    monkeypatch.setattr(stock_module, "MORE_STEPS", more)
    proposals, add_reactions = [], RetroStarSearch.add_reactions

    def add(search, request, steps):
        proposals.extend(
            step.reactants for step in steps if request.source != stock_module.MODEL and request.molecule == AMIDE
        )
        add_reactions(search, request, steps)

    monkeypatch.setattr(RetroStarSearch, "add_reactions", add)
    library(("O1", Transformation(COUPLING, 30)), ("O1", Transformation(CHLORIDE, 10)))
    [plan], asked = to_the_stock(planner, [AMIDE], ["CC(=O)Cl", AMINE])
    assert plan.solved == is_found and AMIDE in asked  # the model comes before
    assert len(set(proposals)) == len(proposals) == more


def test_textbooks_are_asked_after_the_library(planner, library, monkeypatch):
    """Without a similar example they are improbable, and to ask them uses up no patience."""
    monkeypatch.setattr(stock_module, "PATIENCE", 0)
    library(("O1", Transformation(COUPLING, 30)), textbook=[("O1", Transformation(CHLORIDE, 1, textbook="acylation"))])
    [plan], _ = to_the_stock(planner, [AMIDE], ["CC(=O)Cl", "CC(=O)O", AMINE])
    assert [set(one.route.leaves()) for one in plan] == [{"CC(=O)O", AMINE}, {"CC(=O)Cl", AMINE}]
    assert plan.candidates[1].score == pytest.approx(-7.3, abs=0.01)


def test_on_first_is_called_once(planner, library):
    library(("O1", Transformation(COUPLING, 30)))
    told = []
    stock = ["CC(=O)O", AMINE, "CNC(C)=O", "c1ccccc1"]
    [plan], _ = to_the_stock(planner, [AMIDE], stock, on_first=lambda *one: told.append(one))
    [(target, route)] = told  # the other route is an idea
    assert target == AMIDE and route == plan.routes[0] and len(plan.routes) > 1 and plan.solved
    ideas = ["CNC(C)=O", "c1ccccc1"]
    [plan], _ = to_the_stock(planner, [AMIDE], ideas, on_first=lambda *one: told.append(one))
    assert len(told) == 1 and plan.ideas and not plan.solved
    assert plan.distinct[0].evidence == "recorded" and plan.distinct[0].missing  # the nearest route, before all ideas


def test_the_judgement_decides_whether_a_route_is_supported(planner, library, monkeypatch):
    library(("O1", Transformation(COUPLING, 30)))
    monkeypatch.setattr(stock_module.judging, "is_route_supported", lambda route, library: False)
    told = []
    to_the_stock(planner, [AMIDE], ["CC(=O)O", AMINE], on_first=lambda *one: told.append(one))
    assert not told


def test_a_search_that_has_a_route_ends_when_it_finds_no_others(planner, library, monkeypatch):
    library(("O1", Transformation(COUPLING, 30)))
    stock = ["CC(=O)O", AMINE, "N", "BrCc1ccccc1"]
    asked = {}
    for patience in (0, 1, 30):
        monkeypatch.setattr(stock_module, "PATIENCE", patience)
        plans, asked[patience] = to_the_stock(planner, [AMIDE], stock, max_expansions=8)
        assert plans[0].solved
    assert len(asked[0]) <= len(asked[1]) < len(asked[30]) <= 8
    # without a route, there is no end before the budget
    monkeypatch.setattr(stock_module, "PATIENCE", 0)
    [plan], asked = to_the_stock(planner, [AMIDE], ["CC(=O)O", "N"], max_expansions=8)
    assert not plan.solved and len(asked) > 1


def test_the_budget_of_the_library_is_a_multiple_of_that_of_the_model(planner, library, monkeypatch):
    library(("O1", Transformation(CHLORIDE, 10)))
    stock = ["CC(=O)Cl", AMINE]
    assert to_the_stock(planner, [AMIDE], stock)[0][0].solved
    monkeypatch.setattr(stock_module, "LIBRARY_EXPANSIONS", 0)
    assert not to_the_stock(planner, [AMIDE], stock)[0][0].solved


def test_no_clock_decides_what_is_searched(planner, monkeypatch):
    stock = ["CC(=O)O", "N", "BrCc1ccccc1", ALCOHOL]
    expected = to_the_stock(planner, [AMIDE, AMINE], stock)
    clock = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert to_the_stock(planner, [AMIDE, AMINE], stock) == expected


@pytest.mark.parametrize("together", [True, False])
def test_plans_of_several_targets_equal_plans_alone(planner, together):
    stock, targets = ["CC(=O)O", "N", "BrCc1ccccc1", ALCOHOL], [AMIDE, AMINE, "BrCc1ccccc1", "CCO"]
    several, asked = to_the_stock(planner, targets, stock, together=together)
    assert several == [to_the_stock(planner, [target], stock)[0][0] for target in targets]
    assert {*targets} <= {*asked} and len(asked) == len({*asked})  # expansions are shared
    [one] = to_the_stock(planner, [AMIDE], stock, num_routes=1)[0]
    assert len(one.routes) == 1 < len(several[0].routes)

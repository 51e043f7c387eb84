"""Searches that join and leave give what they give in batches, and targets what they give alone."""

import pytest

from weftformer.modeling.decoding import cache
from weftformer.routes import NO_CONSTRAINTS, Constraints, PlanSettings, Stock
from weftformer.routes.planning import search as module
from weftformer.routes.planning.pool import PlanPool
from weftformer.routes.planning.search import Job, RouteSearch

SETTINGS = {
    "the rules for all": {"beams": 3},
    "wishes": {"beams": 3, "constraints": Constraints(forbidden=("CC(=O)O",), only_purchasable=True)},
    "grammar alone": {"beams": 3, "constraints": NO_CONSTRAINTS},
    "no grammar": {"beams": 3, "grammar": False},
    "greedy": {"beams": 1},
    "short": {"beams": 3, "max_new_tokens": 20},
}


def told(candidates):
    return [(one.text, one.n_steps, one.route, one.problem) for one in candidates]


@pytest.mark.parametrize("name", SETTINGS)
def test_jobs_find_what_they_find_alone(planner, known, name, monkeypatch):
    settings, stock = PlanSettings(**SETTINGS[name]), Stock([leaf for route in known for leaf in route.leaves()])
    running = RouteSearch(planner.model, planner.tokenizer, settings, stock)
    monkeypatch.setattr(module, "reason_against", lambda *args, **settings: "in batches")
    alone = RouteSearch(planner.model, planner.tokenizer, settings, stock)
    jobs = [Job(route.smiles, steps) for route in known[:2] for steps in (1, 2)] + [Job("CCCCCCCCCCCCCCCCO", 1)]
    found, tickets, waiting = {}, {}, jobs[:]
    while waiting or len(running):
        if waiting and len(running) < 4:
            job = waiting.pop(0)
            tickets |= dict.fromkeys(running.add([job], [None], [settings.max_new_tokens]), job)
        found |= dict(running.step())
    assert found.keys() == tickets.keys() and len(found) == len(jobs)
    for ticket, job in tickets.items():
        alone.add([job], [None], [settings.max_new_tokens])
        [(_, expected)] = alone.step()
        assert told(found[ticket]) == told(expected)
        scores = [one.score for one in expected]
        assert [one.score for one in found[ticket]] == pytest.approx(scores, abs=2e-4, rel=1e-5)
    assert running.grammar is None or not running.grammar.refusals


@pytest.mark.parametrize("how", ["one by one", "together", "in batches"])
def test_targets_wait_for_room_and_leave(planner, known, how, monkeypatch):
    in_batches = how == "in batches"
    if in_batches:
        monkeypatch.setattr(module, "reason_against", lambda *args, **settings: "in batches")
    settings = PlanSettings(beams=4, time_limit=100.0)
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
    for key in left:
        (alone,) = planner.plan([known[key].smiles], settings, n_steps=range(1, 3), progress=False)
        assert told(plans[key].candidates) == told(alone.candidates)
        assert (max(joined) == 0) == (how != "one by one")
        assert plans[key].seconds > 0 and not plans[key].remarks


def test_a_longer_neighbour_takes_no_room_away(planner, monkeypatch):
    """A batch has the room of its longest target: jobs of which one has less than was asked for are searched apart."""
    monkeypatch.setattr(module, "reason_against", lambda *args, **settings: "in batches")
    search = RouteSearch(planner.model, planner.tokenizer, PlanSettings(beams=1))
    jobs = [Job("CCO", 1), Job("C" * 60, 1), Job("CCN", 1)]
    first, long, last = search.add(jobs, [None] * 3, [100] * 3)
    assert {ticket for ticket, _ in search.step()} == {first, last}
    assert [ticket for ticket, _ in search.step()] == [long] and not len(search)


def test_a_search_whose_time_is_up_does_not_begin(planner, known):
    settings = PlanSettings(beams=4, time_limit=1e-9)
    pool = PlanPool(planner.model, planner.tokenizer, settings.for_search, most=3)
    (request,) = planner.requests([known[0].smiles], settings, n_steps=1)
    pool.add("late", request)
    [(key, plan)] = pool.step()
    assert key == "late" and not len(pool) and not len(pool._search)
    assert (
        plan.nothing_because == "no route was found: the time was up"
        and "The time limit of 1e-09 s" in plan.remarks[0]
    )


@pytest.mark.parametrize("ranking", ["log_probability", "sqrt_length"])
def test_a_watch_ends_a_search(planner, known, ranking):
    calls = []

    def watch():
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planner.plan([known[0].smiles], n_steps=1, beams=2, ranking=ranking, watch=watch, progress=False)
    assert len(calls) == 5


@pytest.mark.parametrize("beams", [1, 4])
def test_the_memory_of_a_search_is_allocated_once(planner, known, monkeypatch, beams):
    """A cache that grows is copied, and for that moment takes twice the memory."""
    sizes, made = [], cache._with_room

    def spied(states, like, rows, columns):
        found = made(states, like, rows, columns)
        if states.ndim > 1 and found is not states:
            sizes.append((states.shape, found.shape))
        return found

    monkeypatch.setattr(cache, "_with_room", spied)
    monkeypatch.setattr(cache.DecodingCache, "_CAPACITY", 8)
    (plan,) = planner.plan([known[0].smiles], n_steps=known[0].depth, beams=beams, grammar=False, progress=False)
    assert plan.candidates and not sizes

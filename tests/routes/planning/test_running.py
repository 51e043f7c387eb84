"""Searches that join and leave give what they give in batches."""

import pytest

from weftformer.routes import NO_CONSTRAINTS, Constraints, Stock
from weftformer.routes.planning.running import Searches
from weftformer.routes.planning.search import Job, RouteSearch

SETTINGS = {
    "the rules for all": {"beams": 3},
    "wishes": {"beams": 3, "constraints": Constraints(forbidden=("CC(=O)O",), only_purchasable=True)},
    "grammar alone": {"beams": 3, "constraints": NO_CONSTRAINTS},
    "no grammar": {"beams": 3, "grammar": False},
    "greedy": {"beams": 1},
    "short": {"beams": 3, "max_new_tokens": 20},
}


def jobs_of(known):
    return [Job(route.smiles, steps) for route in known[:2] for steps in (1, 2)] + [Job("CCCCCCCCCCCCCCCCO", 1)]


def told(candidates):
    return [(one.text, one.n_steps, one.route, one.problem) for one in candidates]


@pytest.mark.stays(name=("the rules for all", "greedy"))
@pytest.mark.parametrize("name", SETTINGS)
def test_jobs_find_what_they_find_alone(planner, known, name):
    stock = Stock([leaf for route in known for leaf in route.leaves()])
    make = lambda: RouteSearch(planner.model, planner.tokenizer, stock=stock, **SETTINGS[name])  # noqa: E731
    alone, running = make(), make().running()
    jobs, found, tickets = jobs_of(known), {}, {}
    waiting = jobs[:]
    while waiting or len(running):
        if waiting and len(running) < 4:
            job = waiting.pop(0)
            tickets |= dict.fromkeys(running.add([job], [None]), job)
        found |= dict(running.step())
    assert found.keys() == tickets.keys() and len(found) == len(jobs)
    for ticket, job in tickets.items():
        (expected,) = alone([job])
        assert told(found[ticket]) == told(expected)
        scores = [one.score for one in expected]
        assert [one.score for one in found[ticket]] == pytest.approx(scores, abs=2e-4, rel=1e-5)
    assert not running.grammar or not getattr(running.grammar, "refusals", {})


def test_what_does_not_run_so(planner):
    model, tokenizer = planner.model, planner.tokenizer

    class Reads:
        def __call__(self, input_ids, scores):
            return scores

    def running(**settings):
        return RouteSearch(model, tokenizer, **({"beams": 3} | settings)).running()

    assert running() is not None
    assert running(ranking="sqrt_length") is None
    assert running(logits_processor=[Reads()]) is None


def test_targets_wait_for_room_and_leave(planner, known):
    search = RouteSearch(planner.model, planner.tokenizer, beams=4)
    searches = Searches(search.running(), most=3)
    for key, route in enumerate(known):
        searches.add(key, [Job(route.smiles, 1), Job(route.smiles, 2)], lambda: search.deadline(100.0))
    gone = len(known) - 1
    searches.step()
    assert len(searches.pool) == 3
    searches.remove(0)
    searches.remove(gone)
    assert len(searches.pool) == 1
    over = []
    while len(searches):
        over += searches.step()
        assert len(searches.pool) <= 3
    assert sorted(one.key for one in over) == list(range(1, gone))
    for one in over:
        jobs = [Job(known[one.key].smiles, steps) for steps in (1, 2)]
        assert told(one.candidates) == told([found for job in jobs for found in search([job])[0]])
        assert one.seconds > 0 and not one.deadline.is_over


def test_a_search_whose_time_is_up_does_not_begin(planner, known):
    search = RouteSearch(planner.model, planner.tokenizer, beams=4)
    searches = Searches(search.running(), most=3)
    searches.add("late", [Job(known[0].smiles, 1)], lambda: search.deadline(0.0))
    (over,) = searches.step()
    assert over.key == "late" and over.deadline.is_over and not len(searches.pool)
    assert "the time was up" in over.candidates[0].problem

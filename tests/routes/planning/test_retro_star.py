import random
from itertools import product as combinations
from types import MappingProxyType

import pytest

from weftformer.routes.planning.retro_star import Proposal, RetroStarSearch

MOLECULES = "ABCDEFGH"


def network(seed):
    """Random reactions of eight molecules, some of which can be bought."""
    rng = random.Random(seed)
    steps = {
        one: [
            Proposal(
                tuple(sorted(rng.sample(MOLECULES.replace(one, ""), rng.choice((1, 2))))),
                round(rng.uniform(0.1, 3), 3),
            )
            for _ in range(rng.randint(0, 3))
        ]
        for one in MOLECULES
    }
    return steps, set(rng.sample(MOLECULES[1:], 3))


def all_routes(target, steps, bought):
    """The costs of all routes: each molecule that is needed and not bought is made by one of its reactions, none from
    itself.
    """
    costs = []
    for choice in combinations(*([None, *steps[one]] for one in MOLECULES)):
        made = dict(zip(MOLECULES, choice, strict=True))
        used, path_is_open = {}, False

        def walk(one, above, made=made, used=used):
            if one in bought and above:
                return True
            step = made[one]
            if step is None or one in above:
                return False
            used[one] = step
            return all(walk(reactant, (*above, one)) for reactant in step.reactants)

        path_is_open = walk(target, ())
        # a choice for a molecule that is not needed would count a route twice
        if path_is_open and all(step is None or one in used for one, step in made.items()):
            costs.append(sum(step.step_cost for step in used.values()))
    return sorted(costs)


def run(search, steps, more=MappingProxyType({})):
    """Answer what the search wants, each molecule once, in an order of its own where several are wanted."""
    rng, asked, expanded = random.Random(0), [], set()
    while not search.is_exhausted:
        while (wanted := search.next_request()) is not None:
            asked.append(wanted)
        if asked:
            one = asked.pop(rng.randrange(len(asked)))
            assert one not in expanded
            expanded.add(one)
            search.add_reactions(one, steps.get(one.molecule, ()) if one.source == 0 else more.get(one.molecule, ()))
    assert search.num_expanded(0) + search.num_expanded(1) == len(expanded)
    return search.solutions


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_route_is_found_and_no_other_costs(seed):
    steps, bought = network(seed)
    search = RetroStarSearch("A", lambda one: one != "A" and one in bought)
    found, expected = run(search, steps), all_routes("A", steps, bought)
    costs = [round(one.cost, 6) for one in found]
    assert bool(found) == bool(expected)
    assert set(costs) <= {round(cost, 6) for cost in expected}
    if expected:
        assert min(costs) == pytest.approx(expected[0])
        for one in found:
            assert set(one.route.leaves()) <= bought
            assert all(not set(part.leaves()) & {part.smiles} for part in one.route.sub_routes())


@pytest.mark.parametrize("seed", range(20))
def test_reactions_are_checked_when_the_search_needs_them(seed):
    steps, bought = network(seed)
    rng, checked = random.Random(seed), []

    def still_to_check(step):
        possible = step if rng.random() < 0.8 else None
        bound = step._replace(cost=step.cost * rng.random(), is_supported=True)
        return bound._replace(check=lambda: checked.append(step) or possible), possible

    pairs = {one: [still_to_check(step) for step in found] for one, found in steps.items()}
    possible = {one: [final for _, final in found if final is not None] for one, found in pairs.items()}
    search = RetroStarSearch("A", lambda one: one != "A" and one in bought)
    found = run(search, {one: [bound for bound, _ in found] for one, found in pairs.items()})
    expected = all_routes("A", possible, bought)
    assert {round(one.cost, 6) for one in found} <= {round(cost, 6) for cost in expected}
    assert min((one.cost for one in found), default=None) == (pytest.approx(expected[0]) if expected else None)
    assert len(checked) == len(set(map(id, checked)))


def test_a_checked_reaction_takes_its_place_by_what_it_costs():
    dear = Proposal(("B",), 5.0, True)
    search = RetroStarSearch("A", "A".__ne__)
    search.add_reactions(search.next_request(), [Proposal(("B",), 0.1, check=lambda: dear), Proposal(("C",), 1.0)])
    assert search.next_request() is None
    assert [(one.route.leaves(), one.cost) for one in search.solutions] == [(["C"], 2.3), (["B"], 5.3)]


def test_a_reaction_that_is_not_needed_is_not_checked():
    def never():
        raise AssertionError

    search = RetroStarSearch("A", "never".__eq__)
    search.add_reactions(search.next_request(), [Proposal(("B",), 0.1), Proposal(("C",), 5.0, check=never)])
    assert search.next_request().molecule == "B"
    assert [one.route.leaves() for one in search.unfinished(5)] == [["B"]]


@pytest.mark.parametrize("seed", range(10))
def test_two_sources_find_what_one_with_all_reactions_finds(seed):
    steps, bought = network(seed)
    halves = [{one: found[half::2] for one, found in steps.items()} for half in range(2)]
    one = run(RetroStarSearch("A", lambda one: one != "A" and one in bought), steps)
    two = run(
        RetroStarSearch("A", lambda one: one != "A" and one in bought, delays=lambda molecule: (0.0, 1.0)), *halves
    )
    assert min((found.cost for found in one), default=None) == pytest.approx(
        min((found.cost for found in two), default=None)
    )
    assert bool(one) == bool(two)


def test_a_later_source_waits_for_its_delay():
    search = RetroStarSearch("A", "never".__eq__, delays=lambda molecule: (0.0, 1.0))
    for wanted, steps in (
        (("A", 0), [Proposal(("B",), 0.2, True)]),
        (("B", 0), [Proposal(("C",), 0.2, True)]),
        (("A", 1), []),
        (("C", 0), []),
    ):
        request = search.next_request()
        assert request == wanted
        search.add_reactions(request, steps)


def test_the_number_of_reactions_and_the_memory_are_bounded():
    chain = {"A": [Proposal(("B",), 1.0)], "B": [Proposal(("C",), 1.0)], "C": [Proposal(("D",), 1.0)]}
    assert not run(RetroStarSearch("A", "D".__eq__, most_reactions=2), chain)
    assert run(RetroStarSearch("A", "D".__eq__, most_reactions=3), chain)
    search = RetroStarSearch("A", "D".__eq__, most_reactions=2)
    run(search, chain)
    assert [one.route.leaves() for one in search.unfinished(3)] == [["B"], ["C"]]  # what was found is told
    assert search.is_cut
    wide = {"A": [Proposal((f"B{n}",), float(n)) for n in range(100)]} | {f"B{n}": [] for n in range(100)}
    search = RetroStarSearch("A", "never".__eq__, most_states=10)
    search.add_reactions(search.next_request(), wide["A"])
    search.next_request()
    assert len(search._queue) <= 2 * 10


def test_unfinished_routes_are_cut_at_steps_without_precedent():
    steps = {
        "A": [Proposal(("BB",), 1.0, True), Proposal(("x",), 0.1)],
        "BB": [Proposal(("CCCC", "N"), 1.0, True), Proposal(("y", "N"), 0.1)],
        "CCCC": [Proposal(("z",), 0.1)],
    }
    estimates = {"BB": 4.0, "CCCC": 2.0}  # the length of a SMILES says little of its size
    search = RetroStarSearch("A", "N".__eq__, estimate=lambda smiles: estimates.get(smiles, 1.0))
    assert not run(search, steps)
    found = [(one.route.leaves(), one.is_supported, one.remaining) for one in search.unfinished(4)]
    assert found == [(["CCCC", "N"], True, 2), (["BB"], True, 4), (["x"], False, 1)]


def test_ideas_leave_recorded_routes_of_the_same_last_reaction_their_places():
    steps = {"A": [Proposal(("B",), 0.1, True)], "B": [Proposal((f"B{way}",), 0.1 * way) for way in range(4)]}
    steps["B"].append(Proposal(("C1",), 5.0, True))
    found = run(RetroStarSearch("A", lambda one: len(one) == 2, per_reaction=3), steps)
    assert [one.route.leaves() for one in found if one.is_supported] == [["C1"]] and len(found) == 4


def test_a_longer_search_keeps_the_nearest_route():
    steps = {
        "A": [Proposal(("BB", "N"), 1.0, True)],
        "BB": [Proposal(("CCC",), 0.1, True)],
        "CCC": [Proposal(("DDDD",), 0.1, True)],
    }
    search = RetroStarSearch("A", "N".__eq__, estimate=len)
    for _ in range(3):
        request = search.next_request()
        search.add_reactions(request, steps[request.molecule])
    assert search.unfinished(1)[0].route.leaves() == ["BB", "N"]


def test_a_detour_that_leaves_a_little_less_is_not_nearer():
    steps = {
        "A": [Proposal(("BBB",), 1.0, True)],
        "BBB": [Proposal(("x",), 1.0, True)],
        "x": [Proposal(("CC",), 1.0, True)],
    }
    search = RetroStarSearch("A", "never".__eq__, estimate=len, most_reactions=3)
    assert not run(search, steps | {"CC": []})
    assert search.unfinished(1)[0].route.leaves() == ["x"]
    search = RetroStarSearch("A", "never".__eq__, estimate=lambda smiles: {"BBB": 3.0, "CC": 2.0}.get(smiles, 9.0))
    assert not run(search, steps | {"CC": []})
    assert search.unfinished(1)[0].route.leaves() == ["BBB"]


def test_a_short_memory_keeps_the_nearest_route_and_not_the_cheapest():
    steps = {"A": [Proposal(("BBBB",), 0.1, True), Proposal(("CC",), 1.0, True)], "CC": []}
    steps |= {"B" * size: [Proposal(("B" * (size + 1),), 0.1, True)] for size in range(4, 9)}
    search = RetroStarSearch("A", "never".__eq__, estimate=len, most_states=2)
    for _ in range(5):
        request = search.next_request()
        search.add_reactions(request, steps[request.molecule])
    search.next_request()
    assert search.unfinished(1)[0].route.leaves() == ["CC"]


def test_routes_of_one_last_reaction_are_limited():
    # eight cheap ways to make B, and a dearer last reaction
    steps = {
        "A": [Proposal(("B",), 0.1), Proposal(("C",), 2.0)],
        "B": [Proposal((f"B{way}",), 0.1 * way) for way in range(8)],
        "C": [Proposal(("C1",), 0.1)],
    }
    search = RetroStarSearch("A", lambda one: len(one) == 2, per_reaction=3)
    assert sorted(one.route.leaves() for one in run(search, steps)) == [["B0"], ["B1"], ["B2"], ["C1"]]
    assert len(run(RetroStarSearch("A", lambda one: len(one) == 2), steps)) == 9

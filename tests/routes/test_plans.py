"""Ranks, groups, reasons and table lines of literal candidates."""

import json
import math
from dataclasses import replace
from html import unescape

import pytest

from weftformer.routes import Candidate, Plan, Route, Stock
from weftformer.routes.commands.plan import described
from weftformer.routes.judging import Finding, JudgedStep
from weftformer.routes.judging.transformation import Example, ReagentSet
from weftformer.routes.pages.page import routes_page
from weftformer.routes.ranking import complete, rank


def leaf(*smiles: str) -> tuple[Route, ...]:
    return tuple(Route(one) for one in smiles)


ESTER = Route("COC(C)=O", leaf("CC(=O)O", "CO"))
TURNED = Route("COC(C)=O", leaf("CO", "CC(=O)O"))
LONGER = Route("COC(C)=O", (Route("CC(=O)O", leaf("CC(C)O", "O")), Route("CO")))
LONGEST = Route("COC(C)=O", (Route("CO"), Route("CC(=O)O", (Route("CC=O", leaf("CCO")), Route("O")))))
CHLORIDE = Route("COC(C)=O", leaf("CC(=O)Cl", "CO"))


def ranked(candidates, *args, evidence=None, **settings):
    settings |= {"by_score": True} if evidence is None else {"evidence": evidence}
    return rank("COC(C)=O", candidates, *args, **settings).candidates


def found(*routes: Route | None) -> list[Candidate]:
    """Return candidates with decreasing scores."""
    return [
        Candidate("", -1.0 - index, 1, route, problem=None if route else "broken")
        for index, route in enumerate(routes)
    ]


def test_ranks_are_consecutive_and_groups_share_the_last_reaction():
    best = ranked(reversed(found(ESTER, None, TURNED, CHLORIDE, LONGER, LONGEST)))
    assert [c.route for c in best] == [ESTER, None, TURNED, CHLORIDE, LONGER, LONGEST]
    assert [c.rank for c in best] == [1, 0, 1, 2, 3, 4]
    assert [c.group for c in best] == [1, 0, 1, 2, 1, 1]
    plan = Plan("COC(C)=O", best)
    assert [c.rank for c in plan.distinct] == [1, 2, 3, 4]


@pytest.mark.parametrize(("count", "kept"), [(1, [ESTER, CHLORIDE]), (2, [ESTER, CHLORIDE, LONGER])])
def test_few_routes_of_each_reaction(count, kept):
    best = ranked(found(ESTER, CHLORIDE, LONGER, TURNED, LONGEST), per_reaction=count)
    plan = Plan("COC(C)=O", best)
    assert plan.routes == kept and [c.rank for c in plan.distinct] == list(range(1, len(kept) + 1))
    assert TURNED in [c.route for c in best]  # the same route as one that is kept


def test_routes_that_differ_in_salts_and_charges_are_one():
    anion = Route("COC(C)=O", leaf("CC(=O)[O-]", "CO"))
    salt = Route("COC(C)=O", leaf("CC(=O)[O-].[Na+]", "CO"))
    best = ranked(found(anion, ESTER, CHLORIDE, salt))
    assert [(c.route, c.rank, c.group) for c in best] == [(anion, 1, 1), (CHLORIDE, 2, 2)]


def test_purchasable_routes_rank_first():
    stock = Stock(["CO", "CC(C)O", "O"])
    assert [c.route for c in ranked(found(ESTER, None, LONGER), stock)] == [ESTER, None, LONGER]
    first, *_ = best = ranked(found(ESTER, None, LONGER), stock, evidence="any")
    assert [c.route for c in best] == [LONGER, ESTER, None] and first.rank == 1 and first.group == 1


def test_routes_with_a_step_that_fails_come_last():
    wrong = Route("COC(C)=O", leaf("[SiH4]"))
    candidates, stock = found(wrong, None, ESTER), Stock(["CO", "CC(=O)O"])
    assert [c.route for c in ranked(candidates, stock)] == [None, ESTER, wrong]
    assert [(c.rank, c.fails_because) for c in ranked(candidates)] == [(0, None), (1, None), (2, "3 C, 2 O missing")]


AMIDE, ACID, AMINE = "CC(=O)NCc1ccccc1", "CC(=O)O", "NCc1ccccc1"
COUPLING = Route(AMIDE, leaf(ACID, AMINE))
FROM_BOC = Route(AMIDE, (Route(ACID), Route(AMINE, leaf("CC(C)(C)OC(=O)NCc1ccccc1"))))
ODD = Route(AMIDE, leaf("CC(N)=O", "c1ccccc1"))


def test_precedented_routes_rank_before_the_score():
    scored = [Candidate("", score, 1, route) for score, route in ((-0.5, ODD), (-1.0, COUPLING), (-1.5, FROM_BOC))]
    assert [c.route for c in ranked(scored)] == [ODD, COUPLING, FROM_BOC]
    assert [c.route for c in ranked(scored, evidence="recorded")] == [COUPLING, FROM_BOC, ODD]
    # a step of the longer route has -0.75
    assert [c.route for c in ranked(scored, evidence="recorded", per_step=True)] == [FROM_BOC, COUPLING, ODD]
    stock = Stock(["CC(N)=O", "c1ccccc1"])
    assert [c.route for c in ranked(scored, stock, evidence="any")] == [ODD, COUPLING, FROM_BOC]


def test_routes_with_protections_rank_behind():
    protection = Route("CC(C)(C)OC(=O)NCc1ccccc1", leaf("CC(C)(C)OC(=O)OC(=O)OC(C)(C)C", AMINE))
    other = Route(protection.smiles, leaf("CC(C)(C)OC(N)=O", "BrCc1ccccc1"))
    scored = [Candidate("", -1.0, 1, protection), Candidate("", -2.0, 1, other)]
    assert all(complete(candidate).is_recorded for candidate in scored)
    assert [c.route for c in ranked(scored, evidence="recorded")] == [other, protection]


def test_routes_with_a_step_that_hides_another_rank_behind():
    lidocaine, chloride, xylidine = "CCN(CC)CC(=O)Nc1c(C)cccc1C", "O=C(Cl)CCl", "Cc1cccc(C)c1N"
    at_once = Route(lidocaine, leaf("CCNCC", chloride, xylidine))
    amide = Route("Cc1cccc(C)c1NC(=O)CCl", leaf(chloride, xylidine))
    explicit = Route(lidocaine, (*leaf("CCNCC"), amide))
    best = ranked(found(at_once, explicit), Stock(["CCNCC", chloride, xylidine]), evidence="recorded")
    assert [one.route for one in best] == [explicit, at_once] and all(one.is_recorded for one in best)


def test_routes_that_take_an_unusual_position_rank_behind():
    product, doubt = "Nc1cncnc1Cl", Finding("an unusual position", "ranks lower")
    substitution, reduction = (
        Route(product, leaf(*parts)) for parts in (("Clc1cncnc1Cl", "N"), ("O=[N+]([O-])c1cncnc1Cl",))
    )
    scored = [
        Candidate("", score, 1, route, steps=(JudgedStep(product, route.reactants, 5, findings=findings),))
        for score, route, findings in ((-1.0, substitution, (doubt,)), (-2.0, reduction, ()))
    ]
    assert all(complete(candidate).is_recorded for candidate in scored)
    assert [c.route for c in ranked(scored, evidence="recorded")] == [reduction, substitution]


def test_a_plan_is_written_and_read():
    best = ranked(found(LONGER, None), Stock(["CO"]))
    plan = Plan("COC(C)=O", best, id="ester", seconds=1.5, remarks=("the time limit was reached",))
    data = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(data) == plan and Plan.from_dict(data).seconds == 1.5
    assert data["id"] == "ester" and [c["group"] for c in data["candidates"]] == [1, None]
    steps = [(one["step"], one["reaction"], one["name"], one["state"]) for one in data["candidates"][0]["reactions"]]
    assert steps == [
        (1, "CC(C)O.O>>CC(=O)O", None, "no precedent"), (2, "CC(=O)O.CO>>COC(C)=O", "esterification", "precedented"),
    ]  # fmt: skip
    assert [(c["precedented"], c["reactions"] is None) for c in data["candidates"]] == [(False, False), (None, True)]
    older = {name: data[name] for name in ("target", "problem", "candidates")}
    # fields and values of older files
    older["candidates"][0] |= {"joined_at": ["CO"], "feasibility": 1.0, "evidence": "predicted"}
    for row in older["candidates"][0]["reactions"]:
        row |= {"forward_rank": 2, "evidence": "predicted"}
    assert Plan.from_dict(older).candidates == best and Plan.from_dict(older).id is None
    assert Plan.from_dict(older).candidates[0].evidence == "none"


# what no library says of the steps of LONGER: a value in every field
MOLECULES = [(step.smiles, tuple(child.smiles for child in step.children)) for step in LONGER.steps()]
JUDGED = (
    JudgedStep(
        *MOLECULES[0], findings=(Finding("it is wet", "fails"), Finding("odd", "refuses"), Finding("old")),
        support="related",
    ),
    JudgedStep(
        *MOLECULES[1], 7, (Example("CO>>C", "ELN-7"), Example("C>>C", None)), "acylation", "our ester",
        (Finding("dry", "ranks lower"),), reagents=(ReagentSet("", 3), ReagentSet("CN(C)C=O", 2)),
    ),
)  # fmt: skip


def test_a_plan_that_is_read_back_says_what_was_written():
    plan = Plan("COC(C)=O", [replace(found(LONGER)[0], steps=JUDGED, score=math.nan)])
    data = json.loads(json.dumps(plan.to_dict()))
    (again,) = Plan.from_dict(data).candidates
    assert again.steps == JUDGED and again.evidence == "related" and Plan.from_dict(data).to_dict() == data
    page = plan._repr_html_()  # a notebook's frame has the page
    assert Plan.from_dict(data)._repr_html_() == page and unescape(page).count(routes_page([plan])) == 1
    # files of earlier versions have less: their routes are judged by what needs it
    older = data["candidates"][0] | {
        "reactions": [row | {"state": "fails"} for row in data["candidates"][0]["reactions"]]
    }
    for row in older["reactions"]:
        del row["findings"], row["examples"], row["reagent_sets"]
    candidate = Candidate.from_dict(older)
    assert candidate.steps == () and candidate.evidence is None
    assert complete(candidate).steps == complete(found(LONGER)[0]).steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(), "1 reactions are given for a route of 2"),
        (
            lambda rows: rows[0]["findings"][0].update(effect="good"),
            "effect must be one of fails, refuses, ranks lower, note, got 'good'",
        ),
        (lambda rows: rows[1].pop("examples"), "examples"),
    ],
)
def test_judgements_of_another_route_are_refused(change, message):
    data = replace(found(LONGER)[0], steps=JUDGED).to_dict()
    change(data["reactions"])
    with pytest.raises((KeyError, ValueError), match=message):
        Candidate.from_dict(data)


def test_the_line_of_a_table():
    wrong = Route("COC(C)=O", leaf("C"))
    best = ranked(found(ESTER, TURNED, LONGER, wrong, None), Stock(["CO", "CC(C)O", "O", "C"]))
    line = Plan("COC(C)=O", best, id="7", seconds=2.0, evidence="any").summary
    assert line == {
        "id": "7", "target": "COC(C)=O", "solved": True, "routes": 3, "groups": 2, "purchasable": 2, "precedented": 1, "textbook": 0, "failing": 1, "best_score": -1.0, "seconds": 2.0,
    }  # fmt: skip
    unknown = Plan("C", ranked(found(ESTER))).summary
    assert unknown["purchasable"] is unknown["solved"] is None
    assert Plan("C", ranked(found(ESTER), Stock(["C"]))).solved is Plan("C").solved is False
    nothing = Plan("C", ranked(found(None), Stock(["C"]))).summary
    assert (nothing["routes"], nothing["purchasable"], nothing["best_score"]) == (0, None, None)
    assert Plan("C", problem="it is no molecule").summary["purchasable"] is None


@pytest.mark.parametrize(
    ("stock", "routes", "is_solved", "solved_by_any", "num_ideas"),
    [
        (["CO", "CC(=O)O"], [ESTER, LONGER], True, True, 1),
        (["CO", "CC(C)O", "O"], [ESTER, LONGER], False, True, 1),  # isopropanol and water have no precedent
        (["CO", "CC(C)O"], [ESTER, LONGER], False, False, 1),
        (["[SiH4]"], [Route("COC(C)=O", leaf("[SiH4]"))], False, False, 1),  # it fails
        (None, [ESTER, LONGER], None, None, 1),
    ],
)
def test_recorded_steps_solve_a_target(stock, routes, is_solved, solved_by_any, num_ideas):
    best = ranked(found(*routes), stock and Stock(stock), evidence="recorded")
    plan = Plan("COC(C)=O", best)
    assert (plan.solved, replace(plan, evidence="any").solved) == (is_solved, solved_by_any)
    assert plan.ideas == plan.distinct[len(routes) - num_ideas :] and not replace(plan, evidence="any").ideas
    assert Plan.from_dict(plan.to_dict()).solved == is_solved
    # files of earlier versions count all routes
    older = {name: value for name, value in plan.to_dict().items() if name != "evidence"}
    assert Plan.from_dict(older).solved == solved_by_any


def test_the_evidence_of_a_route_is_that_of_its_weakest_step():
    def evidence(*supports):
        pairs = zip(MOLECULES, supports, strict=True)
        steps = tuple(JudgedStep(*molecules, support=support) for molecules, support in pairs)
        return replace(found(LONGER)[0], steps=steps).evidence

    order = (None, "related", "two at once", "textbook")
    for place, weaker in enumerate(order):
        for stronger in order[place:]:
            assert evidence(weaker, stronger) == evidence(stronger, weaker) == (weaker or "none")
    assert [complete(one).evidence for one in found(LONGER, ESTER, None)] == ["none", "recorded", None]
    amide = Route("NCCOC(=O)c1ccccc1", leaf("NCCO", "O=C(Cl)c1ccccc1"))  # the amine reacts first
    assert complete(found(amide)[0]).evidence == "none"


def test_a_plan_is_visited_and_shown():
    plan = rank("COC(C)=O", found(ESTER, None, TURNED, CHLORIDE), Stock(["CO", "CC(=O)O"]), by_score=True)
    assert [candidate.route for candidate in plan] == [ESTER, CHLORIDE]
    assert repr(plan) == "Plan('COC(C)=O': 2 routes, solved=True)"
    assert repr(Plan("C1CC", problem="no molecule")) == "Plan('C1CC': no molecule)"
    assert ["1 of 2 routes are shown" in described(plan, count) for count in range(3)] == [False, True, False]


def test_why_there_is_no_route():
    assert Plan("C", found(ESTER)).nothing_because is None
    assert Plan("C", [], "it is no molecule").nothing_because == "it is no molecule"
    texts = [Candidate("", -1.0, 1, problem="no route was found: the time limit was reached"), *found(None, None)]
    assert Plan("C", texts).nothing_because == "no route was found: broken; the time limit was reached"
    assert Plan("C", [], remarks=("All were dropped.",)).nothing_because == "All were dropped."
    assert Plan("C").nothing_because == "no route was found: the search returned no candidates"

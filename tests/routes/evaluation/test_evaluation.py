import json

from weftformer.routes import Stock
from weftformer.routes.chemistry.molecules import canonical_route
from weftformer.routes.evaluation.evaluation import evaluate
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.tree import Route

from ..trees import made


def as_plan(target: str, texts: list[str]) -> Plan:
    """Candidates as the planner makes them of what a model wrote, best first."""
    candidates = []
    for place, text in enumerate(texts):
        try:
            candidates.append(Candidate(text, -float(place), None, route=canonical_route(Route.from_string(text))))
        except ValueError as error:
            candidates.append(Candidate(text, -float(place), None, problem=str(error)))
    return Plan(target, candidates)


AMIDE, ACID, AMINE = "CC(=O)NCC", "CC(=O)O", "CCN"
REFERENCE = made(AMIDE, made(ACID, "CC(=O)OC"), AMINE)
SHORT = made(AMIDE, ACID, AMINE)
LONGER = made(AMIDE, AMINE, made(ACID, made("CC(=O)OC", "CO", "CC(=O)Cl")))
WRONG = made(AMIDE, "CC(=O)Cl", AMINE)


def evaluated(*texts: str | Route, reference: Route = REFERENCE, **settings):
    plan = as_plan(reference.smiles, [text if isinstance(text, str) else text.to_string() for text in texts])
    return evaluate([plan], [reference], **settings)


def test_each_metric_has_a_rank_of_its_own():
    turned = made(AMIDE, AMINE, made(ACID, "CC(=O)OC"))
    written = made("CCNC(C)=O", made("OC(C)=O", "COC(C)=O"), "NCC")  # the reference in other SMILES
    result = evaluated("{'smiles':", WRONG, WRONG, LONGER, SHORT, turned, reference=written)
    # a text that is no route takes a rank, and a route that repeats another takes none
    assert result.targets[0]["ranks"] == {"exact": 5, "last_reaction": 3}
    assert {what: estimate.value for what, estimate in result.overall["exact"].items()} == {"top-1": 0.0, "top-5": 1.0}
    # the last reaction of a route that ends there
    assert evaluated(SHORT).targets[0]["ranks"] == {"exact": None, "last_reaction": 1}


def test_purchasable_asks_the_stock_for_routes_to_the_target():
    stock = Stock([ACID, AMINE, "COC(C)=O", "CO"])
    other = made("CCO", "CO")
    result = evaluated(other, LONGER, REFERENCE, SHORT, stock=stock)
    assert result.targets[0]["ranks"]["purchasable"] == 3
    assert result.overall["purchasable"]["top-1"].value == 0.0 and result.overall["purchasable"]["any"].value == 1.0
    assert "purchasable" not in evaluated(SHORT).overall


def test_a_purchasable_route_may_have_a_step_that_fails():
    stock = Stock([ACID, AMINE, "C"])
    nothing_to_do_with_it = made(AMIDE, "C")
    result = evaluated(nothing_to_do_with_it, SHORT, stock=stock)
    assert result.targets[0]["ranks"]["purchasable"] == 1
    assert result.targets[0]["ranks"]["purchasable_precedented"] == 2


def test_a_target_without_candidates_counts_as_not_found():
    plans = [as_plan(AMIDE, [REFERENCE.to_string()]), Plan("CCO", [], "too long")]
    result = evaluate(plans, [REFERENCE, made("CCO", "CO")])
    assert result.overall["exact"]["top-1"].value == 0.5
    assert result.not_planned == {"CCO": "too long"}
    json.dumps(result.to_dict(), allow_nan=False)


def test_groups():
    convergent = made("CCOC", made("CCO", "CC"), made("CO", "C"))
    plans = [as_plan(route.smiles, [route.to_string()]) for route in (convergent, SHORT)]
    plans.append(as_plan(AMIDE, [WRONG.to_string()]))
    result = evaluate(plans, [convergent, SHORT, SHORT])
    assert list(result.by_depth) == [1, 2]
    assert (result.by_depth[1]["exact"]["top-1"].value, result.by_depth[1]["exact"]["top-1"].n) == (0.5, 2)
    assert result.by_depth[2]["exact"]["top-1"].value == 1.0

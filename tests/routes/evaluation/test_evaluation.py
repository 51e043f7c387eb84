import json

from weftformer.routes import Stock
from weftformer.routes.evaluation.evaluation import evaluate
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.tree import Route

from ..trees import made


def plan_of(target: str, *routes: Route | None) -> Plan:
    """A plan with these candidates, best first. None is a text that is no route."""
    return Plan(target, [Candidate("", -float(place), None, route) for place, route in enumerate(routes)])


AMIDE, ACID, AMINE = "CC(=O)NCC", "CC(=O)O", "CCN"
REFERENCE = made(AMIDE, made(ACID, "CC(=O)OC"), AMINE)
SHORT = made(AMIDE, ACID, AMINE)
LONGER = made(AMIDE, AMINE, made(ACID, made("CC(=O)OC", "CO", "CC(=O)Cl")))
WRONG = made(AMIDE, "CC(=O)Cl", AMINE)


def evaluated(*routes: Route | None, reference: Route = REFERENCE, **settings):
    return evaluate([plan_of(reference.smiles, *routes)], [reference], **settings)


def test_each_metric_has_a_rank_of_its_own():
    turned = made(AMIDE, AMINE, made(ACID, "CC(=O)OC"))
    reference = made("CCNC(C)=O", made("OC(C)=O", "COC(C)=O"), "NCC")  # in other SMILES
    result = evaluated(None, WRONG, WRONG, LONGER, SHORT, turned, reference=reference)
    # a text that is no route takes a rank, and a route that repeats another takes none
    assert result.targets[0]["ranks"] == {"exact": 5, "last_reaction": 3}
    assert {what: estimate.value for what, estimate in result.overall["exact"].items()} == {"top-1": 0.0, "top-5": 1.0}
    # the last reaction of a route that ends there
    assert evaluated(SHORT).targets[0]["ranks"] == {"exact": None, "last_reaction": 1}


def test_purchasable_asks_the_stock_for_routes_to_the_target():
    result = evaluated(made("CCO", "CO"), LONGER, REFERENCE, SHORT, stock=Stock([ACID, AMINE, "COC(C)=O", "CO"]))
    assert result.targets[0]["ranks"]["purchasable"] == 3
    assert result.overall["purchasable"]["top-1"].value == 0.0 and result.overall["purchasable"]["any"].value == 1.0
    assert "purchasable" not in evaluated(SHORT).overall
    # a purchasable route may have a step that fails
    ranks = evaluated(made(AMIDE, "C"), SHORT, stock=Stock([ACID, AMINE, "C"])).targets[0]["ranks"]
    assert (ranks["purchasable"], ranks["purchasable_precedented"]) == (1, 2)


def test_a_target_without_candidates_counts_as_not_found():
    plans = [plan_of(AMIDE, REFERENCE), Plan("CCO", [], "too long")]
    result = evaluate(plans, [REFERENCE, made("CCO", "CO")])
    assert result.overall["exact"]["top-1"].value == 0.5
    assert result.not_planned == {"CCO": "too long"}
    json.dumps(result.to_dict(), allow_nan=False)


def test_groups():
    convergent = made("CCOC", made("CCO", "CC"), made("CO", "C"))
    plans = [plan_of(route.smiles, route) for route in (convergent, SHORT, WRONG)]
    result = evaluate(plans, [convergent, SHORT, SHORT])
    assert list(result.by_depth) == [1, 2]
    assert (result.by_depth[1]["exact"]["top-1"].value, result.by_depth[1]["exact"]["top-1"].n) == (0.5, 2)
    assert result.by_depth[2]["exact"]["top-1"].value == 1.0

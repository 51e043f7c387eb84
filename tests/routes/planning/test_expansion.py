"""The reactions that make one molecule: their order, limits and wishes, and what is left out."""

import math

import pytest

from weftformer.routes import Constraints, PlanSettings, Stock
from weftformer.routes.chemistry.molecules import canonical_reaction
from weftformer.routes.judging import Transformation, shipped_library
from weftformer.routes.planning.expansion import Expansion
from weftformer.routes.planning.model_search import Shared
from weftformer.routes.planning.pool import PlanPool
from weftformer.routes.planning.requests import PlanRequest
from weftformer.routes.planning.retro_star import Proposal
from weftformer.routes.stock.stock import with_own

from .test_pool import CHLORIDE, COUPLING

AMIDE, AMINE = "CC(=O)NCc1ccccc1", "NCc1ccccc1"
ACID, CHLORIDE_AND_AMINE = ("CC(=O)O", AMINE), ("CC(=O)Cl", AMINE)
SETTINGS = {"beams": 3, "max_new_tokens": 60}


def reactants(plan):
    return [tuple(child.smiles for child in candidate.route.children) for candidate in plan.candidates]


@pytest.fixture
def two(library):
    library(("O1", Transformation(COUPLING, 30)), ("Cl1", Transformation(CHLORIDE, 10)))


def test_the_library_and_the_model_are_in_one_list(planner, library, two):
    told, stock = [], Stock(["CC(=O)O"])
    plan = planner.expand(AMIDE, stock=stock, on_found=told.append, **SETTINGS)
    assert told == plan.candidates and [one.rank for one in told] == list(range(1, len(told) + 1))
    # both propose the acid, which stands once, and only the library proposes the chloride
    assert reactants(plan)[0] == ACID and CHLORIDE_AND_AMINE in reactants(plan)
    assert len(set(reactants(plan))) == len(told) > 1
    scores = [one.score for one in told]
    assert scores == sorted(scores, reverse=True) and sum(map(math.exp, scores)) == pytest.approx(1.0)
    assert told[0].missing == (AMINE,) and told[0].reactions[0]["evidence"] == "recorded"
    library()
    alone = planner.expand(AMIDE, **SETTINGS)
    assert CHLORIDE_AND_AMINE not in reactants(alone) and alone.candidates[0].missing is None


def test_reactions_that_the_model_has_proposed_before_come_by_their_probability(library):
    library()
    # methane supplies too little, and the cost of a step that is not recorded is no part of its probability
    first, second = Proposal(CHLORIDE_AND_AMINE, 1.0, True), Proposal(ACID, 1.5)
    known = {AMIDE: [second, Proposal(("C",), 0.5), first]}
    expansion = Expansion(PlanRequest(AMIDE, num_proposals=20), Shared(None, None, shipped_library(), known))
    while not expansion.is_over(0.0):
        expansion.advance()
    candidates = expansion.plan().candidates
    assert [one.route.children[0].smiles for one in candidates] == ["CC(=O)Cl", "CC(=O)O"]
    assert [one.rank for one in candidates] == [1, 2]
    ratio = candidates[0].score - candidates[1].score
    known[AMIDE] = [Proposal(ACID, 1.5, True), first]
    again = Expansion(PlanRequest(AMIDE, num_proposals=20), Shared(None, None, shipped_library(), known))
    again.advance()
    [one, other] = again.plan().candidates
    assert one.score - other.score == pytest.approx(ratio)


def test_n_bounds_the_list(planner, library, two):
    assert reactants(planner.expand(AMIDE, 1, **SETTINGS)) == [ACID]
    assert len(planner.expand(AMIDE, 2, **SETTINGS).candidates) == 2
    with pytest.raises(ValueError, match="n=0 is not allowed"):
        planner.expand(AMIDE, 0)
    with pytest.raises(ValueError, match="'C1CC' is not a molecule"):
        planner.expand("C1CC")


def test_many_molecules_have_the_reactions_of_each_alone(planner, two):
    plans = dict(planner.expansions([AMIDE, "C1CC", AMINE], 5, PlanSettings(**SETTINGS)))
    assert "'C1CC' is not a molecule" in plans[1].problem
    for index, smiles in ((0, AMIDE), (2, AMINE)):
        assert reactants(plans[index]) == reactants(planner.expand(smiles, 5, **SETTINGS))


def test_what_the_user_has_and_refuses(planner, two):
    refused = canonical_reaction(ACID, AMIDE)
    assert refused == f"CC(=O)O.{AMINE}>>{AMIDE}" == canonical_reaction([f"{AMINE}.OC(C)=O"], AMIDE)
    for settings in (
        {"constraints": Constraints(forbidden=(f"{AMINE}.OC(C)=O>>{AMIDE}",))},
        {"constraints": Constraints(forbidden=("OC(C)=O",))},
    ):
        plan = planner.expand(AMIDE, **SETTINGS, **settings)
        assert ACID not in reactants(plan) and reactants(plan)[0] == CHLORIDE_AND_AMINE
    for stock in (None, Stock(["CC(=O)O"])):
        [first, second, *_] = planner.expand(AMIDE, stock=stock, have=("C(N)c1ccccc1",), **SETTINGS).candidates
        assert first.missing == (() if stock else ("CC(=O)O",)) and second.missing == ("CC(=O)Cl",)
        assert [offer.description for offer in second.offers] == ["your own store"]


def test_a_forbidden_reaction_is_in_no_route(planner, known):
    for settings in ({"n_steps": 1}, {"stock": Stock(known[0].leaves())}):
        for forbidden, is_found in ((), True), ((f"{AMINE}.OC(C)=O>>{AMIDE}",), False):
            wishes = {"constraints": Constraints(forbidden=forbidden)}
            [plan] = planner.plan([AMIDE], **SETTINGS, **wishes, **settings, progress=False)
            assert (known[0].canonical() in [route.canonical() for route in plan.routes]) == is_found


def test_a_search_ends_in_what_the_user_has(planner, known):
    settings = SETTINGS | {"progress": False, "evidence": "any", "num_routes": 1}
    [plan] = planner.plan([AMIDE], stock=Stock(["CC(=O)O"]), have=(AMINE,), **settings)
    assert plan.solved and plan.candidates[0].purchasable
    stock = with_own(Stock(["CCO"]), [AMINE])
    assert AMINE in stock and "CCO" in stock and AMINE not in Stock(["CCO"])


def test_without_a_model_that_can_read_the_molecule_the_library_proposes_alone(planner, two, monkeypatch):
    long = AMIDE.replace("CC(", "C" * 150 + "C(")
    plan = planner.expand(long, **SETTINGS)
    assert plan.candidates == [] and plan.remarks[0].startswith("The model cannot read the target")
    monkeypatch.setattr(planner.model.generation_config, "routes", {"steps": [2, 5]}, raising=False)
    plan = planner.expand(AMIDE, **SETTINGS)
    assert reactants(plan) == [ACID, CHLORIDE_AND_AMINE]
    assert plan.remarks == ("The model does not write single steps, so only recorded transformations were searched.",)


def test_an_expansion_shares_a_pool_with_targets(planner, known, two):
    from weftformer.routes.planning.requests import expansion_request

    settings, stock = PlanSettings(num_routes=1, max_expansions=1, **SETTINGS), Stock(known[0].leaves())
    pool = PlanPool(planner.model, planner.tokenizer, settings.for_search, stock)
    pool.add("route", planner.requests([AMIDE], settings, stock=stock)[0])
    pool.add("steps", expansion_request(planner.model, planner.tokenizer, AMIDE, settings, 20))
    pool.add("gone", expansion_request(planner.model, planner.tokenizer, known[1].smiles, settings, 20))
    done = dict(pool.step())
    pool.remove("gone")
    while len(pool):
        done |= dict(pool.step())
    assert done.keys() == {"route", "steps"} and done["route"].solved
    alone = planner.expand(AMIDE, stock=stock, **SETTINGS)
    assert reactants(done["steps"]) == reactants(alone)

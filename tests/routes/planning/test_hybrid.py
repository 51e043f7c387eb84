"""Routes are joined at what cannot be bought: by the logic alone, and with a model that knows some routes by heart."""

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Candidate, Constraints, Route, Stock
from weftformer.routes.feasibility import check_route
from weftformer.routes.planning.hybrid import LeafExpansion

# Isomers: each has all atoms of the others, so that any of them may be made from any.
TARGET, A, B, C, D, E, F = "CCCCCCO", "CCCCC(C)O", "CCCC(C)CO", "CCC(C)CCO", "CC(C)CCCO", "CCCCOCC", "CCCOCCC"


def step(product: str, *reactants: str | Route) -> Route:
    return Route(product, tuple(one if isinstance(one, Route) else Route(one) for one in reactants))


class Fake:
    """A planner that knows what each molecule is made from: `{molecule: [(route, score), ...]}`."""

    def __init__(self, **routes):
        self.routes, self.asked = routes, []

    def __call__(self, molecules):
        self.asked.append(list(molecules))
        return [found(*self.routes.get(smiles, ())) for smiles in molecules]


def found(*scored: tuple[Route, float]) -> list[Candidate]:
    return [Candidate(route.to_string(), score, 1, route) for route, score in scored]


def expand(search, start, *stock, depth=1, **settings):
    """The joined routes, with their scores and joints."""
    expansion = LeafExpansion(search, Stock(stock), depth=depth, **settings)
    candidates = expansion(start)
    assert candidates[: len(start)] == start
    return [(c.route, c.score, c.joined_at) for c in candidates[len(start) :]]


def test_a_leaf_that_cannot_be_bought_is_made():
    search = Fake(**{A: [(step(A, C, F), -2.0), (step(A, D), -3.0)]})
    joined = expand(search, found((step(TARGET, A, B), -1.0)), B, C, D, F)
    assert joined == [
        (step(TARGET, step(A, C, F), B), -3.0, (A,)),
        (step(TARGET, step(A, D), B), -4.0, (A,)),
    ]
    assert search.asked == [[A]]


def test_what_cannot_be_made_from_the_stock_stays():
    search = Fake(**{A: [(step(A, C), -2.0)], B: [(step(B, D), -1.0)]})
    assert expand(search, found((step(TARGET, A, B), -1.0)), D) == [(step(TARGET, A, step(B, D)), -2.0, (B,))]
    assert expand(search, found((step(TARGET, A, B), -1.0)), E) == []


def test_as_deep_as_is_asked_and_one_search_for_each_level():
    search = Fake(**{A: [(step(A, B), -1.0)], B: [(step(B, C), -0.5)], C: [(step(C, D), -0.25)]})
    start = found((step(TARGET, A), -1.0))
    assert expand(search, start, D, depth=2) == [] and search.asked == [[A], [B]]
    search.asked.clear()
    whole = step(TARGET, step(A, step(B, step(C, D))))
    assert expand(search, start, D, depth=3) == [(whole, -2.75, (A, B, C))]
    assert search.asked == [[A], [B], [C]]
    assert expand(search, start, D, depth=9) == [(whole, -2.75, (A, B, C))]


def test_no_molecule_is_made_from_itself_across_a_joint():
    # B is made from A only, and A stands above it
    search = Fake(**{B: [(step(B, A), -1.0), (step(B, TARGET, F), -1.0)]})
    assert expand(search, found((step(TARGET, step(A, B)), -1.0)), A, TARGET, F) == []
    # over two joints: C would be made from the target of the first joint
    search = Fake(**{A: [(step(A, step(B, C)), -1.0)], C: [(step(C, B), -1.0), (step(C, E), -3.0)]})
    joined = expand(search, found((step(TARGET, A), -1.0)), E, B, depth=2)
    assert joined == [(step(TARGET, step(A, step(B, step(C, E)))), -5.0, (A, C))]
    assert all(not finding.circular for finding in check_route(joined[0][0]).findings)


def test_a_molecule_in_two_places_is_made_in_one_way_and_counts_once():
    search = Fake(**{C: [(step(C, D), -1.0), (step(C, E), -2.0)]})
    start = found((step(TARGET, step(A, C), step(B, C)), -1.0))
    assert expand(search, start, D, E) == [
        (step(TARGET, step(A, step(C, D)), step(B, step(C, D))), -2.0, (C,)),
        (step(TARGET, step(A, step(C, E)), step(B, step(C, E))), -3.0, (C,)),
    ]


def test_molecules_that_are_not_to_be_replaced_and_bounds():
    search = Fake(**{A: [(step(A, D), -1.0)], B: [(step(B, D), -1.0)]})
    start = found((step(TARGET, A, B), -1.0))
    assert expand(search, start, D, never=["OC(C)CCCC"]) == [(step(TARGET, A, step(B, D)), -2.0, (B,))]
    search.asked.clear()
    assert expand(search, start, D, most_molecules=1) == [(step(TARGET, step(A, D), B), -2.0, (A,))]
    assert search.asked == [[A]]
    assert expand(search, start, D, is_over=lambda: True) == [] and search.asked == [[A]]


def test_a_model_makes_what_cannot_be_bought(chain_planner):
    amide, amine = "CC(=O)NCc1ccccc1", "NCc1ccccc1"
    stock = Stock(["CC(=O)O", "N", "BrCc1ccccc1"])
    settings = {"n_steps": 1, "beams": 2, "stock": stock, "progress": False}
    (alone,) = chain_planner.plan([amide], **settings)
    assert alone.distinct[0].missing == (amine,) and not any(c.purchasable for c in alone.distinct)
    (plan,) = chain_planner.plan([amide], expand_leaves=1, **settings)
    first = plan.distinct[0]
    whole = Route(amide, (Route("CC(=O)O"), Route(amine, (Route("N"), Route("BrCc1ccccc1")))))
    assert first.route.canonical() == whole.canonical() and first.purchasable and first.possible and first.rank == 1
    (below,) = chain_planner.plan([amine], **settings)
    assert first.score == pytest.approx(alone.distinct[0].score + below.distinct[0].score, abs=1e-3)
    assert first.joined_at == (amine,) and first.to_dict()["joined_at"] == [amine]
    assert {c.text for c in alone.candidates} <= {c.text for c in plan.candidates}  # nothing is lost
    assert plan.seconds > 0


def test_wishes_and_the_time_hold_for_joined_routes(chain_planner):
    amide, amine = "CC(=O)NCc1ccccc1", "NCc1ccccc1"
    settings = {"n_steps": 1, "beams": 2, "progress": False, "expand_leaves": 1}
    settings["stock"] = Stock(["CC(=O)O", "N", "BrCc1ccccc1"])
    bought = settings | {"constraints": Constraints(only_purchasable=True)}
    (plan,) = chain_planner.plan([amide], **bought)
    assert plan.routes and all(c.purchasable for c in plan.distinct)
    (plan,) = chain_planner.plan([amide], constraints=Constraints(required_leaf=amine), **settings)
    assert plan.routes and all(amine in route.leaves() for route in plan.routes)
    (plan,) = chain_planner.plan([amide], **bought | {"stock": Stock(["N"])})
    assert not plan.routes and "from molecules of the stock alone (only_purchasable)" in plan.nothing_because
    (plan,) = chain_planner.plan([amide], time_limit=1e-6, **settings)
    assert not plan.routes and "the time was up" in plan.nothing_because and "time limit of 1e-06 s" in plan.remarks[0]

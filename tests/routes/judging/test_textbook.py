"""Textbook reactions: they support steps that nobody recorded, under their names, and change nothing of recorded ones."""

import math
from dataclasses import replace

import pytest

from weftformer.routes import Candidate, Plan, PlanSettings, Route, Stock
from weftformer.routes.judging import (
    Library,
    Transformation,
    is_route_supported,
    judge,
    judge_route,
    shipped_library,
)
from weftformer.routes.planning.settings import Constraints
from weftformer.routes.planning.stock_search import MODEL, RARE, _delays, rare_steps
from weftformer.routes.ranking import rank
from weftformer.routes.training.extraction import Extraction, build, record_of

PHENYTOIN, BENZIL = "O=C1NC(=O)C(c2ccccc2)(c2ccccc2)N1", ["NC(N)=O", "O=C(C(=O)c1ccccc1)c1ccccc1"]
ESTER = "[CH3:1][C:2](=[O:3])[OH:9].[CH3:5][OH:4]>>[CH3:1][C:2](=[O:3])[O:4][CH3:5]"
ETHER = "[CH3:1][CH2:2][OH:3].[CH3:4]I>>[CH3:1][CH2:2][O:3][CH3:4]"


def rows_of(mapped, name=None):
    records = [record_of(mapped, source="a book" if name else "US1")]
    rows = build(records, [Extraction().template(record)[0] for record in records])
    return [(key, replace(row, textbook=name)) for key, row in rows]


@pytest.fixture(scope="module")
def library():
    textbook = rows_of(ETHER, "Williamson synthesis") + rows_of(ESTER, "Fischer esterification")
    return Library(rows_of(ESTER), textbook=Library(textbook, by_similarity=True))


def test_a_textbook_reaction_supports_a_step_under_its_name(library):
    step = judge("CCOC", ["CCO", "CI"], library)
    assert (step.state, step.evidence, step.precedents) == ("textbook", "textbook", 0)
    assert step.outcome == "textbook: Williamson synthesis" and step.examples[0].source == "a book"
    assert judge("CCOC", ["CCO", "CI"], library.without_textbook).evidence == "none"


def test_a_recorded_transformation_wins(library):
    step = judge("COC(C)=O", ["CC(=O)O", "CO"], library)
    assert (step.evidence, step.precedents, step.examples[0].source) == ("recorded", 1, "US1")
    assert [row.textbook for _, row in library.rows()] == [None]


def test_textbook_reactions_are_as_probable_as_their_examples_are_similar(library):
    near, far = (rare_steps(library, product, Constraints())[0].checked() for product in ("CCOC", "CCCCCCCCCCOC"))
    assert near.reactants == ("CCO", "CI") and near.is_supported
    assert near.cost == pytest.approx(0.12, abs=0.01) and far.cost > 3
    assert math.exp(-near.cost) == pytest.approx(library.textbook.most_probable("CCOC"))
    assert rare_steps(library.without_textbook, "CCOC", Constraints()) == []
    recorded = Library([(key, replace(row, count=2)) for key, row in library.rows()], textbook=library.textbook)
    ester, *_ = rare_steps(recorded, "COC(C)=O", Constraints(), recorded.derive("COC(C)=O", 9))
    assert ester.checked() is None


def test_a_mixture_is_separated_if_textbooks_are_asked(library):
    [step] = rare_steps(library, "CC[C@H](C)N", Constraints())
    assert step.reactants == ("CCC(C)N",) and step.is_supported and step.cost > 3
    assert rare_steps(library, "C[C@H](N)[C@H](C)O", Constraints()) == []
    assert rare_steps(library, "CC(N)[C@H](C)O", Constraints()) == []
    assert rare_steps(library, "CC[C@H](C)N", Constraints(forbidden=("CCC(C)N",))) == []
    recorded = "[C:2]-[C@H;+0:1](-[C:3])-[N:4]>>[C:2]-[CH;+0:1](-[C:3])-[N:4]"
    known = Library([("", Transformation(recorded, 100))], textbook=library.textbook)
    assert rare_steps(known, "CC[C@H](C)N", Constraints(), known.derive("CC[C@H](C)N", 9)) == []
    assert judge("CC[C@H](C)N", ["CCC(C)N"], library).outcome == "textbook: separation of isomers"
    assert judge("CC[C@H](C)N", ["CCC(C)N"], library.without_textbook).evidence == "none"


@pytest.mark.parametrize(
    ("starting_material", "support"), [("CC(N)c1ccccc1", None), ("CC(=NO)c1ccccc1", "textbook"), ("CC=CN", "textbook")]
)
def test_the_isomer_of_a_starting_material_is_bought_and_not_separated(starting_material, support):
    amide, library = "CC(NC(=O)c1ccccc1)c1ccccc1", shipped_library()
    route = Route(
        "C[C@H](NC(=O)c1ccccc1)c1ccccc1", (Route(amide, (Route(starting_material), Route("O=C(O)c1ccccc1"))),)
    )
    separation = judge_route(route)[1]
    assert (separation.name, separation.support) == ("separation of isomers", support)
    assert any("buy its isomer" in remark for remark in separation.remarks) == (support is None)
    assert not is_route_supported(route, library) or support is not None


def test_textbooks_are_asked_sooner_for_a_molecule_like_an_example(library):
    near, far, isomer = (_delays(library, smiles) for smiles in ("CCOC", "c1ccccc1", "CC[C@H](Cl)Br"))
    assert 0 < near[RARE] < isomer[RARE] < far[RARE] < near[MODEL]
    assert _delays(library.without_textbook, "CCOC")[RARE] == far[RARE]


def test_all_reactions_like_the_examples_are_proposed():
    [(_, ether)] = rows_of(ETHER, "ether")
    rows = [
        (f"{halogen}1", replace(ether, smarts=f"[CH3:1]-[O;H0;+0:2]-[C:3]>>{halogen}-[CH3:1].[O;H1;+0:2]-[C:3]"))
        for halogen in ("Cl", "Br", "I")
    ]
    proposed = dict(Library(rows, by_similarity=True).propose("CCOC", 9))
    assert proposed.keys() == {("CCO", "CI"), ("CBr", "CCO"), ("CCO", "CCl")}


def test_a_route_of_recorded_and_textbook_steps_solves_a_target_unless_they_are_left_out(library):
    route = Route("CCOC", (Route("CCO"), Route("CI")))
    found = Candidate(route.to_string(), -1.0, 1, route, steps=judge_route(route, library))
    plan = rank("CCOC", [found], Stock(["CCO", "CI"]), library)
    assert plan.solved and plan.ideas == [] and plan.summary["textbook"] == 1 and plan.summary["precedented"] == 0
    assert plan.candidates[0].recorded_in_words == "0 of 1 step recorded, 1 from textbooks"
    assert plan.candidates[0].evidence == "textbook" and Plan.from_dict(plan.to_dict()) == plan
    strict = rank("CCOC", [found], Stock(["CCO", "CI"]), library, evidence="recorded")
    assert not strict.solved and len(strict.ideas) == 1
    assert PlanSettings(library=library).transformations is library
    assert PlanSettings(library=library, evidence="recorded").transformations.textbook is None


@pytest.mark.parametrize(
    ("product", "reactants", "name"),
    [
        (PHENYTOIN, BENZIL, "Biltz synthesis"),
        ("CC(C)(O)c1ccc(C)cc1", ["COC(=O)c1ccc(C)cc1", "C[Mg]Br"], "Grignard addition to an ester, twice"),
        ("CC(=O)c1ccc(C)cc1", ["N#Cc1ccc(C)cc1", "C[Mg]Br"], "Grignard addition to a nitrile"),
        ("O=C(O)c1ccc(C)cc1", ["Br[Mg]c1ccc(C)cc1", "O=C=O"], "carboxylation of a Grignard reagent"),
    ],
)
def test_the_included_textbook_reactions(product, reactants, name):
    step = judge(product, reactants)
    assert (step.evidence, step.name) == ("textbook", name)
    assert not any("is needed" in remark for remark in step.remarks)


def test_what_no_textbook_has_is_no_textbook_step():
    assert judge("CC(=O)c1ccccc1", ["O=C(O)c1ccccc1", "C[Mg]Br"]).state == "no precedent"


def test_a_reagent_of_zinc_spares_its_own_ester():
    assert judge("CCOC(=O)CC1(O)CCCCC1", ["CCOC(=O)CBr", "O=C1CCCCC1"]).evidence == "recorded"


def test_the_included_library_counts_no_textbook_reaction():
    library = shipped_library()
    assert library.textbook is not None and all(row.textbook for _, row in library.textbook.rows())
    assert not any(row.textbook for _, row in library.rows())

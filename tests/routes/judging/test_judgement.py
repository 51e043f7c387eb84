import csv
import gzip
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rdkit import Chem

from weftformer.routes import Candidate, Route, judge
from weftformer.routes.chemistry.groups import patterns, unstable_kind
from weftformer.routes.chemistry.molecules import rooted_smiles, structure
from weftformer.routes.chemistry.stereo import compare
from weftformer.routes.judging import (
    Transformation,
    count_detours,
    judge_route,
    judgement,
    shipped_library,
    templates,
)
from weftformer.routes.judging.library import Library, difference
from weftformer.routes.judging.transformation import ReagentSet
from weftformer.routes.ranking import complete
from weftformer.routes.shipped import PAROUTES_STOCK, STOCK
from weftformer.routes.training.extraction import Extraction, build, record_of

from ..trees import made

ACID, AMINE = "O=C(O)c1ccccc1", "NCCc1ccccc1"
AMIDE = "O=C(NCCc1ccccc1)c1ccccc1"
MAPPED = [  # an amide coupling, and a substitution that inverts a centre
    ("[CH3:6][CH2:1][C:2](=[O:3])O.[CH3:7][CH2:4][NH2:5]>>[CH3:7][CH2:4][NH:5][C:2]([CH2:1][CH3:6])=[O:3]", 2),
    ("[CH3:1][CH2:2][C@H:3]([CH3:4])Br.[NH3:5]>>[CH3:1][CH2:2][C@@H:3]([CH3:4])[NH2:5]", 1),
]


def rows_of(mapped):
    records = [
        record_of(one, reaction_class=number, source=f"US{index}") for index, (one, number) in enumerate(mapped)
    ]
    return list(build(records, [Extraction().template(record)[0] for record in records]))


@pytest.fixture(scope="module")
def library():
    return Library(rows_of(MAPPED))


def test_a_recorded_transformation_is_a_precedent_with_its_examples_and_class():
    found = judge(AMIDE, [ACID, AMINE])
    assert (found.state, found.reaction_class, found.reason, found.remarks) == ("precedented", "acylation", None, ())
    assert found.precedents > 100 and len(found.examples) == 3


def test_a_grignard_reagent_is_the_one_of_records_without_halide():
    states = [judge("OC(C)(C)c1ccccc1", ["CC(=O)c1ccccc1", reagent]).precedents for reagent in ("C[Mg+]", "C[Mg]Br")]
    assert states[0] == states[1] > 0


@pytest.mark.parametrize(
    ("route", "states", "reason"),
    [
        # carbon dioxide and a Grignard reagent are not drawn
        (made("COC(=O)c1ccc(F)cc1F", made("O=C(O)c1ccc(F)cc1F", "Brc1ccc(F)cc1F"), "CO"), ["no precedent", "precedented"], None),
        (made("CC(O)c1ccccc1", "O=Cc1ccccc1"), ["no precedent"], None),
        (made("CCO", made("CC=O", "C(C)O")), ["fails", "precedented"], "CCO is made from itself"),
        # each reason once, in the order of the steps
        (made("CCCl", made("CCO", "[SiH4]"), made("CBr", "[SiH4]")), ["fails"] * 2 + ["no precedent"], "2 C, 1 O missing; 1 C, 1 Br missing"),
        (made("CCO", "C[R1]"), ["fails"], "C[R1] cannot be read: it has an R group or another undefined atom"),
        (Route("CCO"), [], None),
    ],
)  # fmt: skip
def test_a_route_fails_where_a_step_does(route, states, reason):
    found = judge_route(route)
    assert [one.state for one in found] == states and complete(Candidate("", 0.0, None, route)).fails_because == reason


def rows_in(name):
    return list(csv.DictReader((Path(__file__).parent / name).open(encoding="utf-8")))


@pytest.mark.parametrize("row", rows_in("steps.csv"), ids=lambda row: row["about"])
def test_a_step_is_judged_as_chemists_do(row):
    """`told` is in a finding, or "-" if there is none, and `untold` is in no finding."""
    found = judge(row["product"], row["reactants"].split())
    texts = [finding.text for finding in found.findings]
    is_lower = found.is_misplaced and found.state != "fails"
    assert found.state + (", ranks lower" if is_lower else "") == row["state"], texts
    assert not texts if row["told"] == "-" else not row["told"] or any(row["told"] in text for text in texts)
    assert not row["untold"] or not any(row["untold"] in text for text in texts)


def test_rearrangements_ring_closures_and_one_pot_reactions_do_not_fail():
    """Every atom of these products is in the reactants, whether they are recorded or not."""
    rows = rows_in("named_reactions.csv")
    untrue = {}
    for row in rows:
        step = judge(row["product"], row["reactants"].split("."))
        if step.state == "fails" or any("no reactant supplies" in remark for remark in step.remarks):
            untrue[row["name"]] = step.reason or step.remarks
    assert len(rows) >= 60 and not untrue


def test_no_included_starting_material_counts_as_unstable():
    for file in (STOCK, PAROUTES_STOCK):
        with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
            molecules = [row["smiles"] for row in csv.DictReader(lines)]
        assert molecules and not list(filter(unstable_kind, molecules))


def test_unproductive_steps():
    inverted = judge("CC[C@H](C)N", ["CC[C@@H](C)N"])
    assert (inverted.name, inverted.is_unproductive) == ("change of stereochemistry", True)
    assert judge("CC(C)(C)OC(=O)NCc1ccccc1", ["CC(C)(C)OC(=O)OC(=O)OC(C)(C)C", "NCc1ccccc1"]).is_unproductive
    assert not judge(AMIDE, [ACID, AMINE]).is_unproductive


def test_an_ester_of_the_acid_of_another_ester_moves_the_problem():
    acid = "O=C(O)c1ccccc1"
    hydrolysis = Route(acid, (Route("COC(=O)c1ccccc1"),))
    swapped = Route("CCOC(=O)c1ccccc1", (hydrolysis, Route("CCO")))
    assert [one.name for one in judge_route(swapped)] == ["methyl ester hydrolysis", "esterification"]
    made = Route("CCOC(=O)c1ccccc1", (Route(acid), Route("CCO")))
    assert [count_detours(judge_route(route)) for route in (swapped, hydrolysis, made)] == [1, 0, 0]


@pytest.mark.parametrize("reagents", [["CCO"], ["[Pd]", "O=C([O-])[O-].[K+].[K+]"], ["CCN(CC)CC.CN(C)C=O", "ClCCl"]])
def test_reagents_among_the_reactants_hide_no_precedent(reagents):
    found, plain = judge(AMIDE, [ACID, AMINE, *reagents]), judge(AMIDE, [ACID, AMINE])
    assert (found.state, found.precedents) == ("precedented", plain.precedents)
    assert found.remarks == tuple(f"no atom of {reagent} is needed" for reagent in sorted(reagents))


def test_stereochemistry_counts(library):
    assert judge("CC[C@@H](C)N", ["CC[C@H](C)Br", "N"], library).state == "precedented"
    inverted = judge("CC[C@H](C)N", ["CC[C@H](C)Br", "N"], library)
    assert inverted.state == "no precedent"


def test_the_commonest_transformation_that_gives_the_reactants_is_found(library):
    """It stands behind many whose products are others."""
    key = difference("CCNC(=O)CC", "CCC(=O)O.CCN")
    right = library.match("CCNC(=O)CC", ["CCC(=O)O", "CCN"]).transformation
    others = [f"([C:1]-[{element}:2])>>([C:1]-[{element}H:2])" for element in ("Cl", "Br", "I", "F", "S", "P")]
    rows = [(key, Transformation(others[index % 6], 1000 - index)) for index in range(150)]
    many = Library([*rows, *((key, replace(right, count=count)) for count in (2, 3))])
    for _ in range(2):  # the second time with what the first has kept
        found = many.match("CCNC(=O)CC", ["CCC(=O)O", "CCN"]).transformation
        assert found is not None and (found.smarts, found.count) == (right.smarts, 3)


def is_accepted(product, reactants):
    """Whether a step has a precedent, and nothing speaks against it."""
    step = judge(product, reactants)
    return step.state == "precedented" and not step.is_misplaced


def test_at_most_one_in_twenty_wrong_steps_has_a_precedent_and_no_doubt():
    rows = rows_in("wrong_steps.csv")
    accepted = [row for row in rows if is_accepted(row["product"], row["reactants"].split("."))]
    assert len(rows) >= 60 and len(accepted) <= len(rows) / 20, accepted


@pytest.mark.parametrize(
    "product",
    [
        "COc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1-c1cccnc1",
        "CC(C)(C)OC(=O)N1CCN(c2ccc(C(F)(F)F)cn2)CC1",
        "CCOC(=O)c1ccc2c(c1)CCN2S(C)(=O)=O",
        # with stereocentres and double bonds elsewhere, or where a template reacts or makes them symmetric
        "COc1ccc(NC(=O)[C@@H]2CCCN2C(=O)OC(C)(C)C)cc1",
        "COC(=O)/C=C/c1ccc(OC[C@H](O)CNC(C)C)cc1",
        "N[C@@H](CO)COc1ccccc1",
        r"C/C(=N\OCC(=O)O)c1ccc(C(=O)N(C)C)cc1",
        "CNC(=O)c1ccc([S@](C)=O)cc1",
    ],
)
def test_templates_without_stereochemistry_give_what_rdchiral_gives(monkeypatch, product):
    rows = sorted(shipped_library().rows(), key=lambda row: -row[1].count)
    common = [one for _, one in rows if "@" not in one.smarts][:150]

    def outcomes(one):
        # the mapped reactants may differ in their order, but the same atoms change
        return {smiles: changes(step) for smiles, step in templates.outcomes(one.smarts, product).items()}

    def changes(step):
        return [(step.reacts(name), step.stays(name)) for name in patterns()]

    fast = [outcomes(one) for one in common]
    assert any(fast)
    monkeypatch.setattr(templates, "_outcomes_of_rdkit", lambda smarts, product: None)
    assert [outcomes(one) for one in common] == fast


def test_a_template_without_stereochemistry_says_nothing_of_a_stereocentre_whose_bonds_change():
    template = "[C:2]-[CH;D3;+0:1](-[NH;D2;+0:5]-[c:4])-[C:3]>>I-[CH;D3;+0:1](-[C:2])-[C:3].[c:4]-[NH2;D1;+0:5]"
    assert [*templates.outcomes(template, "CCC(Nc1ccccc1)C(=O)OC")] == ["CCC(I)C(=O)OC.Nc1ccccc1"]
    assert templates.outcomes(template, "CC[C@H](Nc1ccccc1)C(=O)OC") == {}
    without_charges = template.replace(";+0", "")  # which rdchiral never writes
    assert templates.outcomes(without_charges, "CC[C@H](Nc1ccccc1)C(=O)OC") == {}
    far_centre = "C[C@H](O)CCC(Nc1ccccc1)C(=O)OC"
    assert [*templates.outcomes(template, far_centre)] == ["COC(=O)C(I)CC[C@H](C)O.Nc1ccccc1"]


@pytest.mark.parametrize(
    ("product", "reactant", "is_mixture"),
    [
        ("C[C@@H](O)c1ccccc1", "CC(=O)c1ccccc1", True),
        ("CC(O)c1ccccc1", "CC(=O)c1ccccc1", False),
        ("O[C@H]1CC[C@@H](O)CC1", "O=C1CC[C@@H](O)CC1", False),
        ("C[C@]12CC[C@H]3c4ccc(O)cc4CC[C@@H]3[C@@H]1CC[C@@H]2O", "C[C@]12CC[C@H]3c4ccc(O)cc4CC[C@@H]3[C@@H]1CCC2=O", False),
    ],
    ids=["one enantiomer", "racemate", "meso", "a chiral ketone"],
)  # fmt: skip
def test_one_enantiomer_from_achiral_reactants_needs_a_chiral_reagent(product, reactant, is_mixture):
    step = judge(product, [reactant])
    assert step.is_misplaced == is_mixture == any("achiral" in remark for remark in step.remarks)
    assert not (is_mixture and step.usual_reagents)


def test_reagents_of_the_kind_are_told_as_such_if_few_are_recorded(library):
    one = library.match("CCNC(=O)CC", ["CCC(=O)O", "CCN"]).transformation
    sets = [(ReagentSet("", count), ReagentSet("CCN(CC)CC", count)) for count in (2, 30)]
    few, many = (replace(one, name="coupling", reagents=reagents) for reagents in sets)
    key = difference("CCNC(=O)CC", "CCC(=O)O.CCN")
    texts = [
        judge("CCNC(=O)CC", ["CCC(=O)O", "CCN"], Library([(key, first), ("other", other)])).usual_reagents
        for first, other in ((few, many), (many, few))
    ]
    assert texts == ["triethylamine (32 of 32 of this kind)", "triethylamine (30 of 30)"]


def test_a_recorded_chiral_reagent_makes_one_enantiomer():
    smarts = "[C:1]-[C@H;D3;+0:2](-[OH;D1;+0:3])-[c:4]>>[C:1]-[C;H0;D3;+0:2](=[O;H0;D1;+0:3])-[c:4]"
    catalyst = "B1O[C@H](c2ccccc2)CN1"
    sets = (ReagentSet("", 12), ReagentSet("[BH4-].[Na+]", 8), ReagentSet(catalyst, 4))
    library = Library([("", Transformation(smarts, 12, reagents=sets))])
    step = judge("C[C@@H](O)c1ccccc1", ["CC(=O)c1ccccc1"], library)
    assert not step.remarks and [compounds.smiles for compounds in step.reagents] == ["", catalyst]


def test_a_free_acid_also_hinders_a_coupling_with_a_deprotection():
    acid = "CC(C)(C)OC(=O)N[C@@H](C)C(=O)O"
    assert judge("C[C@H](N)C(=O)N1CCC[C@H]1C(=O)O", [acid, "O=C(O)[C@@H]1CCCN1"]).is_objected
    assert judge("C[C@H](N)C(=O)NCc1ccccc1", [acid, "NCc1ccccc1"]).state == "precedented"


@pytest.mark.parametrize(
    ("sulfoxide", "change"),
    [
        ("CS(=O)c1ccccc1", ""),
        ("C[S@](=O)c1ccccc1", ", but here a stereocentre or double bond is newly defined: expect a mixture of stereoisomers"),
    ],
)  # fmt: skip
def test_an_oxidant_that_is_not_drawn_is_looked_for_in_the_records(sulfoxide, change):
    found = judge(sulfoxide, ["CSc1ccccc1"])
    assert found.state == "no precedent"
    reagent, recorded = found.remarks
    assert reagent == "reagent not drawn: water, oxygen or an oxidant"
    assert re.fullmatch(f"the transformation is recorded [0-9]+ times with hydrogen peroxide{change}", recorded)


def test_a_recorded_step_is_not_ranked_lower_for_a_molecule_that_is_left_out():
    ether = "CCCCOCCc1ccccc1", ["CCCCBr", "OCCc1ccccc1", "CC(=O)O"]  # an acid within the alcohol would rank lower
    assert [finding.effect for finding in judge(*ether).findings] == ["note"]


def test_the_most_common_precedent_without_reagents_counts():
    amide = "CNC(=O)c1ccc(C)cc1", ["Cc1ccc(C(=O)O)cc1", "CN"]
    alone, beside = judge(*amide), judge(amide[0], [*amide[1], "CCN(CC)CC"])
    assert (beside.name, beside.precedents) == (alone.name, alone.precedents)


@pytest.mark.parametrize(
    ("product", "reactants", "support", "told"),
    [
        # two at once: a Boc group goes in an oxidation
        (
            "NCCC(=O)Nc1ccc(C)cc1C(=O)c1ccccc1", ["CC(C)(C)OC(=O)NCCC(=O)Nc1ccc(C)cc1C(O)c1ccccc1"], "two at once",
            "alcohol oxidation",
        ),
        # the second of two changes is not recorded
        ("NCCC(=O)Nc1ccc(F)cc1C", ["CC(C)(C)OC(=O)NCCC(=O)Nc1ccc(F)cc1CC"], None, None),
        # a coupling and the removal of a Boc group elsewhere
        ("NCc1ccc(C(=O)NCC)cc1", ["CC(C)(C)OC(=O)NCc1ccc(C(=O)O)cc1", "CCN"], "two at once", "amide coupling"),
        # both change the same atoms: an amine is not alkylated by way of its amide
        ("CCCCN(CC)c1ccccc1", ["CCNc1ccccc1", "O=C(O)CCC"], None, None),
    ],
)  # fmt: skip
def test_two_recorded_transformations_support_a_step(product, reactants, support, told):
    found = judge(product, reactants)
    assert (found.state, found.support) == ("no precedent", support)
    assert found.evidence == (support or "none")
    assert told is None or (told in found.remarks[0] and "at once" in found.remarks[0])


def test_two_transformations_of_the_same_atom_do_not_support_a_step():
    # an alcohol to an aldehyde, and the aldehyde to an acid, beside another aldehyde
    oxidation = "[C:1]-[CH;D2;+0:2]=[O;H0;D1;+0:3]>>[C:1]-[CH2;D2;+0:2]-[OH;D1;+0:3]"
    to_acid = "[C:1]-[C;H0;D3;+0:2](=[O;D1;H0:3])-[OH;D1;+0:4]>>[C:1]-[CH;D2;+0:2]=[O;D1;H0:3].[OH2;D0;+0:4]"
    library = Library([("", Transformation(oxidation, 9)), ("", Transformation(to_acid, 9))])
    assert judge("O=CCC(C)CCC(=O)O", ["O=CCC(C)CCCO", "O"], library).support is None
    # another alcohol is oxidised
    assert judge("O=CCC(C)CCC(=O)O", ["OCCC(C)CCC=O", "O"], library).support == "two at once"


def test_a_step_can_be_judged_often():
    # RDKit took longer each time it looked for the stereocentres of the shared molecule: after a hundred times, it hung
    molecule = structure("CC(C)S(=O)(=O)NC[C@H]1CC[C@H](NC(=O)OC(C)(C)C)CC1")
    mapped = Chem.Mol(molecule)
    for atom in mapped.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)
    for _ in range(120):
        assert compare(molecule, molecule, mapped).is_kept


def test_findings_do_not_depend_on_the_order_of_the_reactants():
    product, used = "CC(=O)c1ncc(F)cc1F", ["N#Cc1ncc(F)cc1F", "[Br-]", "[CH3][Mg+]", "[NH4+]", "[Br-]", "[NH4+]"]
    findings = judge(product, used).findings
    assert len(findings) > 2 and judge(product, used[::-1]).findings == findings


@pytest.mark.integration
def test_the_order_the_spelling_and_the_threads_change_no_judgement():
    rng = random.Random(5)
    recorded = [one.examples[0].smiles.split(">>") for _, one in shipped_library().rows() if one.examples]
    steps = [(made, used.split(".")) for used, made in rng.sample(recorded, 200)]
    steps += [(made, used[:1]) for made, used in steps[:100]]  # without the other reactants: most have no precedent
    judgements = [replace(judge(*step), product="", reactants=()) for step in steps]

    def again(place):
        made, used = steps[place]
        spelled = [rng.choice(rooted_smiles(smiles)) for smiles in (made, *rng.sample(used, len(used)))]
        return place, judge(spelled[0], spelled[1:])

    judgement._judge.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        for place, other in threads.map(again, rng.sample(range(len(steps)), len(steps))):
            assert replace(other, product="", reactants=()) == judgements[place], steps[place]
    assert len({one.state for one in judgements}) == 3

"""The positions of aromatic rings that recorded reactions take."""

import pytest
from rdkit import Chem

from weftformer.routes.chemistry.orientation import Place, Substitution, substitutions
from weftformer.routes.judging import judge


def found(reaction):
    reactants, product = map(Chem.MolFromSmiles, reaction.split(">>"))
    return [Substitution(kind, taken, tuple(set(others))) for kind, taken, others in substitutions(product, reactants)]


def test_a_position_is_known_by_its_ring_system_and_by_the_substituents_of_a_benzene_ring():
    nitration = "[O:1]([CH3:9])[c:2]1[cH:3][cH:4][cH:5][c:6]([Cl:8])[cH:7]1>>"
    nitration += "[O:1]([CH3:9])[c:2]1[cH:3][cH:4][c:5]([N+](=O)[O-])[c:6]([Cl:8])[cH:7]1"
    [(kind, taken, others)] = found(nitration)
    assert kind == "H by a nitro group"
    oxygen = "a hydroxy or alkoxy group"
    assert taken == {Place(3, oxygen), Place(1, "chlorine")}
    assert set(others) == {frozenset({Place(a, oxygen), Place(b, "chlorine")}) for a, b in ((1, 3), (2, 2), (1, 1))}
    assert set(map(str, taken)) == {f"a position para to {oxygen}", "a position ortho to chlorine"}
    # another ring system: substituents and the rings beside it say nothing
    amination = "[Cl:9][c:1]1[n:2][c:3]([Cl:4])[cH:5][c:6]([CH3:10])[n:7]1.[NH3:8]>>"
    amination += "[c:1]1([Cl:9])[n:2][c:3]([NH2:8])[cH:5][c:6]([CH3:10])[n:7]1"
    [(kind, taken, others)] = found(amination)
    assert (kind, taken) == ("Cl by an amino group", {Place(0, "[c:1]1ccncn1")})
    assert others == ({Place(0, "[c:1]1ncccn1")},) and str(*taken) == "position 1 of [c:1]1ccncn1"


@pytest.mark.parametrize(
    "reaction",
    [
        "[CH3:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1>>[OH:9][CH2:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1",  # a chain
        "[Cl:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1.[NH3:8]>>[NH2:8][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1",  # one Cl
        "[Br:1][c:2]1[n:3][c:4]([Br:5])[cH:6][cH:7][n:8]1>>[F:1][c:2]1[n:3][c:4]([F:5])[cH:6][cH:7][n:8]1",  # both
        "[c:2]1([NH2:9])[cH:3][cH:4][cH:5][cH:6][cH:7]1>>[c:2]12[NH:9][CH:10]=[CH:11][c:3]1[cH:4][cH:5][cH:6][cH:7]2",
    ],
)  # the last one closes an aromatic ring
def test_only_a_choice_of_positions_counts(reaction):
    assert found(reaction) == []


@pytest.mark.parametrize(
    ("product", "reactants", "remark"),
    [
        ("Nc1cncnc1Cl", ["Clc1cncnc1Cl", "N"], "none of 284 recorded substitutions of Cl by an amino group took position 1"),
        ("Nc1ncncc1Cl", ["Clc1cncnc1Cl", "N"], None),
        ("CC(=O)c1ccc2sccc2c1", ["CC(=O)Cl", "c1ccc2sccc2c1"], "none of 44 recorded substitutions of H by a carbonyl group"),
        ("CC(=O)c1cc2ccccc2s1", ["CC(=O)Cl", "c1ccc2sccc2c1"], None),
        # the fluorine atom para to the carbonyl group of a quinolone, as in ciprofloxacin
        (
            "O=C(O)c1cn(C2CC2)c2cc(N3CCNCC3)c(F)cc2c1=O",
            ["O=C(O)c1cn(C2CC2)c2cc(F)c(F)cc2c1=O", "C1CNCCN1"],
            None,
        ),
    ],
)  # fmt: skip
def test_a_position_that_recorded_reactions_leave_is_a_remark(product, reactants, remark):
    judgement = judge(product, reactants)
    assert judgement.state == "precedented" and judgement.is_misplaced == (remark is not None)
    found = [text for text in judgement.remarks if "recorded substitutions" in text]
    assert found == [] if remark is None else found[0].startswith(remark)


NITRIC_ACID, NBS = "O[N+](=O)[O-]", "O=C1CCC(=O)N1Br"


@pytest.mark.parametrize(
    ("reactants", "right", "wrong"),
    [
        (["Cc1ccccc1", NITRIC_ACID], "Cc1ccc([N+](=O)[O-])cc1", "Cc1cccc([N+](=O)[O-])c1"),
        (["COC(=O)c1ccccc1", NITRIC_ACID], "COC(=O)c1cccc([N+](=O)[O-])c1", "COC(=O)c1ccc([N+](=O)[O-])cc1"),
        (["N#Cc1ccccc1", "BrBr"], "N#Cc1cccc(Br)c1", "N#Cc1ccc(Br)cc1"),
        (["CC(=O)Nc1ccccc1", "BrBr"], "CC(=O)Nc1ccc(Br)cc1", "CC(=O)Nc1cccc(Br)c1"),
        (["Clc1ccccc1", "CC(=O)Cl"], "CC(=O)c1ccc(Cl)cc1", "CC(=O)c1cccc(Cl)c1"),
        # both direct to the same position
        (["Cc1ccc(C(=O)O)cc1", NITRIC_ACID], "Cc1ccc(C(=O)O)cc1[N+](=O)[O-]", "Cc1ccc(C(=O)O)c([N+](=O)[O-])c1"),
        # the oxygen atom decides
        (["COc1ccc(C(=O)O)cc1", NBS], "COc1ccc(C(=O)O)cc1Br", "COc1ccc(C(=O)O)c(Br)c1"),
        # dimethylaniline in acid
        (["CN(C)c1ccccc1", NITRIC_ACID], "CN(C)c1cccc([N+](=O)[O-])c1", None),
        # an unknown substituent may direct elsewhere
        (["Cc1ccc([Si](C)(C)C)cc1", NITRIC_ACID], "Cc1ccc([Si](C)(C)C)c([N+](=O)[O-])c1", None),
        # a copper-catalysed substitution is none by an electrophile
        (["Cc1cccc(Br)c1", "N"], "Cc1cccc(N)c1", None),
    ],
)
def test_an_electrophile_goes_where_a_substituent_directs_it(reactants, right, wrong):
    assert judge(right, reactants).state == "precedented"
    if wrong is not None:
        judgement = judge(wrong, reactants)
        assert judgement.state == "no precedent" and judgement.is_objected
        assert any(" directs to its " in remark for remark in judgement.remarks)

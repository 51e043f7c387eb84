"""What recorded reactions and molecules do not have: counts of a small table, and those of the included one."""

import numpy
import pytest
from rdkit import Chem

from weftformer.routes import judge
from weftformer.routes.chemistry.changes import half_bonds
from weftformer.routes.chemistry.step import MappedStep
from weftformer.routes.judging.unseen import Unseen, environment_keys, kinds_of_change, molecule_key, ratio

EMPTY = {name: numpy.zeros(0, numpy.uint32) for name in ("kinds", "environments", "known")}
EMPTY |= {"counts": numpy.zeros((0, 3), numpy.float32), "bonds": numpy.zeros((0, 4), numpy.uint32)}


def test_a_group_that_a_kind_of_reaction_does_not_keep_is_found():
    step = MappedStep("CSCC(=O)O", "[CH3:1][S:2][CH2:3][C:4](=[O:5])[O:6]C")
    kinds = kinds_of_change(step.changes, step.reactants, step.molecule)
    sulfur = step.reactants.GetAtomWithIdx(1)
    key = environment_keys(sulfur, step.environments[1])[1]
    for kind in kinds:
        table = EMPTY | {"kinds": numpy.array([kind]), "environments": numpy.array([key])}
        [absence] = Unseen(table | {"counts": numpy.array([[2.0, 40.0, 500.0]])}).absences(step)
        assert absence == (1, 1, 2, 40.0, 500)
    assert not [*Unseen(EMPTY).absences(step)]
    # an atom that reacts is no group that stays
    reacting = environment_keys(step.reactants.GetAtomWithIdx(5), step.environments[5])[1]
    table = EMPTY | {"kinds": numpy.array([min(kinds)]), "environments": numpy.array([reacting])}
    assert not [*Unseen(table | {"counts": numpy.array([[2.0, 40.0, 500.0]])}).absences(step)]


def test_what_is_expected_of_a_bond_follows_from_its_ends():
    # 8 ethers, 6 alcohols and 3 thiols of one carbon atom, and 20 alcohols of two
    molecules = ["COC"] * 8 + ["CO"] * 6 + ["CS"] * 3 + ["CCO"] * 20
    halves = [
        half
        for smiles in molecules
        for half in {half[2:]: half for half in half_bonds(Chem.MolFromSmiles(smiles))}.values()
    ]
    rows = sorted({half[2:] for half in halves})
    counts = [[*row, sum(half[2:] == row for half in halves)] for row in rows]
    unseen = Unseen(EMPTY | {"bonds": numpy.array(counts, numpy.uint32)})
    found = {
        (half.place, half.neighbour): (count, expected)
        for half, count, expected in unseen.bonds(Chem.MolFromSmiles("CO"), {1})
    }
    # of 34 bonds of carbon to oxygen, 26 lead to a hydroxy group; 14 methyl groups have oxygen
    assert found[0, 1] == (6, pytest.approx(14 * 26 / 34))
    assert not [*unseen.bonds(Chem.MolFromSmiles("CCO"), set())]


def test_one_more_of_each_is_counted():
    assert ratio(0, 0.0) == 1.0 and ratio(0, 9.0) == 0.1 and ratio(4, 99.0) == 0.05


def test_a_small_molecule_that_reactions_have_is_known():
    unseen = Unseen(EMPTY | {"known": numpy.array([molecule_key("CC=O")], numpy.uint32)})
    assert unseen.is_known("CC=O") and not unseen.is_known("C=CO")


@pytest.mark.parametrize(
    ("product", "reactants"),
    [
        ("C=C(O)CC", ["C=C(CC)OC(C)=O"]),
        ("CC(C)(C)OS(C)(=O)=O", ["CC(C)(C)O", "CS(=O)(=O)Cl"]),
        ("CC1(OS(=O)(=O)c2ccc(C)cc2)CCCCC1", ["CC1(O)CCCCC1", "Cc1ccc(S(=O)(=O)Cl)cc1"]),
        ("O=C1CC1C", ["OC1CC1C"]),
    ],
    ids=["enol", "tertiary sulfonate", "tertiary sulfonate of a ring", "cyclopropanone"],
)
def test_atoms_that_no_molecule_has_are_told(product, reactants):
    step = judge(product, reactants)
    assert step.state != "precedented" or any("recorded molecule" in remark for remark in step.remarks)


@pytest.mark.parametrize(
    ("product", "reactants"),
    [
        ("CC=O", ["CCO"]),
        ("C=CCO", ["C=CCOC(C)=O"]),
        ("O=C1CCC1", ["OC1CCC1"]),
        ("CC(C)OS(C)(=O)=O", ["CC(C)O", "CS(=O)(=O)Cl"]),
        ("[2H]C([2H])([2H])NC(=O)c1ccccc1", ["[2H]C([2H])([2H])N", "O=C(O)c1ccccc1"]),
    ],
)
def test_common_molecules_exist(product, reactants):
    step = judge(product, reactants)
    assert step.state == "precedented" and not any("recorded molecule" in remark for remark in step.remarks)

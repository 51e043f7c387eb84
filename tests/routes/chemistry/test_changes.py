"""What happens to the atoms of a step, and the numbers of their environments."""

import pytest
from rdkit import Chem

from weftformer.routes.chemistry.changes import RADIUS, changes, environments, half_bonds
from weftformer.routes.chemistry.step import MappedStep


def changed(mapped):
    """The changes of a step by the map of their atoms: what is lost and gained, and the hydrogens."""
    reactants, product = map(Chem.MolFromSmiles, mapped.split(">>"))
    return {
        reactants.GetAtomWithIdx(change.before).GetAtomMapNum(): (
            [*change.lost],
            [product.GetAtomWithIdx(place).GetAtomMapNum() for place in change.gained],
            [*change.strengthened],
            change.hydrogens,
        )
        for change in changes(reactants, product)
    }


@pytest.mark.parametrize(
    ("mapped", "expected"),
    [
        (
            "[CH3:1][C:2](=[O:3])Cl.[NH2:4][CH3:5]>>[CH3:1][C:2](=[O:3])[NH:4][CH3:5]",
            {2: ([("leaving group", "Cl")], [4], [], 0), 4: ([], [2], [], -1)},
        ),
        (
            "[CH3:1][NH:2]C(=O)OC(C)(C)C>>[CH3:1][NH2:2]",
            {2: ([("carbon", "CC(C)(C)OC=O")], [], [], 1)},
        ),
        (
            "[CH3:1][C:2](=[O:3])[CH3:4]>>[CH3:1][CH:2]([OH:3])[CH3:4]",
            {2: ([("hetero=", "O")], [], [], 1), 3: ([("carbon=", "C")], [], [], 1)},
        ),
        ("[CH3:1][CH2:2][OH:3]>>[CH3:1][CH:2]=[O:3]", {2: ([], [], ["O"], -1), 3: ([], [], ["C"], -1)}),
        (
            "[CH3:1][O:2]S(C)(=O)=O.[C-:3]#[N:4]>>[CH3:1][C:3]#[N:4]",
            {1: ([("leaving group", "CS(=O)(=O)O")], [3], [], 0), 3: ([], [1], [], 0)},
        ),
        ("[cH:1]1[cH:2][cH:3][cH:4][cH:5][cH:6]1>>[cH:1]1[cH:2][cH:3][cH:4][cH:5][cH:6]1", {}),
    ],
)
def test_each_atom_has_what_it_loses_and_gains(mapped, expected):
    assert changed(mapped) == expected


def test_a_step_knows_the_atoms_that_no_reactant_has():
    step = MappedStep("CC(=O)O", "[CH3:1][CH:2]=[O:3]")
    assert step.changed_atoms == {2, 4} and len(step.changes) == 1


def test_environments_are_those_of_the_graph():
    numbers = environments(Chem.MolFromSmiles("CCO.OCC"))
    assert numbers.shape == (6, RADIUS + 1) and (numbers[:3] == numbers[:2:-1]).all()
    assert (environments(Chem.MolFromSmiles("[CH3:7][13CH2][OH:1]")) == numbers[:3]).all()  # no maps, no isotopes
    ring, chain = (environments(Chem.MolFromSmiles(smiles)) for smiles in ("C1CC1", "CCC"))
    assert ring[0, 0] != environments(Chem.MolFromSmiles("C1CCC1"))[0, 0] and ring[0, 0] != chain[1, 0]


def test_a_bond_is_seen_from_both_ends():
    halves = {(half.place, half.neighbour): half for half in half_bonds(Chem.MolFromSmiles("CC(=O)C"))}
    assert halves.keys() == {(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)}
    assert halves[1, 0][2:] == halves[1, 3][2:] and halves[1, 0].rest != halves[1, 2].rest

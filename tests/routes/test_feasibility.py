"""What is wrong with a route is found, and said in words."""

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Route
from weftformer.routes.feasibility import check_route, missing_atoms
from weftformer.routes.molecules import is_beyond_repair, read_molecule


def route(target, *children):
    return Route(target, tuple(Route(child) if isinstance(child, str) else child for child in children))


def test_a_route_that_may_work_has_no_findings():
    good = route("CC(=O)OC", route("CC(=O)O", "CC=O", "O"), "CO")
    check = check_route(good)
    assert check.is_possible and check.reason is None and check.findings == () and check.remarks == []
    assert check_route(Route("CCO")).is_possible


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (route("CC(=O)Nc1ccccc1", "CC(=O)O"), "6 C, 1 N missing"),
        (route("CCO", "OCC"), "OCC is made from itself"),
        (route("CCO", route("CC=O", "C(C)O")), "C(C)O is made from itself"),
        (route("CCO", "CC", "C1CC"), "C1CC cannot be read"),
        (Route("C1CC"), "C1CC cannot be read"),
        # each reason once, from the target backwards
        (route("CCCl", route("CCO", "CO"), route("CBr", "C")), "1 Cl missing; 1 C missing; 1 Br missing"),
        # one reaction with two faults
        (route("CCO", "OCC", "C(("), "C(( cannot be read; OCC is made from itself"),
    ],
)
def test_what_is_impossible_is_said(wrong, reason):
    check = check_route(wrong)
    assert not check.is_possible and check.reason == reason


def test_hydrogens_charges_and_labels_do_not_count():
    for product, reactants in (
        ("[2H]CO", ["CO"]),
        ("[H][H]", ["O"]),
        ("CC(=O)[O-]", ["CC(=O)O"]),
        ("[13CH3]O", ["CO"]),
    ):
        assert missing_atoms(read_molecule(product), [read_molecule(one) for one in reactants]) == {}
    # Cl is no carbon, nor is Sc a sulfur
    assert missing_atoms(read_molecule("CCl"), [read_molecule("CC")]) == {"Cl": 1}
    assert missing_atoms(read_molecule("CS"), [read_molecule("[Sc]"), read_molecule("C")]) == {"S": 1}
    assert dict(read_molecule("C[N+](C)(C)C.[Br-]").atoms) == {"C": 4, "N": 1, "Br": 1}


def test_a_reactant_twice_is_told_where_one_is_enough():
    assert check_route(route("CCOCC", "CCO", "OCC")).remarks == []  # an ether of two
    check = check_route(route("CCO", "C=C", "O", "O"))
    assert check.is_possible and check.reason is None and check.remarks == ["O is used twice"]


def test_bonds_too_many_stay_and_rings_may_yet_be_aromatic():
    # RDKit stumbles over this number of hydrogens: nothing is known of what follows
    assert read_molecule("C[cH111111115]N") is None and not is_beyond_repair("C[cH111111115]N")
    assert is_beyond_repair("CC(C)(C)(C)C") and not is_beyond_repair("c1cccc1")
    assert read_molecule("c1cccc1") is None and read_molecule("c1cccc1=O") is not None
    assert not is_beyond_repair("CN(=O)=O") and read_molecule("CN(=O)=O") is not None

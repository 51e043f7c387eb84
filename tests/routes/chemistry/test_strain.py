"""Rings that cannot exist."""

import pytest

from weftformer.routes import judge
from weftformer.routes.chemistry.molecules import canonical_smiles, structure
from weftformer.routes.chemistry.strain import impossible_ring

IMPOSSIBLE = {
    "a lactam over the meta positions": "O=C1Cc2cccc(c2)N1",
    "a lactam over the para positions": "O=C1Cc2ccc(cc2)N1",
    "an ether over the para positions": "C1Cc2ccc(cc2)OC1",
    "a twisted amide of 7 atoms": "O=C1C2CCN1CC2",
    "a twisted amide of 8 atoms": "O=C1CC2CCN1CC2",
    "an alkene at the bridgehead of norbornane": "C1=C2CCC(C1)C2",
    "an acid at the bridgehead of norbornene": "OC(=O)C1=C2CCC1CC2",
    "a trans-fused epoxide": "C1CC[C@H]2O[C@@H]2C1",
    "a trans-fused cyclopropane": "OC(=O)[C@H]1[C@@H]2CC[C@@H]12",
    "a trans-fused aziridine": "C1CC[C@H]2N(C)[C@@H]2C1",
    "the acetonide of a trans-cyclopentanediol": "CC1(C)O[C@H]2CCC[C@@H]2O1",
}
POSSIBLE = {
    "oxindole": "O=C1Cc2ccccc2N1", "isoquinuclidone": "O=C1N[C@H]2CC[C@@H]1CC2", "quinuclidine": "C1CN2CCC1CC2",
    "norbornene": "C1=CC2CCC1C2", "tropane": "CN1C2CCC1CCC2", "adamantane": "C1C2CC3CC1CC(C2)C3",
    "a fused lactam": "O=C1CCC2CCCCN12", "bicyclo[3.3.1]nonene": "C1CC2=CCCC(C1)C2", "julolidine": "c1cc2c3c(c1)CCCN3CCC2",
    "the urea of avibactam": "NC(=O)[C@@H]1CC[C@@H]2CN1C(=O)N2O", "acenaphthene": "C1Cc2cccc3c2c1ccc3", "[6]paracyclophane": "C1CCc2ccc(cc2)CCC1",
    "a cis-fused epoxide": "C1CC[C@@H]2O[C@@H]2C1", "a steroid": "C[C@]12CC[C@H]3[C@@H](CCc4cc(O)ccc43)[C@@H]1CC[C@@H]2O",
    "a trans-decalin": "C1CC[C@H]2CCCC[C@@H]2C1", "the acetonide of a trans-cyclohexanediol": "CC1(C)O[C@H]2CCCC[C@@H]2O1",
    "the acetonide of a nucleoside": "CC1(C)O[C@@H]2[C@@H](CO)O[C@@H](n3cnc4c(N)ncnc43)[C@@H]2O1", "carene": "CC1=CC[C@@H]2[C@H](C1)C2(C)C",
    "a barbiturate beside an arene": "O=C1CC(c2ccccc2)C(=O)N1", "camphor": "CC1(C)C2CCC1(C)C(=O)C2",
}  # fmt: skip


@pytest.mark.parametrize("smiles", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_some_rings_cannot_exist(smiles):
    assert impossible_ring(structure(canonical_smiles(smiles)))


@pytest.mark.parametrize("smiles", POSSIBLE.values(), ids=POSSIBLE)
def test_known_rings_can(smiles):
    assert impossible_ring(structure(canonical_smiles(smiles))) is None


def test_a_step_to_or_from_such_a_ring_fails():
    lactam = judge("O=C1Cc2cccc(c2)N1", ["Nc1cccc(CC(=O)O)c1"])
    assert lactam.state == "fails" and "cannot exist" in lactam.reason
    assert judge("Nc1cccc(CC(=O)O)c1", ["O=C1Cc2cccc(c2)N1", "O"]).state == "fails"

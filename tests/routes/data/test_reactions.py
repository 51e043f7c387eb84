import pytest

pytest.importorskip("rdkit")

from rdkit import Chem

from weftformer.routes.data.groups import count_groups
from weftformer.routes.data.reactions import Template, canonical_smiles

AMIDE = Template(
    "test amide",
    forward="[C:1](=[O:2])[OX2H1].[NX3;H2;$(N[CX4]):3]>>[C:1](=[O:2])-[N:3]",
    reverse="[C;$(C[#6]):1](=[O:2])!@-[NX3:3]>>[C:1](=[O:2])O.[N:3]",
    roles=(("acid",), ("primary_amine", "aniline")),
    tolerates=("alcohol",),
    forbids=("ketone",),
)


def mols(*smiles: str) -> tuple[Chem.Mol, ...]:
    return tuple(Chem.MolFromSmiles(text) for text in smiles)


def accepts(role: int, smiles: str) -> bool:
    return AMIDE.accepts(role, count_groups(Chem.MolFromSmiles(smiles)))


def test_run():
    assert AMIDE.run(mols("CC(=O)O", "CCN")) == "CCNC(C)=O"


def test_run_gives_one_product_for_sites_that_symmetry_makes_equal():
    assert AMIDE.run(mols("CC(=O)O", "NCCN")) == "CC(=O)NCCN"


def test_run_refuses_no_product_and_several():
    assert AMIDE.run(mols("CC(=O)OC", "CCN")) is None
    assert AMIDE.run(mols("CC(=O)O", "NCC(C)N")) is None


def test_undo_gives_reactants_in_the_order_of_the_roles():
    assert AMIDE.undo(*mols("CCNC(C)=O")) == [("CC(=O)O", "CCN")]
    assert sorted(AMIDE.undo(*mols("CC(=O)NCC(=O)NC"))) == [("CC(=O)NCC(=O)O", "CN"), ("CC(=O)O", "CNC(=O)CN")]
    assert AMIDE.undo(*mols("O=C1CCCN1")) == []


def test_accepts_one_reacting_site_without_competitors():
    assert accepts(0, "CC(=O)O")
    assert accepts(1, "Nc1ccccc1")
    assert not accepts(1, "CC(=O)O")
    # Two sites of the role, also of different groups of it.
    assert not accepts(0, "O=C(O)CC(=O)O")
    assert not accepts(1, "NCCc1ccc(N)cc1")
    # An unprotected nucleophile or electrophile that the template does not name.
    assert not accepts(0, "O=C(O)CCc1ccc(O)cc1")
    assert not accepts(0, "O=C(O)CCCBr")
    # What it tolerates, what it forbids, and latent groups it says nothing about.
    assert accepts(0, "O=C(O)CCCO")
    assert not accepts(0, "CC(=O)c1ccc(C(=O)O)cc1")
    assert accepts(0, "O=C(O)c1ccc(Br)cc1")


def test_canonical_smiles_is_stable_and_none_for_the_impossible():
    assert canonical_smiles(*mols("OC(C)=O")) == "CC(=O)O"
    assert canonical_smiles(Chem.MolFromSmiles("C(C)(C)(C)(C)C", sanitize=False)) is None


def test_impossible_products_are_silent_and_skipped(capfd):
    bad = Template(
        "five bonds", forward="[C:1][NX3:2]>>[C:1]=[N:2](=O)=O", reverse="[C:1]>>[C:1]", roles=(("aniline",),)
    )
    assert bad.run(mols("CN")) is None
    assert capfd.readouterr().err == ""

import pytest

pytest.importorskip("rdkit")

from rdkit import Chem

from weftformer.routes.data.groups import GROUPS, LATENT_GROUPS, REACTIVE_GROUPS, count_groups, site


def groups(smiles: str) -> dict[str, int]:
    return count_groups(Chem.MolFromSmiles(smiles))


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CC(=O)O", {"acid": 1}),
        ("O=C(O)CC(=O)O", {"acid": 2}),
        ("CC(=O)Cl", {"acid_chloride": 1}),
        ("O=C(Cl)OCc1ccccc1", {"chloroformate": 1}),
        ("CS(=O)(=O)Cl", {"sulfonyl_chloride": 1}),
        ("O=C=Nc1ccccc1", {"isocyanate": 1}),
        ("CC(C)(C)OC(=O)OC(=O)OC(C)(C)C", {"anhydride": 1}),
        ("O=Cc1ccccc1", {"aldehyde": 1}),
        ("BrCc1ccccc1", {"benzyl_bromide": 1}),
        ("BrCCc1ccccc1", {"alkyl_bromide": 1}),
        ("O=[N+]([O-])c1ccc(F)cc1", {"snar_fluoride": 1, "nitro": 1}),
        ("O=[N+]([O-])c1cccc(F)c1", {"nitro": 1}),
        ("N#Cc1ccccc1F", {"snar_fluoride": 1, "nitrile": 1}),
        ("Clc1ncccn1", {"snar_chloride": 1}),
        ("Clc1ccncc1", {}),
        ("Clc1ccnc(Cl)n1", {"snar_chloride": 2}),
        ("O=[N+]([O-])c1ccc(Cl)nc1", {"snar_chloride": 1, "nitro": 1}),
        ("OB(O)c1ccccc1", {"boronic_acid": 1}),
        ("CCOC(=O)CP(=O)(OCC)OCC", {"phosphonate": 1, "ethyl_ester": 1}),
        ("C#CCN", {"terminal_alkyne": 1, "primary_amine": 1}),
        ("CC#Cc1ccccc1", {"alkyne": 1}),
        ("[N-]=[N+]=NCc1ccccc1", {"azide": 1}),
        ("CCN", {"primary_amine": 1}),
        ("NCc1ccccc1", {"benzyl_amine": 1}),
        ("C1CNCCN1", {"ring_amine": 2}),
        ("CNC", {"chain_amine": 1}),
        ("Nc1ccccc1", {"aniline": 1}),
        ("CNc1ccccc1", {"alkyl_aniline": 1}),
        ("CC(=O)NC", {}),
        ("CC(N)=O", {}),
        ("c1c[nH]cn1", {"azole": 1}),
        ("CCO", {"alcohol": 1}),
        ("CO", {"methanol": 1}),
        ("Oc1ccccc1", {"phenol": 1}),
        ("Sc1ccccc1", {"thiol": 1}),
        ("Brc1ccccc1", {"aryl_bromide": 1, "neutral_bromide": 1}),
        ("Brc1ccccn1", {"aryl_bromide": 1}),
        ("O=[N+]([O-])c1ccc(Br)cc1", {"aryl_bromide": 1, "nitro": 1}),
        ("Ic1ccccc1", {"aryl_iodide": 1}),
        ("COC(=O)c1ccccc1", {"methyl_ester": 1}),
        ("CCOC(=O)C", {"ethyl_ester": 1}),
        ("CCOC(=O)/C=C/c1ccccc1", {"ethyl_ester": 1}),
        ("CCOC(=O)c1ccccc1", {"other_ester": 1}),
        ("CC(=O)Oc1ccccc1", {"other_ester": 1}),
        ("CC(C)(C)OC(=O)NCC", {"boc_amine": 1}),
        ("CC(C)(C)OC(=O)N1CCNCC1", {"boc_amine": 1, "ring_amine": 1}),
        ("CC(C)(C)OC(=O)NCc1ccccc1", {"other_boc": 1}),
        ("CC(C)(C)OC(=O)Nc1ccccc1", {"other_boc": 1}),
        ("CC(=O)c1ccccc1", {"ketone": 1}),
        ("CCSc1ccccc1", {"sulfide": 1}),
        ("CNS(C)(=O)=O", {"sulfonamide": 1}),
    ],
)
def test_counts(smiles, expected):
    assert groups(smiles) == expected


def test_every_group_is_one_atom_and_covered_above():
    seen = {name for mark in test_counts.pytestmark for _, expected in mark.args[1] for name in expected}
    assert seen == set(GROUPS)
    assert not set(REACTIVE_GROUPS) & set(LATENT_GROUPS)
    for smarts in GROUPS.values():
        assert Chem.MolFromSmarts(smarts).GetNumAtoms() == 1


def test_site_is_a_mapped_atom_that_matches_any_of_the_groups():
    query = Chem.MolFromSmarts(site("aniline", "primary_amine", map_number=7))
    assert query.GetNumAtoms() == 1
    assert query.GetAtomWithIdx(0).GetAtomMapNum() == 7
    matched = [
        smiles for smiles in ("CCN", "Nc1ccccc1", "NCc1ccccc1") if Chem.MolFromSmiles(smiles).HasSubstructMatch(query)
    ]
    assert matched == ["CCN", "Nc1ccccc1"]

"""Reading molecules."""

import pytest

from weftformer.routes.molecules import canonical_smiles, is_beyond_repair, missing_atoms, read_molecule


def test_a_text_that_would_end_the_process_is_refused():
    assert canonical_smiles("C" * 2000) == "C" * 2000
    # RDKit 2026.9 reads 20,000 atoms in a chain, and writing them is a segmentation fault
    with pytest.raises(ValueError, match="has 20000 characters: at most 2000"):
        canonical_smiles("C" * 20_000)


@pytest.mark.parametrize(
    ("smiles", "said"),
    [
        ("CCO\nCCN", r"'CCO\nCCN' is not a molecule that RDKit can read: it contains '\n'."),
        ("CCO CCN", "it contains ' '"),
        ("CCO\u200f", r"it contains '\u200f'"),
        ("C\x00O", r"it contains '\x00'"),
        ("[999999999C]", "the number in '[999999999' is too large"),
        ("C[C+999]", "the number in '[C+999' is too large"),
        ("[CH260]", "the number in '[CH260' is too large"),
        ("", "'' is not a molecule that RDKit can read."),
    ],
)
def test_ambiguous_smiles_are_refused(smiles, said):
    with pytest.raises(ValueError) as error:
        canonical_smiles(smiles)
    assert said in str(error.value)


def test_isotopes_rings_and_blanks_around_are_read():
    assert [canonical_smiles(smiles) for smiles in (" CCO\n", "[238U]", "[2H]O[2H]", "C-%12CCC-%12", "[CH3:1234]C")] == [
        "CCO", "[238U]", "[2H]O[2H]", "C1CCC1", "C[CH3:1234]",
    ]  # fmt: skip


def test_hydrogens_charges_and_labels_do_not_count():
    for product, reactants in (("[2H]CO", ["CO"]), ("CC(=O)[O-]", ["CC(=O)O"]), ("[13CH3]O", ["CO"])):
        assert missing_atoms(read_molecule(product).atoms, [read_molecule(one) for one in reactants]) == {}
    # Cl is no carbon, nor is Sc a sulfur
    assert missing_atoms(read_molecule("CCl").atoms, [read_molecule("CC")]) == {"Cl": 1}
    assert missing_atoms(read_molecule("CS").atoms, [read_molecule("[Sc]"), read_molecule("C")]) == {"S": 1}
    assert dict(read_molecule("C[N+](C)(C)C.[Br-]").atoms) == {"C": 4, "N": 1, "Br": 1}


def test_is_beyond_repair():
    # RDKit stumbles over this number of hydrogens: nothing is known of what follows
    assert read_molecule("C[cH111111115]N") is None and not is_beyond_repair("C[cH111111115]N")
    assert is_beyond_repair("CC(C)(C)(C)C") and not is_beyond_repair("c1cccc1")
    assert read_molecule("c1cccc1") is None and read_molecule("c1cccc1=O") is not None
    assert not is_beyond_repair("CN(=O)=O") and read_molecule("CN(=O)=O") is not None

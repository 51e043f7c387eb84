"""Reading molecules."""

import pytest
from rdkit import Chem

from weftformer.routes import Stock
from weftformer.routes.chemistry.molecules import (
    canonical_smiles,
    is_beyond_repair,
    largest_organic_part,
    missing_atoms,
    read_molecule,
)
from weftformer.routes.planning.requests import one_target


def test_a_text_that_would_end_the_process_is_refused():
    assert canonical_smiles("C" * 2000) == "C" * 2000
    # RDKit 2026.9 reads 20,000 atoms in a chain, and writing them is a segmentation fault
    with pytest.raises(ValueError, match="has 20000 characters: at most 2000"):
        canonical_smiles("C" * 20_000)


@pytest.mark.parametrize(
    ("smiles", "said"),
    [
        ("CCO\nCCN", r"'CCO\nCCN' is not a molecule that RDKit can read: it contains '\n'."),
        ("CCO CCO ethanol", "it contains ' '"),
        ("CCO\u200f", r"it contains '\u200f'"),
        ("C\x00O", r"it contains '\x00'"),
        ("[999999999C]", "the number in '[999999999' is too large"),
        ("C[C+999]", "the number in '[C+999' is too large"),
        ("[CH260]", "the number in '[CH260' is too large"),
        ("", "'' is not a molecule that RDKit can read."),
        *((smiles, "R group") for smiles in ("*C", "[R1]C", "RC=O", "[X]C", "C* |$;_R1$|")),
        ("COCCO |Sg:n:1,2,3:n:ht|", "the repeating unit of a polymer"),
        ("RZVAJINKPMORJF-UHFFFAOYSA-N", "is an InChIKey"),
        ("InChI=1S/CH4O/c1", "its InChI is not valid"),
        ("[Na+]~[N-]=[N+]=[N-]", "fragment bonds `~`"),
        *((smiles, "bond") for smiles in ("C~C", "c1ccn(->[Zn])cc1", "CC |C:0.0|")),
    ],
)
def test_ambiguous_smiles_are_refused(smiles, said):
    with pytest.raises(ValueError) as error:
        canonical_smiles(smiles)
    assert said in str(error.value)


def test_isotopes_rings_and_blanks_around_are_read():
    assert [canonical_smiles(smiles) for smiles in (" CCO\n", "[238U]", "[2H]O[2H]", "C-%12CCC-%12", "[CH3:1234]C")] == [
        "CCO", "[238U]", "[2H]O[2H]", "C1CCC1", "CC",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "spellings",
    [
        ("CS(=O)c1ccccc1", "C[S+]([O-])c1ccccc1", "C S ( = O ) c 1 c c c c c 1", "[CH3:1][S:2](=[O:3])c1ccccc1"),
        ("C[S@](=O)c1ccccc1", "C[S@+]([O-])c1ccccc1"),
        ("Cn1ccccc1=O", "C[n+]1ccccc1[O-]"),
        ("[Br-].[CH3][Mg+]", "C[Mg]Br", "C[Mg+].[Br-]", "[CH3-].[Mg+2].[Br-]"),
        ("[CH3][Zn][CH3]", "C[Zn]C", "[Zn+2].[CH3-].[CH3-]"),
        ("C[CH](C)[Mg+].[Cl-].[Cl-].[Li+]", "CC(C)[Mg]Cl.[Li]Cl", "[Li+].C[CH-]C.[Cl-].[Cl-].[Mg+2]"),
        ("[Li][c]1ccccc1", "[Li]c1ccccc1", "[Li+].[c-]1ccccc1"),
        ("C[O-].[Na+]", "CO[Na]"),
        ("O=C([O-])[O-].[K+].[K+]", "[K]OC(=O)O[K]"),
        ("[C-]#N.[Cu+]", "[Cu]C#N"),
        ("[C-]#C.[Na+]", "[Na]C#C"),
        ("[H-].[Na+]", "[NaH]"),
        ("[Cl-].[Cl-].[Zn+2]", "Cl[Zn]Cl"),
        # these stay as they are
        *((smiles,) for smiles in ("[CH2-][Pd+2]", "[CH2-][Zn+2][CH3]")),
        *((smiles,) for smiles in ("[CH3][Mg+]", "[AlH4-].[Li+]", "[O]=[Os](=[O])(=[O])=[O]", "[NH3+]CC(=O)[O-]")),
        *((smiles,) for smiles in ("[Na+].c1cc[cH-]c1", "CCC[CH2][Sn]([Cl])([CH2]CCC)[CH2]CCC")),
        # a racemate, one of two enantiomers, and a known enantiomer
        ("CC(N)c1ccccc1", "C[C@H](N)c1ccccc1 |&1:1,r|", "C[C@H](N)c1ccccc1 |o1:1| EN300-1", "C[C@H](N)c1ccccc1 |r|"),
        ("C[C@H](N)c1ccccc1", "C[C@H](N)c1ccccc1 |a:1|", "C[C@H](N)c1ccccc1 |$foo;;$|"),
        # the tautomer that chemists draw
        ("CC(=O)Nc1ccc(O)cc1", "InChI=1S/C8H9NO2/c1-6(10)9-7-2-4-8(11)5-3-7/h2-5,11H,1H3,(H,9,10)"),
        ("C[C@H](N)C(=O)O", "InChI=1S/C3H7NO2/c1-2(4)3(5)6/h2H,4H2,1H3,(H,5,6)/t2-/m0/s1"),
        ("CC(O)[C@H](C)N", "C[C@H](N)[C@H](O)C |a:1,o1:3,r|"),
    ],
)
def test_a_molecule_has_one_normal_form(spellings):
    assert {canonical_smiles(spelling) for spelling in spellings} == {spellings[0]}
    assert len({read_molecule(spelling).formula for spelling in spellings}) == 1
    assert all(spelling in Stock([other], is_strict=True) for spelling in spellings for other in spellings)


def test_axial_chirality_is_reported(caplog):
    binol = "Oc1ccc2ccccc2c1-c1c(O)ccc2ccccc12"
    assert canonical_smiles(f"{binol} |wU:10.10|") == binol and "axial chirality is not read" in caplog.text
    smiles, remarks = one_target(f"{binol} |wU:10.11|", "error")
    assert smiles == binol and "atropisomers" in remarks[0] and one_target(binol, "error")[1] == ()


def test_atoms_in_brackets_without_their_hydrogens_are_reported():
    assert "unpaired electrons (C)" in one_target("c1c[nH]c[c:1]1", "error")[1][0]
    assert one_target("c1c[nH]c[cH:1]1", "error")[1] == ()


@pytest.mark.parametrize(
    ("salt", "drug"),
    [
        ("CN1CCCN=C1/C=C/c1cccs1.O=C(O)c1cc2ccccc2c(Cc2c(O)c(C(=O)O)cc3ccccc23)c1O", "CN1CCCN=C1/C=C/c1cccs1"),
        ("C[NH+](C)C.O=C([O-])c1ccc2ccccc2c1O", "CN(C)C"),
        ("NCCCCC(N)C(=O)O.CC(Cc1ccccc1)C(=O)O", "CC(Cc1ccccc1)C(=O)O"),
        ("NCCCC[C@H](N)C(=O)O.OC(=O)CC(O)(CC(=O)O)C(=O)O", "NCCCC[C@H](N)C(=O)O"),  # both are counter-ions
    ],
)
def test_the_drug_of_a_salt_is_not_its_counter_ion(salt, drug):
    assert largest_organic_part(salt) == drug


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


@pytest.mark.parametrize(
    ("marked", "bare"),
    [
        ("CN1[C@@H]2CC[C@H]1CC(=O)C2", "CN1C2CCC1CC(=O)C2"),
        ("C1C[C@H]2CNC[C@@H]1O2", "C1CC2CNCC1O2"),
        ("O=C1N[C@H]2CC[C@@H]1CC2", "O=C1NC2CCC1CC2"),
        ("C[C@]12CC[C@H](CC1)O2", "CC12CCC(CC1)O2"),
        ("Cl.C1C[C@H]2CC[C@@H](C1)N2", "Cl.C1CC2CCC(C1)N2"),
    ],
    ids=["tropinone", "an oxazabicyclooctane", "a lactam", "a quaternary bridgehead", "a salt"],
)
def test_marks_that_a_bridge_makes_superfluous_are_left_out(marked, bare):
    assert canonical_smiles(marked) == canonical_smiles(bare)


@pytest.mark.parametrize(
    "smiles",
    [
        "CN1[C@@H]2CC[C@H]1C[C@H](O)C2", "O[C@H]1C[C@@H]2CC[C@H]1C2", "C1CC[C@H]2CCCC[C@H]2C1",
        "CC1(C)[C@@H]2CC[C@@]1(C)C(=O)C2", "C1CC[C@@H]2O[C@@H]2C1",
    ],
    ids=["tropine", "norborneol", "decalin", "camphor", "an epoxide"],
)  # fmt: skip
def test_marks_that_tell_stereoisomers_apart_stay(smiles):
    assert canonical_smiles(smiles) == Chem.CanonSmiles(smiles)

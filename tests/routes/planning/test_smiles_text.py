"""What RDKit parses is let through, and nothing else ends."""

import itertools
import random

import pytest

pytest.importorskip("rdkit")

from rdkit import Chem, rdBase

from weftformer.routes import sample_routes
from weftformer.routes.planning.smiles_text import NOTHING, advance_smiles, kind_allows

# The characters of the route vocabulary, and others that are SMILES.
CHARACTERS = "CO(=)c12[N+]-BrlI#no3sSFHP@Li5/\\Mg67uKeZap" + "%.:~$<>*089"


def ends(text):
    smiles = NOTHING
    for character in text:
        after = advance_smiles(smiles, character)
        assert kind_allows(smiles.kind, character) == (after is not None), (text, character)
        if after is None:
            return False
        smiles = after
    return smiles.is_closed


def parses(text):
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text, sanitize=False)
    return molecule is not None and molecule.GetNumAtoms() > 0


def test_all_short_texts():
    for length in (1, 2):
        for characters in itertools.product(sorted(set(CHARACTERS)), repeat=length):
            text = "".join(characters)
            assert ends(text) == parses(text), text


def test_pieces_of_molecules_with_mistakes():
    rng, good = random.Random(0), 0
    molecules = [leaf for route in sample_routes(200) for leaf in route.leaves()]
    for _ in range(4000):
        whole = Chem.MolToSmiles(Chem.MolFromSmiles(rng.choice(molecules)), doRandom=False)
        start = rng.randrange(len(whole))
        text = list(whole[start : start + rng.randint(2, 14)])
        for _ in range(rng.randint(0, 2)):
            text[rng.randrange(len(text))] = rng.choice(CHARACTERS)
        good += parses("".join(text))
        assert ends("".join(text)) == parses("".join(text)), "".join(text)
    assert good > 300


@pytest.mark.parametrize(
    "text",
    [
        "[nH]1cccc1", "C[C@@H](N)C(=O)O", "F/C=C/F", "[13CH3]O", "[C-]#[O+]", "C1CC1.[Na+]", "C%12CC%12", "C[N+]1(C)CC1",
        "O=S(=O)(c1ccccc1)N(C)C", "[Si](C)(C)(C)Cl", "[Cu]", "c1cc[se]c1", "C(C)1CC1", "C12CC1C2", "CC(C.C)C",
    ],
)  # fmt: skip
def test_molecules(text):
    assert parses(text) and ends(text)


@pytest.mark.parametrize(
    "text",
    ["C)", "C(C))", "C()", "(", "=", "C==", "C11", "C1C1", "C12CC12", "[CC", "[Xx", "Cr", "[C@@@", ".", "C(=)"],
)
def test_a_text_that_nothing_mends_goes_no_further(text):
    smiles = NOTHING
    for character in text:
        assert smiles is not None, text
        smiles = advance_smiles(smiles, character)
    assert smiles is None

"""Reading molecules."""

import pytest

pytest.importorskip("rdkit")

from weftformer.routes.molecules import canonical_smiles


def test_a_text_that_would_end_the_process_is_refused():
    assert canonical_smiles("C" * 2000) == "C" * 2000
    # RDKit 2026.9 reads 20,000 atoms in a chain, and writing them is a segmentation fault
    with pytest.raises(ValueError, match="has 20000 characters, and a molecule has at most 2000"):
        canonical_smiles("C" * 20_000)

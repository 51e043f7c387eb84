import pytest

pytest.importorskip("rdkit")

from rdkit import Chem

from weftformer.routes.data import building_blocks
from weftformer.routes.data.building_blocks import load_building_blocks
from weftformer.routes.data.disconnections import Disconnector
from weftformer.routes.data.groups import count_groups


def test_blocks_are_many_small_and_canonical():
    blocks = load_building_blocks()
    assert len(blocks) >= 300
    for smiles in blocks:
        assert Chem.CanonSmiles(smiles) == smiles
        assert "." not in smiles
        assert len(smiles) <= 35
    assert "CC(=O)O" in blocks


def test_every_block_has_the_group_it_is_listed_under():
    for smiles, group in load_building_blocks().items():
        assert group in count_groups(Chem.MolFromSmiles(smiles)), smiles


def test_no_line_is_listed_twice():
    assert len(building_blocks._FILE.read_text().splitlines()) == len(load_building_blocks())


def test_every_block_can_react():
    from weftformer.routes.data.templates import TEMPLATES

    retro = Disconnector()
    for smiles in load_building_blocks():
        counts = retro.molecule(smiles)[1]
        assert any(t.accepts(role, counts) for t in TEMPLATES for role in range(len(t.roles))), smiles

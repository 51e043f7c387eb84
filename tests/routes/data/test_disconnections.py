import pytest

pytest.importorskip("rdkit")

from weftformer.routes.data.disconnections import Disconnector
from weftformer.routes.tree import Route


@pytest.fixture(scope="module")
def retro() -> Disconnector:
    return Disconnector()


def names(retro: Disconnector, smiles: str) -> list[str]:
    return [step.template.name for step in retro.last_steps(smiles)]


def test_building_blocks_are_leaves(retro):
    assert retro.route("CC(=O)O") == Route("CC(=O)O")


def test_one_step(retro):
    assert retro.route("CC(=O)NCc1ccccc1") == Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1")))


def test_purchased_reactants_must_be_building_blocks(retro):
    # CCCCCCCCS(=O)(=O)Cl is not sold, and no template makes sulfonyl chlorides.
    assert retro.last_steps("CCCCCCCCS(=O)(=O)NCc1ccccc1") == ()
    assert retro.route("CCCCCCCCS(=O)(=O)NCc1ccccc1") is None


def test_priority_undoes_free_groups_first_and_handles_that_wait_next(retro):
    # A free aniline beside an amide: reduced last. The nitro compound is coupled before.
    assert names(retro, "Nc1ccc(C(=O)NCc2ccccc2)cc1") == ["nitro reduction"]
    # A biaryl amide: the bromide waited through the amide coupling.
    route = retro.route("O=C(NCc1ccccc1)c1ccc(-c2ccccc2)cc1")
    assert route is not None
    assert route.format_tree() == (
        "O=C(NCc1ccccc1)c1ccc(-c2ccccc2)cc1\n"
        "├── O=C(NCc1ccccc1)c1ccc(Br)cc1\n"
        "│   ├── • O=C(O)c1ccc(Br)cc1\n"
        "│   └── • NCc1ccccc1\n"
        "└── • OB(O)c1ccccc1\n"
        "2 reactions, longest path 2; • 3 starting materials"
    )


def test_undecided_where_a_template_fits_twice(retro):
    # Two amides of one diamine: either end can have been coupled last, after the removal of Boc.
    smiles = "CC(=O)NCCNC(=O)c1ccccc1"
    assert len(retro.last_steps(smiles)) == 2
    assert retro.route(smiles) is None


def test_ethyl_esters_do_not_lead_in_circles(retro):
    assert retro.route("CCOC(=O)CCCCCCCC") is None
    assert retro.route("CCCCCCCCC(=O)O") is None


def test_wrong_smiles(retro):
    with pytest.raises(ValueError, match="RDKit cannot read the SMILES 'C1CC'"):
        retro.route("C1CC")


def test_own_building_blocks():
    assert Disconnector({"CC(=O)O", "CCN"}).route("CCNC(C)=O") == Route("CCNC(C)=O", (Route("CC(=O)O"), Route("CCN")))
    assert Disconnector({"CC(=O)O"}).route("CCNC(C)=O") is None

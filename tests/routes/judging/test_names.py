import pytest

pytest.importorskip("rdkit")
pytest.importorskip("rdchiral")

from weftformer.routes import judge
from weftformer.routes.judging.names import _reactions, common_name


@pytest.mark.parametrize(
    ("product", "reactants", "name"),
    [
        ("CC(=O)NCc1ccccc1", ["NCc1ccccc1", "OC(C)=O"], "amide coupling"),  # in any order and spelling
        ("CC(=O)NCc1ccccc1", ["CC(=O)Cl", "NCc1ccccc1"], "amide from an acid chloride"),
        ("NCc1ccccc1", ["N#Cc1ccccc1"], "nitrile reduction"),
        ("Nc1ccccc1C", ["O=[N+]([O-])c1ccccc1C"], "nitro reduction"),
        ("c1ccc(-c2ccccc2)cc1", ["Brc1ccccc1", "OB(O)c1ccccc1"], "Suzuki coupling"),
        ("COC(=O)c1ccccc1", ["O=C(O)c1ccccc1", "CO"], "esterification"),
        ("O=C(O)c1ccccc1C", ["COC(=O)c1ccccc1C"], "methyl ester hydrolysis"),
        ("OCc1ccccc1C", ["O=C(O)c1ccccc1C"], "acid reduction"),  # and not the removal of a benzoyl group
        ("OCc1ccccc1C", ["COC(=O)c1ccccc1C"], "ester reduction"),
        ("OCc1ccccc1C", ["O=Cc1ccccc1C"], "aldehyde reduction"),
        ("C1CCNCC1", ["CC(C)(C)OC(=O)N1CCCCC1"], "Boc removal"),
        ("Oc1ccccc1C", ["COc1ccccc1C"], "demethylation of an aryl ether"),
        ("CCOc1ccccc1", ["CCBr", "Oc1ccccc1"], "Williamson ether formation"),
        # half of a reaction, and what is no molecule
        ("CC(=O)NCc1ccccc1", ["NCc1ccccc1"], None),
        ("C1CC", ["C"], None),
        # the configuration counts
        ("C[C@H](NC(C)=O)C(C)C", ["CC(=O)O", "C[C@H](N)C(C)C"], "amide coupling"),
        ("C[C@H](NC(C)=O)C(C)C", ["CC(=O)O", "C[C@@H](N)C(C)C"], None),
    ],
)
def test_the_shipped_library_names_steps(product, reactants, name):
    assert judge(product, reactants).title == name


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("[C:2]-[NH2;D1;+0:1]>>C-C(-C)(-C)-O-C(=O)-[NH;D2;+0:1]-[C:2]", "Boc removal"),
        ("[NH2;D1;+0:1]-[c:2]>>O=[N+;H0;D3:1](-[O-])-[c:2]", "nitro reduction"),
        # the same reactants, and a leaving group beside a nitrogen of the ring or not
        (
            "[C:5]-[NH;D2;+0:4]-[c;H0;D3;+0:1](:[#7;a:2]):[c:3]>>Cl-[c;H0;D3;+0:1](:[#7;a:2]):[c:3].[C:5]-[NH2;D1;+0:4]",
            "SNAr of a heteroaryl chloride",
        ),
        (
            "[C:5]-[NH;D2;+0:4]-[c;H0;D3;+0:1](:[c:2]):[c:3]>>Cl-[c;H0;D3;+0:1](:[c:2]):[c:3].[C:5]-[NH2;D1;+0:4]",
            "Buchwald amination",
        ),
        # a nitro group is reduced and a bond is made: no name covers both
        ("[C:3]-[NH;D2;+0:1]-[c:2]>>O=[N+;H0;D3:1](-[O-])-[c:2].Br-[C:3]", None),
        # a ketone is reduced, and no carbon is added, though the template has one
        ("[C:2]-[CH;D3;+0:1](-[OH;D1;+0:3])-[C:4]>>[C:2]-[C;H0;D3;+0:1](=[O;H0;D1;+0:3])-[C:4]", "ketone reduction"),
    ],
)
def test_a_template_has_the_first_name_that_covers_its_changes(template, name):
    assert common_name(template) == name


def test_every_name_can_be_read():
    assert len(_reactions()) > 100 and all(used and made for _, used, made in _reactions())

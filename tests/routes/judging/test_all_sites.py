"""A transformation at all its sites at once: where it takes place, and where it does not."""

import pytest

from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.judging.all_sites import at_all_sites
from weftformer.routes.judging.templates import outcomes

ACETATE = "[C:1]-[OH;D1;+0:2]>>CC(=O)-[O;H0;D2;+0:2]-[C:1]"
AMIDE = "[C:1]-[C;H0;D3;+0:2](=[O:3])-[NH;D2;+0:4]-[C:5]>>[C:1]-[C;H0;D3;+0:2](=[O:3])-[OH].[NH2;D1;+0:4]-[C:5]"
METHYL = "[N;+0:1]-[CH3;D1;+0:2]>>[N;+0:1].I-[CH3;D1;+0:2]"
ETHER = "[C:1]-[O;H0;D2;+0:2]-[C:3]>>[C:1]-[OH;D1;+0:2].[OH]-[C:3]"
CHLORIDE = "[c:1]:[cH;D2;+0:2]:[c:3]>>Cl-[c;H0;D3;+0:2](:[c:1]):[c:3]"


@pytest.mark.parametrize(
    ("template", "product", "reactants"),
    [
        (ACETATE, "OCC(C)CO", {(2, "CC(=O)OCC(C)COC(C)=O")}),
        (ACETATE, "OCCC(C)CO", {(2, "CC(=O)OCCC(C)COC(C)=O")}),
        (ACETATE, "CCO", set()),
        (ACETATE, "OCC(CO)(CO)COCC(CO)(CO)COCC(CO)(CO)COCC(CO)(CO)CO", set()),  # ten sites
        (AMIDE, "CC(=O)NCCNC(C)=O", {(2, "CC(=O)O.CC(=O)O.NCCN")}),
        (AMIDE, "CCNC(=O)CNC(=O)CNC(=O)CN", set()),
        # each residue needs the one before it
        (AMIDE, "NCC(=O)NCC(=O)NCCNC(=O)CNC(=O)CN", {(2, "NCC(=O)NCC(=O)O.NCC(=O)NCC(=O)O.NCCN")}),
        (ETHER, "OCCOCCOCCO", set()),  # an oligomer of one molecule
        (METHYL, "CN(C)CC1CCCCC1", set()),  # two methyl groups of one atom are no two sites
        (CHLORIDE, "Cc1ccc(C)cc1", set()),  # each C-H would be a site
    ],
)
def test_all_sites_change_at_once(template, product, reactants):
    product = canonical_smiles(product)
    found = at_all_sites(template, product, outcomes(template, product))
    assert {(one.num_sites, one.reactants) for one in found} == reactants

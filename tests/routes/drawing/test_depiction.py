import math
import re

import pytest
from rdkit import Chem

from weftformer.routes import Route
from weftformer.routes.drawing import depiction as module
from weftformer.routes.drawing.depiction import depict, depict_route

ACID = Route(
    "COc1ccc(-n2nccn2)c(C(=O)N2CCOCC2)c1",
    (Route("COc1ccc(-n2nccn2)c(C(=O)O)c1", (Route("COc1ccc(I)c(C(=O)O)c1"), Route("c1cn[nH]n1"))), Route("C1COCCN1")),
)
SHARED = "COc1cccc(C(=O)[O,N])c1"


@pytest.fixture(autouse=True)
def _forget():
    module._common_part.cache_clear()


def points(molecule: Chem.Mol, smarts: str) -> list[tuple[float, float]]:
    match = molecule.GetSubstructMatch(Chem.MolFromSmarts(smarts))
    assert match
    return [tuple(molecule.GetConformer().GetPositions()[i][:2]) for i in match]


def spread(a: Chem.Mol, b: Chem.Mol, smarts: str) -> float:
    """How far from a mere shift the way from one drawing's atoms to the other's is."""
    ways = [(x - u, y - v) for (x, y), (u, v) in zip(points(a, smarts), points(b, smarts), strict=True)]
    return max(math.dist(way, ways[0]) for way in ways)


def test_reactants_stand_as_in_their_product():
    target, acid, iodide, triazole, morpholine = (drawn.molecule for drawn in depict_route(ACID))
    assert spread(target, acid, SHARED) < 1e-3
    assert spread(acid, iodide, SHARED) < 1e-3 and spread(target, iodide, SHARED) < 1e-3
    # by the nitrogen that is bound in the product, and has the hydrogen before
    assert math.dist(points(acid, "[n;$(n-c)]")[0], points(triazole, "[nH]")[0]) < 1e-3
    assert spread(target, morpholine, "C1COCCN1") < 1e-3


@pytest.mark.parametrize("smiles", ["C1CC", "c1cccc1", "N(C)(C)(C)(C)C", "xx<>%", "C" * 300])
def test_undrawable_molecules_are_text(smiles):
    drawn = depict(smiles)
    assert drawn.molecule is None and drawn.svg() == ""
    assert drawn.lines[0] == smiles[:26] and len(drawn.lines) <= 5
    assert drawn.lines[-1].endswith("…") == (len(smiles) > 130)


def test_the_letter_of_iodine_has_serifs():
    strokes = re.findall(r'stroke="#6B21A8"[^>]* d="([^"]*)"', depict("Ic1ccccc1I").svg())
    lines = re.findall(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", "".join(strokes))
    flat = [line for line in lines if line[1] == line[3]]
    assert len(flat) == 4 and all(float(right) - float(left) > 4 for left, _, right, _ in flat)


@pytest.mark.parametrize(
    ("product", "reactant"), [("O=C(O)/C=C/C(=O)O", r"O=C(O)/C=C\C(=O)O"), (r"CNC(=O)/C=C\C", "C/C=C/C(=O)O")]
)
def test_a_double_bond_is_drawn_as_it_is(product, reactant):
    for drawn in depict_route(Route(product, (Route(reactant),))):
        seen = Chem.MolFromMolBlock(Chem.MolToMolBlock(drawn.molecule))  # which has the coordinates alone
        if "/" in drawn.smiles:
            assert Chem.MolToSmiles(seen) == Chem.CanonSmiles(drawn.smiles)

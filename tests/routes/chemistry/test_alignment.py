"""Texts in which what does not react stands in product and reactant alike."""

import random

from weftformer.routes import Route
from weftformer.routes.chemistry.alignment import aligned_route, aligned_routes
from weftformer.routes.chemistry.molecules import canonical_route

AMIDE = Route("CC(=O)Nc1ccc(-c2ccccc2)cc1", (Route("CC(=O)Nc1ccc(Br)cc1", (Route("CC(=O)O"), Route("Nc1ccc(Br)cc1"))),
              Route("OB(O)c1ccccc1")))  # fmt: skip


def same(text: Route, route: Route) -> bool:
    return canonical_route(text).canonical() == route.canonical()


def test_unchanged_part_is_written_alike():
    text = aligned_route(AMIDE, "c1(-c2ccccc2)ccc(NC(C)=O)cc1")
    assert text.to_string() == (
        "{'smiles':'c1(-c2ccccc2)ccc(NC(C)=O)cc1','children':["
        "{'smiles':'OB(O)c1ccccc1'},"
        "{'smiles':'c1(Br)ccc(NC(C)=O)cc1','children':[{'smiles':'c1(Br)ccc(N)cc1'},{'smiles':'OC(C)=O'}]}]}"
    )


def test_a_piece_is_supplied_once():
    """The nitro group is nitric acid's where the arene has no other; the second ring is not looked for in the first."""
    nitro = aligned_route(
        Route("O=[N+]([O-])c1ccccc1C", (Route("O=[N+]([O-])O"), Route("Cc1ccccc1"))), "c1(C)ccccc1[N+](=O)[O-]"
    )
    assert [child.smiles for child in nitro.children] == ["c1(C)ccccc1", "O[N+](=O)[O-]"]
    second = Route("O=[N+]([O-])c1ccccc1C=O", (Route("O=[N+]([O-])c1ccccc1CO"), Route("O=[N+]([O-])O")))
    # of a reagent nothing is in the product: it stands last, as RDKit writes it
    for text in aligned_routes(canonical_route(second), 20, random.Random(0)):
        assert text.children[-1] == Route("O=[N+]([O-])O")


def test_the_first_text_is_that_of_the_canonical_target_and_all_are_distinct():
    texts = aligned_routes(AMIDE, 8, random.Random(3))
    assert texts[0].smiles == AMIDE.smiles and len({text.smiles for text in texts}) == 8
    assert all(same(text, AMIDE) for text in texts)
    assert aligned_routes(AMIDE, 8, random.Random(3)) == texts != aligned_routes(AMIDE, 8, random.Random(4))
    # methane can begin at one atom only, ethanol at three
    assert len(aligned_routes(Route("C", (Route("CO"),)), 8, random.Random(0))) == 1
    assert len(aligned_routes(Route("CCO", (Route("CC=O"),)), 8, random.Random(0))) == 3


def test_reactants_stand_in_the_order_of_the_product():
    ether = Route("CCCOCc1ccccc1", (Route("BrCc1ccccc1"), Route("CCCO")))
    assert [child.smiles for child in aligned_route(ether, "CCCOCc1ccccc1").children] == ["CCCO", "BrCc1ccccc1"]
    turned = aligned_route(ether, "c1ccccc1COCCC")
    assert [child.smiles for child in turned.children] == ["c1ccccc1CBr", "OCCC"]

import random

import pytest

from weftformer.routes.tree import Route, smiles_and_name

from .trees import made

AMIDE = Route(
    "CC(=O)Nc1ccc(-c2ccccc2)cc1",
    (Route("CC(=O)Nc1ccc(Br)cc1", (Route("CC(=O)O"), Route("Nc1ccc(Br)cc1"))), Route("OB(O)c1ccccc1")),
)
AMIDE_TEXT = (
    "{'smiles':'CC(=O)Nc1ccc(-c2ccccc2)cc1','children':["
    "{'smiles':'CC(=O)Nc1ccc(Br)cc1','children':[{'smiles':'CC(=O)O'},{'smiles':'Nc1ccc(Br)cc1'}]},"
    "{'smiles':'OB(O)c1ccccc1'}]}"
)


def random_route(rng: random.Random, depth: int) -> Route:
    smiles = "".join(rng.choice("CNO=()\\/[]@+123") for _ in range(rng.randint(1, 6)))
    count = rng.randint(0, 3) if depth else 0
    return Route(smiles, tuple(random_route(rng, depth - 1) for _ in range(count)))


def test_counts():
    assert (AMIDE.depth, AMIDE.num_reactions) == (2, 2)
    assert AMIDE.leaves() == ["CC(=O)O", "Nc1ccc(Br)cc1", "OB(O)c1ccccc1"]
    assert AMIDE.molecules() == [AMIDE.smiles, "CC(=O)Nc1ccc(Br)cc1", *AMIDE.leaves()]
    bush = made("CCCC", "O", made("CCC", made("CC", "C"), made("CC", "C")))
    assert (bush.depth, bush.num_reactions) == (3, 4)
    leaf = Route("C")
    assert (leaf.depth, leaf.num_reactions, leaf.leaves(), leaf.molecules()) == (0, 0, ["C"], ["C"])


def test_sub_routes_are_those_to_every_molecule_that_is_made():
    assert AMIDE.sub_routes() == [AMIDE, AMIDE.children[0]]
    ethane = made("CC", "C")
    assert made("CCCC", ethane, "O", made("CCC", ethane)).sub_routes()[1:] == [ethane, made("CCC", ethane)]
    assert Route("C").sub_routes() == []


def test_to_string_doubles_backslashes_and_from_string_undoes_it():
    assert AMIDE.to_string() == AMIDE_TEXT
    route = Route("C/C=C\\C")
    assert route.to_string() == r"{'smiles':'C/C=C\\C'}"
    assert Route.from_string(r"{'smiles':'C/C=C\\C'}") == route


def test_equality_minds_the_order_and_canonical_does_not():
    turned = Route(AMIDE.smiles, (AMIDE.children[1], AMIDE.children[0].shuffled(random.Random(3))))
    assert turned != AMIDE
    assert turned.canonical() == AMIDE.canonical()
    assert hash(turned.canonical()) == hash(AMIDE.canonical())
    # the number of times a molecule is used counts, and its place in the tree
    assert made("C", "N", "N").canonical() != made("C", "N").canonical()
    assert made("C", made("N", "O"), "F").canonical() != made("C", "N", made("F", "O")).canonical()


SECOND = r"^children\[1\].smiles: "


def deep(levels: int) -> Route:
    return made("C", deep(levels - 1)) if levels else Route("C")


def test_depth_is_bounded():
    route = deep(64)
    assert Route.from_dict(route.to_dict()) == Route.from_string(route.to_string()) == route


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (Route.from_dict, [], "^route: "),
        (Route.from_dict, {"smiles": "C", "children": {}}, "^children: "),
        (Route.from_dict, {"smiles": "C", "children": [{"smiles": "C"}, {"smiles": 3}]}, SECOND),
        (Route.from_dict, {"smiles": "C", "children": [{"smiles": "C"}, {"children": []}]}, SECOND),
        (Route.from_dict, {"smiles": "C", "children": [deep(64).to_dict()]}, "deeper"),
        (Route.from_string, f"{{'smiles':'C','children':[{deep(64).to_string()}]}}", "deeper"),
        *((Route.from_string, text, None) for text in (
            "", "{'smiles':''}", "{'smiles':'C'} ", '{"smiles":"C"}', "{'smiles':'C','children':[]}",
            "{'smiles':'C','children':[{'smiles':'C'},]}", r"{'smiles':'CC/C=C\C'}",
            "{'smiles':'C','children':[" * 700,
        )),
        *((Route, smiles, "SMILES") for smiles in ("", "C C", "C'C", 'C"', "C{", "C,C", "Cé", "C\n", None, 3)),
    ],
)  # fmt: skip
def test_what_is_no_route_is_refused_with_its_place(read, data, message):
    with pytest.raises(ValueError, match=message):
        read(data)


def test_from_string_round_trip_on_random_trees():
    rng = random.Random(0)
    for _ in range(300):
        route = random_route(rng, depth=4)
        assert Route.from_string(route.to_string()) == route
        assert Route.from_dict(route.to_dict() | {"in_stock": True}) == route


def test_shuffled_keeps_the_route_and_obeys_the_seed():
    wide = Route("S", tuple(Route("C" * n, (Route("N"), Route("O"))) for n in range(1, 8)))
    once = wide.shuffled(random.Random(7))
    assert once == wide.shuffled(random.Random(7)) != wide
    assert once.canonical() == wide.canonical()
    # also below the root
    assert any(child.children[0].smiles == "O" for child in once.children)


@pytest.mark.parametrize(
    ("line", "smiles"),
    [("C C ( = O ) O", "CC(=O)O"), ("CC(=O)O CC(=O)O", "CC(=O)O"), ("C=CC C=CC", "C=CC"), ("CCO C=O", "CCO")],
)
def test_only_single_tokens_are_joined(line, smiles):
    assert smiles_and_name(line)[0] == smiles


@pytest.mark.parametrize(
    ("missing", "marked", "end"),
    [(None, [], ""), ((), AMIDE.leaves(), ", • 3 sold"), (["CC(=O)O"], AMIDE.leaves()[1:], ", • 2 sold"),
     (AMIDE.molecules(), [], ", • 0 sold")],
)  # fmt: skip
def test_a_tree_marks_what_is_in_stock(missing, marked, end):
    *lines, last = AMIDE.format_tree(missing).splitlines()
    assert [line.split()[-1] for line in lines] == AMIDE.molecules()
    assert [line.split()[-1] for line in lines if "•" in line] == marked
    assert last == "2 reactions, longest path 2; 3 starting materials" + end


def test_a_tree_marks_what_is_common():
    missing, common, sold = AMIDE.leaves()
    text = AMIDE.format_tree([missing], [common])
    assert f" {missing}" in text and f"◦ {common}\n" in text and f"• {sold}\n" in text
    assert text.endswith("3 starting materials, • 1 sold, ◦ 1 widely used")

import random

import pytest

from weftformer.routes.tree import Route

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
    branch = Route("CC", (Route("C"),))
    bush = Route("CCCC", (Route("O"), Route("CCC", (branch, branch))))
    assert (bush.depth, bush.num_reactions) == (3, 4)
    leaf = Route("C")
    assert (leaf.depth, leaf.num_reactions, leaf.leaves(), leaf.molecules()) == (0, 0, ["C"], ["C"])


def test_sub_routes_are_those_to_every_molecule_that_is_made():
    assert AMIDE.sub_routes() == [AMIDE, AMIDE.children[0]]
    made = Route("CC", (Route("C"),))
    assert Route("CCCC", (made, Route("O"), Route("CCC", (made,)))).sub_routes()[1:] == [made, Route("CCC", (made,))]
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
    # The number of times a molecule is used counts.
    assert Route("C", (Route("N"), Route("N"))).canonical() != Route("C", (Route("N"),)).canonical()
    # The same molecules in another tree are another route.
    assert (
        Route("C", (Route("N", (Route("O"),)), Route("F"))).canonical()
        != Route("C", (Route("N"), Route("F", (Route("O"),)))).canonical()
    )


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "route"),
        ({"smiles": "C", "children": {}}, "children"),
        ({"smiles": "C", "children": [{"smiles": "C"}, {"smiles": 3}]}, r"children\[1\].smiles"),
        (
            {"smiles": "C", "children": [{"smiles": "C", "children": [{"smile": "C"}]}]},
            r"children\[0\].children\[0\].smiles",
        ),
    ],
)
def test_from_dict_names_the_place(data, place):
    with pytest.raises(ValueError, match=f"^{place}: "):
        Route.from_dict(data)


def chain(depth: int) -> dict:
    data: dict = {"smiles": "C"}
    for _ in range(depth):
        data = {"smiles": "C", "children": [data]}
    return data


def test_depth_is_bounded():
    assert Route.from_dict(chain(64)).depth == 64
    text = Route.from_dict(chain(64)).to_string()
    assert Route.from_string(text).depth == 64
    with pytest.raises(ValueError, match="deeper"):
        Route.from_dict(chain(65))
    with pytest.raises(ValueError, match="deeper"):
        Route.from_string("{'smiles':'C','children':[" + text + "]}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{'smiles':'CC'",
        "{'smiles':''}",
        "{'smiles':'C'} ",
        "{'smiles': 'C'}",
        '{"smiles":"C"}',
        "{'smiles':'C','children':[]}",
        "{'smiles':'C','children':[{'smiles':'C'},]}",
        "{'smiles':'C','in_stock':true}",
        r"{'smiles':'CC/C=C\C'}",
        r"{'smiles':'\u0043'}",
        "{'smiles':'C','children':[" * 700,
        "__import__('os').system('true')",
    ],
)
def test_from_string_refuses_other_texts(text):
    with pytest.raises(ValueError):
        Route.from_string(text)


def test_from_string_round_trip_on_random_trees():
    rng = random.Random(0)
    for _ in range(300):
        route = random_route(rng, depth=4)
        assert Route.from_string(route.to_string()) == route
        assert Route.from_dict(route.to_dict() | {"in_stock": True}) == route


@pytest.mark.parametrize("smiles", ["", "C C", "C'C", 'C"', "C{", "C,C", "Cé", "C\n", None, 3])
def test_constructor_refuses_what_is_no_smiles(smiles):
    with pytest.raises(ValueError, match="SMILES"):
        Route(smiles)


def test_format_tree():
    assert AMIDE.format_tree() == (
        "CC(=O)Nc1ccc(-c2ccccc2)cc1\n"
        "├── CC(=O)Nc1ccc(Br)cc1\n"
        "│   ├── • CC(=O)O\n"
        "│   └── • Nc1ccc(Br)cc1\n"
        "└── • OB(O)c1ccccc1\n"
        "2 reactions, longest path 2; • 3 starting materials"
    )
    assert Route("CO", (Route("C"),)).format_tree().endswith("\n1 reaction, longest path 1; • 1 starting material")


def test_shuffled_keeps_the_route_and_obeys_the_seed():
    wide = Route("S", tuple(Route("C" * n, (Route("N"), Route("O"))) for n in range(1, 8)))
    once = wide.shuffled(random.Random(7))
    assert once == wide.shuffled(random.Random(7))
    assert once != wide
    assert once.canonical() == wide.canonical()
    # Also below the root.
    assert any(child.children[0].smiles == "O" for child in once.children)

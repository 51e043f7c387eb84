from weftformer.routes.training.rows import training_pairs
from weftformer.routes.tree import Route

ONE = Route("CCO", (Route("C"), Route("O")))
TWO = Route("CCN", (Route("CC", (Route("F"), Route("S"))), Route("N")))


def test_rows_are_literal():
    assert training_pairs([ONE, TWO]) == [
        {"source": "CCO", "target": "{'smiles':'CCO','children':[{'smiles':'C'},{'smiles':'O'}]}", "n_steps": 1},
        {"source": "CCN", "target": TWO.to_string(), "n_steps": 2},
    ]


def test_permutations_are_distinct_orders_of_the_same_route():
    rows = training_pairs([TWO], permutations=3, seed=1)
    assert rows[0]["target"] == TWO.to_string()
    assert len({row["target"] for row in rows}) == len(rows) == 3
    assert {Route.from_string(row["target"]).canonical() for row in rows} == {TWO.canonical()}
    # ONE has two orders in all.
    assert len(training_pairs([ONE], permutations=10)) == 2


def test_starting_material_is_a_leaf_and_varies():
    rows, again, other = (training_pairs([TWO] * 40, starting_material="random", seed=seed) for seed in (0, 0, 1))
    assert {row["starting_material"] for row in rows} == {"F", "S", "N"} and rows == again != other
    assert all("starting_material" not in row for row in training_pairs([TWO]))


def test_each_starting_material_in_a_row_of_its_own():
    twice = Route("CCN", (Route("CC", (Route("F"), Route("S"))), Route("S")))
    rows = training_pairs([twice], starting_material="all", permutations=2)
    assert [row["starting_material"] for row in rows] == ["F", "S", "F", "S"]
    assert len({row["target"] for row in rows}) == 2 and rows[0]["target"] == rows[1]["target"] == twice.to_string()

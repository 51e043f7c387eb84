import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Route
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.reaction_names import plan_with_names, reaction_name, route_name, step_names

AMIDE = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1", (Route("N#Cc1ccccc1"),))))


@pytest.mark.parametrize(
    ("product", "reactants", "name"),
    [
        ("CC(=O)NCc1ccccc1", ["NCc1ccccc1", "OC(C)=O"], "amide coupling"),  # in any order and spelling
        ("NCc1ccccc1", ["N#Cc1ccccc1"], "nitrile reduction"),
        ("c1ccc(-c2ccccc2)cc1", ["Brc1ccccc1", "OB(O)c1ccccc1"], "Suzuki coupling"),
        ("COC(=O)c1ccccc1", ["O=C(O)c1ccccc1", "CO"], "esterification"),  # and not the protection, which comes later
        ("CC(=O)NCc1ccccc1", ["CC(=O)Cl", "NCc1ccccc1"], None),  # made so in the lab, and no template says it
        ("CC(=O)NCc1ccccc1", ["NCc1ccccc1"], None),  # half of it
        # the configuration counts
        ("C[C@H](NC(C)=O)C(C)C", ["CC(=O)O", "C[C@H](N)C(C)C"], "amide coupling"),
        ("C[C@H](NC(C)=O)C(C)C", ["CC(=O)O", "C[C@@H](N)C(C)C"], None),
        ("C1CC", ["C"], None),  # not a molecule
        ("CC", ["<b>"], None),
    ],
)
def test_names(product, reactants, name):
    assert reaction_name(product, reactants) == name


def test_the_steps_of_a_route():
    steps = step_names(AMIDE)
    assert [tuple(step.values()) for step in steps] == [
        (1, "N#Cc1ccccc1>>NCc1ccccc1", "nitrile reduction"), (2, "CC(=O)O.NCc1ccccc1>>CC(=O)NCc1ccccc1", "amide coupling"),
    ]  # fmt: skip
    assert (
        route_name(AMIDE) == "amide coupling" and route_name(Route("CCO")) is None and step_names(Route("CCO")) == []
    )


def test_plans_with_names():
    failed = Candidate("{", -2.0, 2, problem="no", rank=2)
    plan = Plan("CC(=O)NCc1ccccc1", [Candidate(AMIDE.to_string(), -1.0, 2, AMIDE, rank=1), failed])
    data = json.loads(json.dumps(plan_with_names(plan)))
    assert [one["reactions"] for one in data["candidates"]] == [step_names(AMIDE), None]
    assert Plan.from_dict(data) == plan

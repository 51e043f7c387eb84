"""Files of other projects are read, and what is written reads back."""

import copy
import functools
import json
import operator

import pytest

from weftformer.routes import Route
from weftformer.routes.files.entries import Entry
from weftformer.routes.files.formats import to_reaction_tree


def routes_in(data) -> list[Route]:
    return list(Entry("", data).routes())


ROUTE = Route("CC(=O)OC", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO")))

TREE = {
    "type": "mol", "smiles": "CC(=O)OC", "in_stock": False, "scores": {"state": 0.9}, "children": [
        {"type": "reaction", "smiles": "whatever", "metadata": {}, "children": [
            {"type": "mol", "smiles": "CC(=O)O", "in_stock": False, "children": [
                {"type": "reaction", "children": [{"type": "mol", "smiles": "CC=O"}, {"type": "mol", "smiles": "O"}]}]},
            {"type": "mol", "smiles": "CO", "in_stock": True, "children": []}]}]}  # fmt: skip
RETROCAST = {
    "smiles": "CC(=O)OC", "inchikey": "x", "synthesis_step": {"template": None, "reactants": [
        {"smiles": "CC(=O)O", "synthesis_step": {"reactants": [
            {"smiles": "CC=O", "synthesis_step": None, "is_leaf": True}, {"smiles": "O", "synthesis_step": None}]}},
        {"smiles": "CO", "synthesis_step": None}]}}  # fmt: skip
RETROCAST_2 = {
    "smiles": "CC(=O)OC", "inchikey": "x", "annotations": {}, "product_of": {"annotations": {}, "reactants": [
        {"smiles": "CC(=O)O", "product_of": {"reactants": [{"smiles": "CC=O", "annotations": {}}, {"smiles": "O"}]}},
        {"smiles": "CO"}]}}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        ROUTE.to_dict(), ROUTE.to_string(), {"name": "ester", "path": ROUTE.to_string()}, {"route": ROUTE.to_dict()},
        {"target": RETROCAST, "rank": 1}, [[TREE]],
        {"name": "set", "targets": {"t": {"smiles": "CC(=O)OC", "ground_truth": {"target": RETROCAST}}}},
        {"routes": [ROUTE.to_dict()]}, to_reaction_tree(ROUTE), {"schema": {}, "data": [{"target": "C", "trees": [TREE]}]},
        {"target": RETROCAST_2, "schema_version": "2"}, [{"rank": 1, "route": {"target": RETROCAST_2}}, {"rank": 2, "failure": {}}],
        {"a": [{"rank": 1, "route": {"target": RETROCAST_2}}], "b": []}, {"a": TREE}, {"trees": [TREE], "target": "CO"},
        {"id": "t", "smiles": "CC(=O)OC", "ground_truth": None, "acceptable_routes": [{"target": RETROCAST_2}]},
        {"succ": True, "routes": "CC(=O)OC>0.5>CC(=O)O.CO|CC(=O)O>0.9>CC=O.O", "route_cost": 0.5},  # Retro*
    ],
)  # fmt: skip
def test_every_form_of_a_route_is_read(data):
    assert routes_in(json.loads(json.dumps(data))) == [ROUTE]


def test_single_reactions_are_routes_of_one_step():
    row = {"id": 1, "source": "x", "product": "CO", "reactants": ["C", "O"], "reaction_class": None}
    assert routes_in([row, ROUTE.to_dict()]) == [Route("CO", (Route("C"), Route("O"))), ROUTE]
    mapped = {"product": "[CH3:1][O:2][CH3:3]", "reactants": ["[CH3:1][OH:2]", "[CH3:3]I", "[Na+:9]", "O"]}
    assert routes_in([mapped]) == [Route("[CH3][O][CH3]", (Route("[CH3][OH]"), Route("[CH3]I")))]


def test_lists_keep_their_order_and_targets_without_a_route_are_passed_over():
    other = Route("CCO")
    data = [
        [ROUTE.to_dict(), other.to_string()],
        None,
        {"id": "t", "smiles": "CCO", "ground_truth": None},
        {"smiles": "CCO"},
        {"target": "CCO", "trees": None},
        {"rank": 1, "failure": {"code": "x"}},
        {"id": "t", "smiles": "CCO", "acceptable_routes": []},
        {"target": {"smiles": "CCO", "annotations": {}}},  # a route without a reaction
    ]
    assert routes_in(data) == [ROUTE, other, other, other]


def changed(path, value):
    data = copy.deepcopy(TREE)
    functools.reduce(operator.getitem, path[:-1], data)[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, r"route: expected a route or a list of routes, got int"),
        ([ROUTE.to_dict(), 7], r"\[1\]: expected a route"),
        ({"results": {}}, r"route: not a route: it has none of the fields smiles.* RetroCast \(pip install retrocast\) converts"),
        ([changed(("children", 0, "children", 1, "smiles"), "C methane")], r"\[0\].children\[0\].children\[1\].smiles: .*' '"),
        (changed(("children", 0, "children", 1), {"type": "mol"}), r"children\[0\].children\[1\].smiles: missing"),
        (changed(("children", 0, "children"), []), r"children\[0\].children: a reaction without reactants"),
        (changed(("children",), [TREE["children"][0]] * 2), r"children: expected one reaction for a molecule, got 2"),
        (changed(("children", 0, "children", 0, "type"), "reaction"), r"children\[0\].children\[0\].type: expected a molecule"),
        ({"a": [{"route": {"target": {"smiles": "C("}}}, {"failure": 1}, {"route": 7}]}, r"^\['a'\]\[2\].route: expected a route"),
        ({"smiles": "C", "synthesis_step": {"reactants": None}}, r"synthesis_step.reactants: expected a list, got NoneType"),
        ({"product": "CO", "reactants": []}, r"reactants: a reaction without reactants"),
        ({"product": "CO", "reactants": "C.O"}, r"reactants: expected a list, got str"),
        ([{"product": 3, "reactants": ["C"]}], r"\[0\]: expected a SMILES string, got int"),
        ([{"product": "[CH3:1]O", "reactants": ["CO"]}], r"\[0\]: according to the atom maps, no reactant"),
    ],
)  # fmt: skip
def test_invalid_routes_are_named_with_their_place(data, message):
    with pytest.raises(ValueError, match=message):
        routes_in(data)

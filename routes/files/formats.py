"""The routes of a document, in the JSON forms of several projects, and the writers of two of these forms.

The module reads plain trees (`{"smiles", "children"}`), single reactions (`{"product", "reactants"}`), routes as text
(also as `{"path": text}`), trees of alternating molecule and reaction nodes (PaRoutes, AiZynthFinder and its tables),
RetroCast's routes, candidates, predictions, tasks and benchmarks, and lists of all of these. Unknown fields are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from ..tree import MAX_DEPTH, Route, join_places, read_tree
from .reaction_lines import from_reaction_line, without_maps

# The fields that contain routes in the files of other projects, and in those of `weftformer routes plan`
# (`candidates`).
WRAPPERS = ("trees", "candidates", "route", "ground_truth", "target", "targets", "acceptable_routes", "routes", "data")
# RetroCast names the step that makes a molecule `synthesis_step` in its first schema and `product_of` in its second.
_STEPS = ("synthesis_step", "product_of")
# An object with one of these fields is a molecule of a tree.
_OF_A_TREE = ("type", "children", *_STEPS)
# The beginning of DirectMultiStep's text. No reaction begins like this.
DMS = re.compile(r"\s*\{\s*'")
# Matches the spaces that Python's `repr` writes and DirectMultiStep leaves out. A SMILES contains no spaces.
_REPR_SPACES = re.compile(r"(?<=[:,]) +(?=['\[{])")


class NoRoute(ValueError):
    """A candidate that its file marks as failed: null, or RetroCast's `failure`."""


class Part(NamedTuple):
    """A part of a document that contains a route, or should.

    Args:
        place: the place of the innermost list item or named member that it is in, such as `[3][1]`.
        route: the route, or the reason why there is none, or None for a target without a route.
        data: the content of the part.
        group: the place of the list that it is in.
        target: the SMILES of the target, if an object around the part has it in `target` or `smiles`.
        names: the `name` and the `id` of the part, or of the target.
    """

    place: str
    route: Route | ValueError | None = None
    data: Any = None
    group: str | None = None
    target: str | None = None
    names: tuple[str, ...] = ()


def parts_of(data: Any, place: str, around: Part, depth_left: int = MAX_DEPTH) -> Iterator[Part]:
    """Yield the parts of a parsed JSON document, in its order.

    Args:
        data: the document or a part of it.
        place: the place of `data`, for messages, such as `[3].children[1]`.
        around: what is known of the part from the objects around it.
        depth_left: the largest number of lists and objects around a route.

    Yields:
        The parts. A part that is neither a route nor a list of routes has an error that names the place.
    """
    try:
        if depth_left <= 0:
            raise ValueError(f"{place[:80]}...: nested too deeply")
        if isinstance(data, list):
            for index, item in enumerate(data):
                where = f"{place}[{index}]"
                inside = around._replace(place=where, group=place)
                if item is None:
                    yield inside._replace(route=NoRoute(f"{where}: null"))
                yield from parts_of(item, where, inside, depth_left - 1)
        elif isinstance(data, dict):
            yield from _of_object(data, place, around, depth_left)
        elif isinstance(data, str):
            yield around._replace(route=_text(data, place), data=data)
        elif data is not None:
            raise ValueError(f"{place or 'route'}: expected a route or a list of routes, got {type(data).__name__}")
    except ValueError as error:
        yield around._replace(route=error, data=data)


def _of_object(data: dict[str, Any], place: str, around: Part, depth_left: int) -> Iterator[Part]:
    part = around._replace(data=data, names=tuple(texts(data, "name", "id")) or around.names)
    # in a row of AiZynthFinder's table, only `trees` contains routes, even if no route was found
    filled = (name for name in WRAPPERS if data.get(name) is not None)
    name = "trees" if "trees" in data else next(filled, None)
    if isinstance(data.get("path"), str):
        yield part._replace(route=_text(data["path"], join_places(place, "path")))
    elif "product" in data and "reactants" in data:
        yield part._replace(route=_reaction(data, place))
    elif any(name in data for name in _OF_A_TREE) or set(data) == {"smiles"}:
        yield part._replace(route=read_tree(data, place, _reactants, _plain))
    elif name == "target" and isinstance(data[name], dict) and "smiles" in data[name]:
        # in RetroCast's second schema, only this place distinguishes a starting material from a target without a route
        yield part._replace(route=read_tree(data[name], join_places(place, name), _reactants, _plain))
    elif name is None and data.get("failure") is not None:
        yield part._replace(route=NoRoute(f"{place or 'route'}: {data['failure']}"))
    else:
        target = next(texts(data, "target", "smiles"), None)
        inside = around if target is None else part._replace(target=target)
        parts = list(_in_members(data, name, place, inside, depth_left - 1))
        yield from parts or ([] if target is None else [inside])


def _in_members(data: dict[str, Any], name: str | None, place: str, around: Part, depth_left: int) -> Iterator[Part]:
    """Yield the parts in the members of an object: in the one of this name, or in all that contain routes."""
    if name == "targets" and isinstance(data[name], dict):  # a benchmark has its targets by name
        members, place = data[name], join_places(place, name)
    elif name is not None:
        if name != "target" or not isinstance(data[name], str):
            yield from parts_of(data[name], join_places(place, name), around, depth_left)
        return
    else:
        members = {key: value for key, value in data.items() if _holds_routes(value)}
        if not members and not any(field in data for field in ("smiles", "failure", *WRAPPERS)):
            raise ValueError(
                f"{place or 'route'}: not a route: it has none of the fields smiles, path, {', '.join(WRAPPERS)}. "
                "RetroCast (pip install retrocast) converts the results of other planners."
            )
    for key, value in members.items():
        where = f"{place}[{key!r}]"
        yield from parts_of(value, where, around._replace(place=where, group=None), depth_left)


def texts(data: dict[str, Any], *names: str) -> Iterator[str]:
    """Yield the texts in the fields of these names."""
    return (data[name] for name in names if isinstance(data.get(name), str))


def _holds_routes(value: Any) -> bool:
    """Return whether a member of an object is a planner's result for a target. Its name is then the target's name."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and (
        first.get("type") == "mol" or any(name in first for name in ("route", "failure", "children", *_STEPS))
    )


def _text(text: str, place: str) -> Route:
    try:
        return route_of_text(text)
    except ValueError as error:
        raise ValueError(f"{place or 'route'}: {error}") from None


def route_of_text(text: str) -> Route:
    """Read a route in DirectMultiStep's text, or as a line of reactions.

    Raises:
        ValueError: it is neither.
    """
    if ">" in text and not DMS.match(text):
        return from_reaction_line(text)
    return Route.from_string(_REPR_SPACES.sub("", text.strip()))


def _reaction(data: dict[str, Any], place: str) -> Route:
    """Read a row of a table of reactions, `{"product": SMILES, "reactants": [SMILES, ...]}`, without its atom maps and
    agents.
    """
    where = join_places(place, "reactants")
    reactants = _list(data["reactants"], where)
    if not reactants:
        raise ValueError(f"{where}: a reaction without reactants")
    try:
        step = Route(_plain(data["product"]), tuple(Route(_plain(smiles)) for smiles in reactants))
        reaction = without_maps(step.smiles, step.leaves())
        return Route(reaction.product, tuple(map(Route, reaction.reactants)))
    except ValueError as error:
        raise ValueError(f"{place or 'reaction'}: {error}") from None


def _plain(smiles: Any) -> Any:
    """Return a SMILES without the blanks of a CXSMILES or of tokens."""
    if not isinstance(smiles, str) or " " not in smiles:
        return smiles
    from ..chemistry.molecules import plain_smiles  # needs RDKit

    return plain_smiles(smiles)


def _reactants(data: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    """Yield the reactants of the one reaction that makes a molecule, each with its place."""
    if data.get("type", "mol") not in ("mol", "molecule"):
        raise ValueError(f"{join_places(place, 'type')}: expected a molecule, found {data['type']!r}")
    name = next((name for name in _STEPS if data.get(name) is not None), None)
    if name is not None:
        where = f"{join_places(place, name)}.reactants"
        nodes = _list(data[name].get("reactants") if isinstance(data[name], dict) else data[name], where)
    else:
        where = join_places(place, "children")
        nodes = _list(data.get("children") or [], where)
        if nodes and isinstance(nodes[0], dict) and nodes[0].get("type") == "reaction":
            if len(nodes) > 1:
                raise ValueError(f"{where}: expected one reaction for a molecule, got {len(nodes)}")
            where += "[0].children"
            nodes = _list(nodes[0].get("children"), where)
            if not nodes:
                raise ValueError(f"{where}: a reaction without reactants")
    for index, node in enumerate(nodes):
        yield node, f"{where}[{index}]"


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{place}: expected a list, got {type(value).__name__}")
    return value


def to_reaction_tree(route: Route, stock: Container[str] | None = None) -> dict[str, Any]:
    """Write a route as alternating molecule and reaction nodes, as PaRoutes and AiZynthFinder do.

    Args:
        route: the route.
        stock: a [`Stock`] or a set of SMILES, which decides `in_stock`. Without one, every starting material is in
            stock and no other molecule is.

    Returns:
        The node of the target. The `smiles` of a reaction node is the step backwards, `product>>reactant.reactant`.
    """
    in_stock = not route.children if stock is None else route.smiles in stock
    node: dict[str, Any] = {"type": "mol", "smiles": route.smiles, "in_stock": in_stock}
    if route.children:
        reaction: dict[str, Any] = {
            "type": "reaction",
            "smiles": f"{route.smiles}>>{'.'.join(child.smiles for child in route.children)}",
        }
        reaction["children"] = [to_reaction_tree(child, stock) for child in route.children]
        node["children"] = [reaction]
    return node


def to_retrocast(route: Route) -> dict[str, Any]:
    """Write a molecule in RetroCast's second schema. A route is `{"target": to_retrocast(route)}`. Needs RDKit.

    Raises:
        ValueError: RDKit cannot read a molecule, so the molecule has no InChIKey.
    """
    node: dict[str, Any] = {"smiles": route.smiles, "inchikey": _inchikey(route.smiles)}
    if route.children:
        node["product_of"] = {"reactants": [to_retrocast(child) for child in route.children]}
    return node


def _inchikey(smiles: str) -> str:
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        key: str = Chem.MolToInchiKey(molecule) if molecule is not None else ""
    if not key:
        raise ValueError(f"{smiles!r} is not a molecule that RDKit can read, so it has no InChIKey.")
    return key

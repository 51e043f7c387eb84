"""Routes as other projects write them: what is read becomes a `Route`, and a `Route` is written in their forms.

Known are the plain tree (`{"smiles", "children"}`), DirectMultiStep's text (also as `{"path": text}`), trees of alternating
molecule and reaction nodes (PaRoutes, AiZynthFinder), RetroCast's routes, predictions and benchmarks, and lists of all of
these. Fields that Weft does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .tree import MAX_DEPTH, Route

if TYPE_CHECKING:
    from .stock import Stock

# Where RetroCast keeps one route, many, or a route's first molecule.
_WRAPPERS = ("route", "ground_truth", "target", "targets", "acceptable_routes", "routes")


def routes_in(data: Any, place: str = "") -> Iterator[Route]:
    """The routes of a parsed JSON document, in its order; what holds none (a target without ground truth) is passed over.

    Raises:
        ValueError: something is neither a route nor a list of routes; the message names the place, e.g. `[3].children[1]`.
    """
    if data is None:
        return
    if isinstance(data, str):
        try:
            yield Route.from_string(data)
        except ValueError as error:
            raise ValueError(f"{place or 'route'}: {error}") from None
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from routes_in(item, f"{place}[{index}]")
    elif not isinstance(data, dict):
        raise ValueError(f"{place or 'route'}: expected a route or a list of routes, got {type(data).__name__}")
    elif "path" in data and isinstance(data["path"], str):
        yield from routes_in(data["path"], _join(place, "path"))
    elif "type" in data or "children" in data or "synthesis_step" in data:
        yield _molecule(data, place, MAX_DEPTH)
    else:
        yield from _wrapped(data, place)


def _wrapped(data: dict[str, Any], place: str) -> Iterator[Route]:
    name = next((name for name in _WRAPPERS if name in data), None)
    if name is not None:
        inner = data[name]
        if name == "targets" and isinstance(inner, dict):  # a benchmark, by its targets' names
            for key, target in inner.items():
                yield from routes_in(target, f"{_join(place, name)}[{key!r}]")
        else:
            yield from routes_in(inner, _join(place, name))
    elif set(data) == {"smiles"}:
        yield _molecule(data, place, MAX_DEPTH)
    elif "smiles" not in data:
        raise ValueError(f"{place or 'route'}: no route: none of smiles, path, {', '.join(_WRAPPERS)} is there")
    # else a target that nobody knows a route for


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _molecule(data: Any, place: str, depth_left: int) -> Route:
    if not isinstance(data, dict):
        raise ValueError(f"{place or 'route'}: expected an object, got {type(data).__name__}")
    if data.get("type", "mol") not in ("mol", "molecule"):
        raise ValueError(f"{_join(place, 'type')}: expected a molecule, found {data['type']!r}")
    if "smiles" not in data:
        raise ValueError(f"{_join(place, 'smiles')}: missing")
    children = []
    for child, child_place in _reactants(data, place):
        if depth_left <= 0:
            raise ValueError(f"{child_place}: nested deeper than the allowed number of reactions")
        children.append(_molecule(child, child_place, depth_left - 1))
    try:
        return Route(data["smiles"], tuple(children))
    except ValueError as error:
        raise ValueError(f"{_join(place, 'smiles')}: {error}") from None


def _reactants(data: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    """The molecules of the one reaction that makes a molecule, and where each stands."""
    if data.get("synthesis_step") is not None:
        where = _join(place, "synthesis_step.reactants")
        step = data["synthesis_step"]
        nodes = _list(step.get("reactants") if isinstance(step, dict) else step, where)
    else:
        where = _join(place, "children")
        nodes = _list(data.get("children") or [], where)
        if nodes and isinstance(nodes[0], dict) and nodes[0].get("type") == "reaction":
            if len(nodes) > 1:
                raise ValueError(f"{where}: {len(nodes)} reactions make one molecule; a route has one")
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


def to_reaction_tree(route: Route, stock: Stock | None = None) -> dict[str, Any]:
    """Alternating molecule and reaction nodes, as PaRoutes and AiZynthFinder write them.

    Args:
        stock: what `in_stock` is told by; without one, every starting material is taken to be there.
    """
    in_stock = not route.children if stock is None else route.smiles in stock
    node: dict[str, Any] = {"type": "mol", "smiles": route.smiles, "in_stock": in_stock}
    if route.children:
        children = [to_reaction_tree(child, stock) for child in route.children]
        node["children"] = [{"type": "reaction", "smiles": reaction_smiles(route), "children": children}]
    return node


def to_retrocast(route: Route) -> dict[str, Any]:
    """A molecule in the form of RetroCast's benchmark files; a route is `{"target": to_retrocast(route)}`. Needs RDKit."""
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(route.smiles)
    if molecule is None:
        raise ValueError(f"{route.smiles!r} is not a molecule that RDKit can read, so that it has no InChIKey.")
    step = None
    if route.children:
        step = {"reactants": [to_retrocast(child) for child in route.children], "mapped_smiles": None}
    return {
        "smiles": route.smiles,
        "inchikey": Chem.MolToInchiKey(molecule),
        "synthesis_step": step,
        "is_leaf": not route.children,
    }


def reaction_smiles(route: Route) -> str:
    """The last reaction of a route, `reactant.reactant>>product`."""
    return ".".join(child.smiles for child in route.children) + ">>" + route.smiles


def reactions(route: Route) -> list[str]:
    """The reactions of a route as reaction SMILES, each after those that make its reactants."""
    if not route.children:
        return []
    return [line for child in route.children for line in reactions(child)] + [reaction_smiles(route)]

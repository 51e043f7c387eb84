"""Readers and writers of routes in the JSON forms of other projects.

The module reads plain trees (`{"smiles", "children"}`), single reactions (`{"product", "reactants"}`),
DirectMultiStep's text (also as `{"path": text}`), trees of alternating molecule and reaction nodes (PaRoutes,
AiZynthFinder and its tables), RetroCast's routes, candidates, predictions, tasks and benchmarks, and lists of all of
these, and what RetroCast's adapters read, if it is installed. Unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any

from ..tree import MAX_DEPTH, Route
from .reaction_lines import without_maps

# The fields that contain routes in the files of other projects, and in those of `weftformer routes plan` (`candidates`).
WRAPPERS = ("trees", "candidates", "route", "ground_truth", "target", "targets", "acceptable_routes", "routes", "data")
# RetroCast names the step that makes a molecule `synthesis_step` in its first schema and `product_of` in its second.
_STEPS = ("synthesis_step", "product_of")
# Fields, with the kind of their values, of results that adapters of RetroCast read (https://github.com/ischemist/project-procrustes).
_ADAPTERS = (
    ("results", dict, "askcos"), ("result", dict, "retrochimera"), ("routes", str, "dreamretroer"),
    ("synthesis_string", str, "synllama"), ("completion", str, "ursa"),
)  # fmt: skip
_URSA_TARGET = re.compile(r"<product>.*?<smiles>(.*?)</smiles>", re.DOTALL)
# An object with one of these fields is a molecule of a tree.
_OF_A_TREE = ("type", "children", *_STEPS)


class NoRoute(ValueError):
    """A candidate that its file marks as failed: null, or RetroCast's `failure`."""


def routes_in(data: Any, place: str = "") -> Iterator[Route]:
    """
    Yield the routes of a parsed JSON document, in its order.

    An entry without a route, such as a target without ground truth, yields none.

    Args:
        data (`Any`):
            The document or a part of it.
        place (`str`, *optional*, defaults to `""`):
            The place of the part in the document, for messages.

    Yields:
        [`Route`]: the routes.

    Raises:
        ValueError: a part is neither a route nor a list of routes. The message names the place, such as
            `[3].children[1]`.
    """
    return routes_of(candidates_in(data, place))


def routes_of(candidates: Iterable[Route | ValueError]) -> Iterator[Route]:
    """Yield the routes among candidates, and raise the first error, except [`NoRoute`]."""
    for candidate in candidates:
        if isinstance(candidate, Route):
            yield candidate
        elif not isinstance(candidate, NoRoute):
            raise candidate


def candidates_in(data: Any, place: str = "", depth_left: int = MAX_DEPTH) -> Iterator[Route | ValueError]:
    """Yield the routes of a document as [`routes_in`], and, in the place of each part that is none, the error."""
    try:
        yield from _candidates_in(data, place, depth_left)
    except ValueError as error:
        yield error


def _candidates_in(data: Any, place: str, depth_left: int) -> Iterator[Route | ValueError]:
    if data is None:
        return
    if depth_left <= 0:
        raise ValueError(f"{place[:80]}...: nested too deeply")
    if (adapter := adapter_of(data)) is not None:
        yield from candidates_in(_adapted(data, adapter, place), place, depth_left - 1)
    elif isinstance(data, str):
        try:
            yield Route.from_string(data)
        except ValueError as error:
            raise ValueError(f"{place or 'route'}: {error}") from None
    elif isinstance(data, list):
        for index, item in enumerate(data):
            if item is None:
                yield NoRoute(f"{place}[{index}]: null")
            yield from candidates_in(item, f"{place}[{index}]", depth_left - 1)
    elif isinstance(data, dict):
        yield from _of_object(data, place, depth_left)
    else:
        raise ValueError(f"{place or 'route'}: expected a route or a list of routes, got {type(data).__name__}")


def _of_object(data: dict[str, Any], place: str, depth_left: int) -> Iterator[Route | ValueError]:
    if isinstance(data.get("path"), str):
        yield from candidates_in(data["path"], _join(place, "path"), depth_left - 1)
    elif "product" in data and "reactants" in data:
        yield _reaction(data, place)
    elif any(name in data for name in _OF_A_TREE):
        yield _molecule(data, place, MAX_DEPTH)
    else:
        yield from _wrapped(data, place, depth_left)


def _wrapped(data: dict[str, Any], place: str, depth_left: int) -> Iterator[Route | ValueError]:
    # in a row of AiZynthFinder's table, only `trees` contains routes, even if no route was found
    name = "trees" if "trees" in data else next((name for name in WRAPPERS if data.get(name) is not None), None)
    if name == "target" and isinstance(data[name], dict) and "smiles" in data[name]:
        # in RetroCast's second schema, only this place distinguishes a starting material from a target without a route
        yield _molecule(data[name], _join(place, name), MAX_DEPTH)
    elif name == "targets" and isinstance(data[name], dict):  # a benchmark has its targets by name
        for key, target in data[name].items():
            yield from candidates_in(target, f"{_join(place, name)}[{key!r}]", depth_left - 1)
    elif name is not None:
        yield from candidates_in(data[name], _join(place, name), depth_left - 1)
    elif set(data) == {"smiles"}:
        yield _molecule(data, place, MAX_DEPTH)
    elif keyed := {key: value for key, value in data.items() if holds_routes(value)}:
        for key, value in keyed.items():
            yield from candidates_in(value, f"{place}[{key!r}]", depth_left - 1)
    elif data.get("failure") is not None:
        yield NoRoute(f"{place or 'route'}: {data['failure']}")
    elif not any(name in data for name in ("smiles", "failure", *WRAPPERS)):
        raise ValueError(
            f"{place or 'route'}: not a route: it has none of the fields smiles, path, {', '.join(WRAPPERS)}"
        )
    # otherwise it is a target without a known route


def adapter_of(data: Any) -> str | None:
    """Return the adapter of RetroCast that reads a document: results of ASKCOS, Retro*, DreamRetro, RetroChimera, SynLlama or Ursa."""
    first = data[0] if isinstance(data, list) and data else data
    if not isinstance(first, dict) or any(
        name in first for name in ("path", "type", "product", "children", "trees", *_STEPS)
    ):
        return None  # one of the forms that this package reads itself
    return next((name for field, kind, name in _ADAPTERS if isinstance(first.get(field), kind)), None)


def _adapted(data: Any, adapter: str, place: str) -> Any:
    """Return results of another program as RetroCast's candidates."""
    try:
        import retrocast
    except ImportError as error:
        raise ValueError(
            f"{place or 'route'}: RetroCast reads this form ({adapter}): pip install retrocast"
        ) from error
    if adapter in ("synllama", "ursa"):
        data = data if isinstance(data, list) else [data]
    target = None
    if adapter == "ursa" and (match := _URSA_TARGET.search(data[0]["completion"])):
        target = {"id": "target", "smiles": match[1], "inchikey": _inchikey(match[1])}
    try:
        return retrocast.adapt(data, adapter, target=target)
    except Exception as error:  # a RuntimeError, or one of its own
        raise ValueError(f"{place or 'route'}: {error}") from error


def holds_routes(value: Any) -> bool:
    """Return whether a member of an object is a planner's result for a target. Its name is then the target's name."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return False
    return (
        adapter_of(first) is not None
        or first.get("type") == "mol"
        or any(name in first for name in ("route", "failure", "children", *_STEPS))
    )


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
        return Route(_plain(data["smiles"]), tuple(children))
    except ValueError as error:
        raise ValueError(f"{_join(place, 'smiles')}: {error}") from None


def _reaction(data: dict[str, Any], place: str) -> Route:
    """Read a row of a table of reactions, `{"product": SMILES, "reactants": [SMILES, ...]}`, without its atom maps and agents."""
    where = _join(place, "reactants")
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
    from ..molecules import plain_smiles  # needs RDKit

    return plain_smiles(smiles)


def _reactants(data: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    """Yield the reactants of the one reaction that makes a molecule, each with its place."""
    name = next((name for name in _STEPS if data.get(name) is not None), None)
    if name is not None:
        where = f"{_join(place, name)}.reactants"
        nodes = _list(data[name].get("reactants") if isinstance(data[name], dict) else data[name], where)
    else:
        where = _join(place, "children")
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
    """
    Write a route as alternating molecule and reaction nodes, as PaRoutes and AiZynthFinder do.

    Args:
        route ([`Route`]):
            The route.
        stock (`Container[str]`, *optional*):
            A [`Stock`] or a set of SMILES, which decides `in_stock`. Without one, every starting material is in stock and no other molecule
            is.

    Returns:
        `dict[str, Any]`: the node of the target. The `smiles` of a reaction node is the step backwards,
        `product>>reactant.reactant`.
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

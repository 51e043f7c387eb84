"""Names of reactions. A reaction has the name of a template of the synthetic routes that takes its product apart into its
very reactants; all other reactions have none.

The templates are `data.templates.TEMPLATES`. A name says what kind of reaction the structures show. It does not say that
the reaction works, and not with which reagents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from rdkit import Chem

from .data.templates import TEMPLATES
from .files.formats import reaction_smiles
from .molecules import canonical_smiles
from .plans import Candidate, Plan
from .tree import Route

# The number of products, and of reactions, whose names a process keeps.
_PRODUCTS, _REACTIONS = 1 << 12, 1 << 16


def reaction_name(product: str, reactants: Iterable[str]) -> str | None:
    """
    Return the name of a reaction. What was computed for a product is remembered.

    Args:
        product (`str`):
            The SMILES of the product.
        reactants (`Iterable[str]`):
            The SMILES of the reactants, in any order.

    Returns:
        `str` or None: the name of the first template of `TEMPLATES` that gives these reactants, compared as canonical
        SMILES with their stereochemistry. None if there is no such template, or RDKit cannot read a molecule.
    """
    return _name(product, tuple(reactants))


def step_names(route: Route) -> list[dict[str, Any]]:
    """
    Return the reactions of a route with their names, each after the reactions that make its reactants.

    Args:
        route ([`Route`]):
            The route.

    Returns:
        `list[dict[str, Any]]`: for each reaction, in the order of `files.formats.reactions`, which is the order of
        the steps in a picture, `{"step": 1, "reaction": "reactant.reactant>>product", "name": "amide coupling"}`. The
        `name` is None for a reaction that no template makes.
    """
    made = _made(route)
    return [
        {"step": step, "reaction": reaction_smiles(node), "name": route_name(node)}
        for step, node in enumerate(made, 1)
    ]


def route_name(route: Route) -> str | None:
    """Return the name of the last reaction of a route, None for a single molecule and as in [`reaction_name`]."""
    return reaction_name(route.smiles, [child.smiles for child in route.children]) if route.children else None


def candidate_with_names(candidate: Candidate) -> dict[str, Any]:
    """Return `Candidate.to_dict()` with the field `reactions`: [`step_names`] of its route, None without a route."""
    return candidate.to_dict() | {"reactions": None if candidate.route is None else step_names(candidate.route)}


def plan_with_names(plan: Plan) -> dict[str, Any]:
    """Return `Plan.to_dict()`, each candidate as [`candidate_with_names`] gives it. `Plan.from_dict` reads it."""
    return plan.to_dict() | {"candidates": [candidate_with_names(candidate) for candidate in plan.candidates]}


def _made(route: Route) -> list[Route]:
    if not route.children:
        return []
    return [*(node for child in route.children for node in _made(child)), route]


@lru_cache(_REACTIONS)
def _name(product: str, reactants: tuple[str, ...]) -> str | None:
    try:
        parts = tuple(sorted(canonical_smiles(smiles) for smiles in reactants))
        return _disconnections(canonical_smiles(product)).get(parts)
    except ValueError:
        return None


@lru_cache(_PRODUCTS)
def _disconnections(product: str) -> Mapping[tuple[str, ...], str]:
    """The sets of reactants that a template takes a product apart into, each sorted, and the first template's name."""
    molecule = Chem.MolFromSmiles(product)
    found: dict[tuple[str, ...], str] = {}
    for template in TEMPLATES:
        for reactants in template.undo(molecule):
            found.setdefault(tuple(sorted(reactants)), template.name)
    return found

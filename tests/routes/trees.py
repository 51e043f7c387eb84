"""Routes written as nested calls."""

from weftformer.routes.stock import Stock
from weftformer.routes.tree import Route


def made(smiles: str, *children: Route | str) -> Route:
    return Route(smiles, tuple(Route(child) if isinstance(child, str) else child for child in children))


def reaction_tree(route: Route, stock: Stock | None = None) -> dict:
    """Return a route as PaRoutes and AiZynthFinder write it."""
    in_stock = not route.children if stock is None else route.smiles in stock
    node = {"type": "mol", "smiles": route.smiles, "in_stock": in_stock}
    reactants = [reaction_tree(child, stock) for child in route.children]
    backwards = f"{route.smiles}>>{'.'.join(child.smiles for child in route.children)}"
    reaction = {"type": "reaction", "smiles": backwards, "children": reactants}
    return node | ({"children": [reaction]} if reactants else {})

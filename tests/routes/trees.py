"""Routes written as nested calls."""

from weftformer.routes.tree import Route


def made(smiles: str, *children: Route | str) -> Route:
    return Route(smiles, tuple(Route(child) if isinstance(child, str) else child for child in children))

"""`weftformer draw`: routes of a file as a page or as pictures."""

import itertools
import math
import os
from collections.abc import Sequence

from weftformer.routes.drawing.page import save_page
from weftformer.routes.drawing.svg import check_picture, save_picture
from weftformer.routes.files.streams import read_routes
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.stock import Stock
from weftformer.routes.tree import Route
from weftformer.scripts.arguments import check_folders
from weftformer.scripts.parsers.draw import build_parser


def as_plans(routes: Sequence[Route], stock: Stock | None) -> list[Plan]:
    """The routes of each target in the order of the file, as if they had been planned, but for a score."""
    plans: dict[str, Plan] = {}
    for route in routes:
        found = plans.setdefault(route.smiles, Plan(route.smiles)).candidates
        missing = None if stock is None else tuple(stock.missing(route))
        found.append(Candidate(route.to_string(), math.nan, None, route, missing=missing, rank=len(found) + 1))
    return list(plans.values())


def _count(routes: Sequence[Route]) -> str:
    return "1 route is" if len(routes) == 1 else f"{len(routes)} routes are"


def main(argv: Sequence[str] | None = None) -> None:
    """Read the routes, draw them.

    Raises:
        ValueError, OSError: an argument does not fit, the file holds no route, or a file cannot be read or written.
    """
    arguments = build_parser().parse_args(argv)
    if arguments.html is None and arguments.picture is None:
        raise ValueError("Say what to draw to: --html FILE, --picture FILE or both.")
    if arguments.limit < 1:
        raise ValueError(f"--limit must be at least 1: got {arguments.limit}.")
    check_folders(arguments, "html", "picture")
    if arguments.picture is not None:
        check_picture(arguments.picture)
    stock = None if arguments.stock is None else Stock.from_file(arguments.stock, workers=os.cpu_count() or 1)
    routes = list(itertools.islice(read_routes(arguments.routes), arguments.limit + 1))
    if len(routes) > arguments.limit:
        routes.pop()
        print(f"Only the first {arguments.limit} are drawn: --limit asks for more.")
    if not routes:
        raise ValueError(f"{arguments.routes} holds no route.")
    plans = as_plans(routes, stock)
    if arguments.html is not None:
        save_page(plans, arguments.html, title=arguments.routes.name)
        print(f"{_count(routes)} drawn in {arguments.html}.")
    if arguments.picture is not None:
        for number, route in enumerate(routes, start=1):
            path = arguments.picture
            path = path if len(routes) == 1 else path.with_stem(f"{path.stem}-{number}")
            save_picture(route, path, missing=None if stock is None else stock.missing(route))
        print(f"{_count(routes)} drawn in {path if len(routes) == 1 else arguments.picture.parent.resolve()}.")


if __name__ == "__main__":
    main()

"""The arguments of `weftformer draw`."""

import argparse
from pathlib import Path

from ..arguments import Parser

# Routes of a file that are drawn when nobody says how many: a page with thousands is slow.
LIMIT = 100


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="weftformer draw", description="Draw the routes of a file, on a page or as pictures.")
    add = parser.add_argument
    add(
        "routes",
        type=Path,
        metavar="ROUTES",
        help="file of `weftformer plan --json`, or of routes in any form that `weftformer prepare-routes` knows",
    )
    add("--html", type=Path, metavar="FILE", help="draw the routes on one page, target by target")
    add("--picture", type=Path, metavar="FILE",
        help="draw each to a file that ends in .svg or .png (several routes: FILE-1, FILE-2, ...)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE", help="what can be bought: marks the starting materials")
    add("--limit", type=int, metavar="N",
        help=f"only the first N routes (default: {LIMIT}, and all of a file of `weftformer plan --json`)")  # fmt: skip
    return parser

"""The arguments of `weftformer draw`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="weftformer draw", description="Draw the routes of a file, on a page or as pictures.")
    add = parser.add_argument
    add("routes", type=Path, metavar="ROUTES", help="file of routes, of any form `weftformer prepare-routes` knows")
    add("--html", type=Path, metavar="FILE", help="draw the routes on one page, target by target")
    add("--picture", type=Path, metavar="FILE",
        help="draw each to a file that ends in .svg or .png (several routes: FILE-1, FILE-2, ...)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE", help="what can be bought: marks the starting materials")
    add("--limit", type=int, default=100, metavar="N", help="only the first N routes (default: %(default)s)")
    return parser

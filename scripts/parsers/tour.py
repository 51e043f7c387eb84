"""The arguments of `weftformer tour`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer tour",
        description="See what Weft does in about two minutes: load the route model that comes with the package, plan three drugs\n"
        "that it was not trained on, write a page with their routes, and train a small new model for about a minute.",
    )
    add = parser.add_argument
    add("--output-dir", type=Path, default=Path("runs/tour"), metavar="FOLDER",
        help="folder for the page and the trained model; files of an earlier tour are replaced (default: %(default)s)")  # fmt: skip
    add(
        "--model",
        metavar="MODEL",
        help="folder or Hub id of another route model (default: the one that comes with Weft)",
    )
    add("--beams", type=int, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add("--max-steps", type=int, default=150, metavar="N", help="training steps (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the training (default: %(default)s)")
    return parser

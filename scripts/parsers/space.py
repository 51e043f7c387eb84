"""The arguments of `weftformer space`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer space",
        description="Write the folder of a Space on the Hub that shows models, ready for `hf upload`.",
    )
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="folder to write; it must not hold anything yet")
    add("--model", metavar="MODEL", help="model of routes: a folder, which is copied, or its id on the Hub")
    add("--text-model", metavar="MODEL", help="model of texts, the same")
    add("--title", default="Weft", help="of the Space (default: %(default)s)")
    return parser

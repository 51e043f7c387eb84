"""The arguments of `weftformer upcycle`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer upcycle",
        description="Turn a dense Weft model into a mixture of experts that starts with the same outputs.",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a dense Weft model")
    add("out", type=Path, metavar="OUT", help="folder to write; it must not hold anything yet")
    add("--experts", type=int, default=8, metavar="N", help="experts of a sparse layer (default: %(default)s)")
    add("--experts-per-token", type=int, default=2, metavar="N", help="experts a token goes to (default: %(default)s)")
    add(
        "--every",
        type=int,
        default=2,
        metavar="N",
        help="make every Nth layer of both stacks sparse (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of the routers' first weights (default: %(default)s)")
    return parser

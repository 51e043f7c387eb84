"""The arguments of `weftformer compile`."""

import argparse

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer compile",
        description="Compile the decoding step of a model for this machine, about a minute for each number of rows. What was compiled\n"
        "is kept, and `weftformer.fast_decoding(model)` and `--compile` load it. WEFT_COMPILED_FOLDER names another folder.",
        epilog="example:\n  weftformer compile runs/mine --beams 1 5",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder or Hub id of a model of the family")
    add("--beams", type=int, nargs="+", default=[1], metavar="N", help="widths of the search (default: 1)")
    add("--batch-size", type=int, nargs="+", default=[1], metavar="N", help="texts or targets at a time (default: 1)")
    add("--threads", type=int, metavar="N", help="threads that will compute (default: as many as torch takes)")
    return parser

"""The arguments of `weftformer plan`."""

import argparse
from pathlib import Path

from ..arguments import RANKINGS, Parser, add_constraints


class _Parser(Parser):
    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        """A target a line of @FILE; empty lines are none."""
        return [arg_line.strip()] if arg_line.strip() else []


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="weftformer plan",
        usage="weftformer plan TARGET [TARGET ...] --model MODEL [--option value ...]",
        description="Plan synthesis routes for target molecules, best first, with a model that `weftformer train-routes` made.",
        epilog="example:\n  weftformer plan 'O=C(Nc1ccccc1)c1ccc(F)cc1' --model runs/demo --steps 1-3 --stock stock.smi --html routes.html",
        fromfile_prefix_chars="@",
    )
    add = parser.add_argument
    add("targets", nargs="+", metavar="TARGET", help="SMILES of a target molecule, or @FILE with one a line")
    add("--model", required=True, help="folder or Hub id of a trained route model")
    add("--steps", type=steps, metavar="N[-M]",
        help="longest path of the routes, in reactions; a range such as 2-5 tries each and ranks what they find together "
        "(default: 1-5)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE",
        help="what can be bought: SMILES or InChIKeys, one a line or in a table with a header, .gz too")  # fmt: skip
    add("--beams", type=int, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add("--show", type=int, default=3, metavar="N", help="routes to print for each target (default: %(default)s)")
    add("--html", type=Path, metavar="FILE", help="also draw all routes on one page to read in a browser")
    add("--picture", type=Path, metavar="FILE",
        help="also draw the best route, to a file that ends in .svg or .png (with several targets: FILE-1, ...)")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="also write all candidates, failed ones included")
    add("--device", help="where the model runs, e.g. cuda:0 (default: cuda where there is one)")
    search = parser.add_argument_group("how routes are searched and ranked")
    search.add_argument(
        "--starting-material", metavar="SMILES", help="molecule to begin from, for a model trained with one"
    )
    search.add_argument("--ranking", choices=RANKINGS, default="log_probability",
                        help="how candidates are scored; sqrt_length is DirectMultiStep's way (default: %(default)s)")  # fmt: skip
    search.add_argument("--texts", type=int, default=1, metavar="N",
                        help="SMILES of each target to search from, what they find pooled: N times as long, and more is found "
                        "(default: %(default)s)")  # fmt: skip
    search.add_argument("--seed", type=int, default=0, help="of the draw of these texts (default: %(default)s)")
    add_constraints(search)
    return parser


def steps(text: str) -> int | range:
    """`3` or `2-5`, the last included."""
    first, dash, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1) if dash else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range such as 2-5") from None

"""The arguments of `weftformer evaluate`."""

import argparse
from pathlib import Path

from ..arguments import RANKINGS, Parser, add_constraints

# What the model is told besides the target: as it is typed, and as a column is called.
CONDITIONS = {
    "steps": "told steps",
    "nothing": "told nothing",
    "steps+material": "told steps and starting material",
    "material": "told starting material",
}


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer evaluate",
        usage="weftformer evaluate ROUTES (--model MODEL | --predictions FILE ...) [--option value ...]",
        description="Plan targets whose routes are recorded, and say how often and how well the routes are found. The predictions\n"
        "come from a model, or from files that `weftformer plan --json` or `--save-predictions` wrote.",
    )
    add = parser.add_argument
    add("routes", type=Path, metavar="ROUTES", help="file of recorded routes, JSON lines (.gz works)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="folder or Hub id of a trained route model")
    source.add_argument("--predictions", nargs="+", type=Path, metavar="FILE",
                        help="score what is in these files instead, of this or another program; several are compared")  # fmt: skip
    add("--stock", type=Path, metavar="FILE", help="what can be bought: counts the targets with a purchasable route")
    add("--limit", type=int, metavar="N", help="only N targets, drawn at random")
    add("--seed", type=int, default=0,
        help="of that draw, of the starting materials and of the intervals (default: %(default)s)")  # fmt: skip
    add("--ks", type=int, nargs="+", default=[1, 5, 10, 50], metavar="K",
        help="ranks to report; those above the number of candidates are left out (default: 1 5 10 50)")  # fmt: skip
    missing = parser.add_mutually_exclusive_group()
    missing.add_argument("--skip-missing", dest="missing_targets", action="store_const", const="skip", default="refuse",
                         help="with --predictions: score only the targets that the files hold")  # fmt: skip
    missing.add_argument("--count-missing", dest="missing_targets", action="store_const", const="count",
                         help="with --predictions: targets that the files do not hold count as not found, as programs leave "
                         "out what they found no route for")  # fmt: skip
    planning = parser.add_argument_group("planning, with --model")
    planning.add_argument("--with", nargs="+", choices=list(CONDITIONS), dest="conditions", metavar="WHAT",
                          help="what the model is told besides the target, a column each: steps (the depth of the recorded "
                          "route), material (one of its leaves: only for a model that was trained with one, which its files "
                          "do not say), steps+material, nothing (default: steps, where the model takes them, and nothing)")  # fmt: skip
    planning.add_argument(
        "--beams", type=int, default=10, metavar="N", help="width of the search (default: %(default)s)"
    )
    planning.add_argument("--ranking", choices=RANKINGS, default="log_probability",
                          help="how candidates are scored (default: %(default)s)")  # fmt: skip
    planning.add_argument("--texts", type=int, default=1, metavar="N",
                          help="SMILES of each target to search from, drawn by --seed (default: %(default)s)")  # fmt: skip
    add_constraints(planning)
    planning.add_argument(
        "--batch-size", type=int, metavar="N", help="searches run at once (default: what has 80 beams)"
    )
    planning.add_argument("--max-new-tokens", type=int, metavar="N",
                          help="longest text of a route; a model that has learned little writes on and on otherwise")  # fmt: skip
    planning.add_argument("--device", help="where the model runs, e.g. cuda:0 (default: cuda where there is one)")
    planning.add_argument("--save-predictions", type=Path, metavar="FILE",
                          help="write all candidates, a target a line; FILE.part while it runs, which can be scored too")  # fmt: skip
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", type=Path, metavar="FILE", help="all numbers, also by depth and shape, and all ranks"
    )
    output.add_argument("--plot", type=Path, metavar="FILE", help="a picture, .svg, .png or .pdf; needs matplotlib")
    output.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    return parser

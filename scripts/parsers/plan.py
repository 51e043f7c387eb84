"""The arguments of `weftformer plan`."""

import argparse
from pathlib import Path

from ..arguments import PLAN_FORMS, RANKINGS, SALTS, Parser, add_constraints


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer plan",
        usage="weftformer plan [TARGET ...] [--model MODEL] [--input-file FILE] [--output-file FILE] [--option value ...]",
        description="Plan synthesis routes for target molecules, best first, with the model that comes with Weft or one of `train-routes`.\n"
        "Exit status: 0, 3 when at least one target has no route, 1 after an error, 2 for a wrong argument.",
        epilog="examples:\n"
        "  weftformer plan 'O=C(Nc1ccccc1)c1ccc(F)cc1' --steps 1-3 --html routes.html\n"
        "  weftformer plan --input-file targets.sdf --model runs/demo --output-file routes.jsonl --time-limit 60 --resume",
    )
    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET",
        help="SMILES, or @FILE as --input-file (default: standard input)")  # fmt: skip
    add("--model", help="folder or Hub id of a route model (default: the one that comes with Weft, with its stock)")
    add("--input-file", metavar="FILE", help="targets: .smi, .csv, .tsv or .sdf, .gz too; - is standard input")
    add("--steps", type=steps, metavar="N[-M]",
        help="longest path of the routes in reactions; 2-5 tries each and ranks all together (default: 1-5)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE",
        help="what can be bought: SMILES or InChIKeys, one a line or in a table, .gz too")  # fmt: skip
    add("--beams", type=int, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add("--time-limit", type=float, metavar="SECONDS", help="for each target; what is found by then is kept")
    add("--show", type=int, default=3, metavar="N", help="routes to print for each target (default: %(default)s)")
    add("--html", type=Path, metavar="FILE", help="draw all routes on one page to read in a browser")
    add("--picture", type=Path, metavar="FILE", help="draw the best route of each target, as .svg or .png")
    add("--device", help="where the model runs, e.g. cuda:0 (default: cuda where there is one)")
    files = parser.add_argument_group("files")
    add = files.add_argument
    add("--output-file", type=Path, metavar="FILE", help="file to write, a target at a time")
    add("--format", choices=PLAN_FORMS, metavar="FORM",
        help=f"{', '.join(PLAN_FORMS)} (default: jsonl)")  # fmt: skip
    add("--resume", action="store_true", help="go on where --output-file ends")
    add("--overwrite", action="store_true", help="replace --output-file")
    add("--json", type=Path, metavar="FILE", help="write all candidates as one JSON list at the end")
    add("--smiles-column", metavar="NAME", help="column with the SMILES (default: smiles, target, ...)")
    add("--id-column", metavar="NAME", help="column, or field of an .sdf, with the names (default: id, name, ...)")
    add("--no-progress", action="store_true", help="show no progress")
    search = parser.add_argument_group("how routes are searched and ranked")
    add = search.add_argument
    add("--expand-leaves", type=int, default=0, metavar="N",
        help="also plan routes to molecules that --stock lacks, up to N levels deep, and join them")  # fmt: skip
    add("--salts", choices=SALTS, default="refuse", help="strip keeps the largest organic part of a salt")
    add("--per-reaction", type=int, metavar="N", help="at most N routes with the same last reaction")
    add("--starting-material", metavar="SMILES", help="molecule to begin from, for a model trained with one")
    add("--ranking", choices=RANKINGS, metavar="SCORE", default="log_probability",
        help="log_probability, or sqrt_length as DirectMultiStep has it (default: %(default)s)")  # fmt: skip
    add("--texts", type=int, default=1, metavar="N",
        help="SMILES of each target to search from: N times as long, and more is found (default: %(default)s)")  # fmt: skip
    add("--seed", type=int, default=0, help="of the draw of these texts (default: %(default)s)")
    add("--forward-model", metavar="MODEL",
        help="say which reactions a model of `prepare-reactions` predicts the product of")  # fmt: skip
    add("--compile", action="store_true",
        help="compile the decoding step for this machine, a minute for each number of rows, and keep it for later")  # fmt: skip
    add("--no-bounds", action="store_true", help="take any number of steps and beams")
    add_constraints(search)
    return parser


def steps(text: str) -> int | range:
    """`3` or `2-5`, the last included."""
    first, dash, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1) if dash else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range such as 2-5") from None
    if isinstance(found, range) and not found:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins: a range is such as 2-5")
    if (found[0] if isinstance(found, range) else found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a route has at least 1 step")
    return found

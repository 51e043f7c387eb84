"""Make training data from route files of any kind, and report what was left out and why."""

import argparse
from pathlib import Path

from weftformer.routes.data.rows import EXCLUDE_BY, STARTING_MATERIALS

EPILOG = """forms of route files, gzipped or not, recognised by their content: JSON lines {"route": {"smiles": ..., "children": [...]}};
DirectMultiStep's text; trees of PaRoutes and AiZynthFinder, and its tables; RetroCast's files; reaction SMILES, those of a
route on one line with the target's last, or {"product": ..., "reactants": [...]}. docs/formats.md explains them.

example:
  weftformer routes prepare routes.json.gz --exclude n1-routes.json --permutations 3 --output-dir data/routes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # files first: after --exclude they would be excluded
    parser.usage = "%(prog)s FILE [FILE ...] --output-dir FOLDER [--exclude FILE ...] [--option value ...]"
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="routes, in any of the forms below")
    add("--output-dir", dest="out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="routes that must not be trained on")
    add("--permutations", type=int, default=1, metavar="N",
        help="most orders of the reactants of each route, as given and then random (default: %(default)s)")  # fmt: skip
    add("--aligned", type=int, default=0, metavar="N",
        help="write each reactant from the atom that makes its SMILES most like its product's: N texts of each route, from N "
        "atoms of the target (default: canonical SMILES everywhere)")  # fmt: skip
    add("--sub-routes", action="store_true", help="take each molecule that a route makes for a target of its own too")
    add("--starting-material", choices=STARTING_MATERIALS, default="none",
        help="give the model none, one drawn at random, or each in a row of its own (default: %(default)s)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace the folder if it is a data set that this command made")
    add("--workers", type=int, metavar="N", help="processes (default: one a core)")
    add = parser.add_argument_group("which routes").add_argument
    add("--exclude-by", choices=EXCLUDE_BY, default="target",
        help="leave out all routes to an excluded target, or also those that make it on the way (default: %(default)s)")  # fmt: skip
    add("--max-depth", type=int, metavar="N", help="most reactions in a row (default: no limit)")
    add("--max-source-length", type=int, metavar="TOKENS",
        help="most tokens of target and starting material (default: 280, as published models read)")  # fmt: skip
    add("--max-target-length", type=int, metavar="TOKENS",
        help="most tokens of a route (default: 1075, as published models write)")  # fmt: skip
    add("--seed", type=int, default=0, help="of everything that is drawn (default: %(default)s)")
    add("--no-progress", action="store_true", help="show no progress bar")


def main(args: argparse.Namespace) -> None:
    """Prepare the data set, print the report.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.preparation.prepare`.
    """
    from weftformer.routes.data.preparation import Preparation, prepare

    given = {name: getattr(args, name) for name in Preparation.__dataclass_fields__}
    settings = Preparation(**{name: value for name, value in given.items() if value is not None})
    report = prepare(
        args.files,
        args.out,
        settings,
        exclude=args.exclude,
        workers=args.workers,
        overwrite=args.overwrite,
        progress=not args.no_progress,
    )
    print(
        f"{report.format_table()}\n{report.rows:,} rows, in {args.out}; counts and examples in {args.out / 'report.json'}"
    )

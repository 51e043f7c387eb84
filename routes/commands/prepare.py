"""Make training data from route files of any format, and report skipped routes. The rows are for `weftformer routes
train`, or with --forward for `weftformer train`.
"""

import argparse
from pathlib import Path

from weftformer.common.options import add_options
from weftformer.routes.training.arguments import Preparation

EPILOG = """formats of route files, gzipped or not, detected from their content: JSON lines
{"route": {"smiles": ..., "children": [...]}}; DirectMultiStep's text; trees of PaRoutes and AiZynthFinder, and its
tables; RetroCast's files; reaction SMILES, those of a route on one line with the target's last, or
{"product": ..., "reactants": [...]}. docs/formats.md explains them.

example:
  weftformer routes prepare routes.json.gz --exclude n1-routes.json --permutations 3 --output-dir data/routes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # files first, because after --exclude they would be excluded
    parser.usage = "%(prog)s FILE [FILE ...] --output-dir FOLDER [--exclude FILE ...] [--option value ...]"
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="routes, in any of the formats below")
    add("--output-dir", dest="out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="routes to exclude from training")
    add("--overwrite", action="store_true", help="replace the folder if this command made it")
    add("--workers", type=int, metavar="N", help="processes (default: one per core)")
    add("--no-progress", action="store_true", help="show no progress bar")
    add_options(parser.add_argument_group("rows"), Preparation)


def main(args: argparse.Namespace) -> None:
    """Prepare the data set, and print the report.

    Raises:
        ValueError, OSError: as in `weftformer.routes.training.preparation.prepare`.
    """
    from weftformer.routes.training.preparation import prepare

    settings = Preparation(**{name: getattr(args, name) for name in Preparation.__dataclass_fields__})
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
        f"{report.format_table()}\n{report.rows:,} rows, in {args.out}; counts and examples in "
        f"{args.out / 'report.json'}"
    )

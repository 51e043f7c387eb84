"""Make training data for route models and forward models from route files of any format, and report skipped routes with reasons."""

import argparse
from pathlib import Path

from weftformer.routes.data.rows import EXCLUDE_BY, STARTING_MATERIALS

EPILOG = """formats of route files, gzipped or not, detected from their content: JSON lines {"route": {"smiles": ..., "children": [...]}};
DirectMultiStep's text; trees of PaRoutes and AiZynthFinder, and its tables; RetroCast's files; reaction SMILES, those of a
route on one line with the target's last, or {"product": ..., "reactants": [...]}. docs/formats.md explains them.

example:
  weftformer routes prepare routes.json.gz --exclude n1-routes.json --permutations 3 --output-dir data/routes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # files first, because after --exclude they would be excluded
    parser.usage = "%(prog)s FILE [FILE ...] --output-dir FOLDER [--exclude FILE ...] [--option value ...]"
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="routes, in any of the formats below")
    add("--output-dir", dest="out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="routes to exclude from training")
    add("--permutations", type=int, default=1, metavar="N",
        help="maximum number of reactant orders per route: the given one, then random ones (default: %(default)s)")  # fmt: skip
    add("--aligned", type=int, default=0, metavar="N",
        help="write N texts per route, from N atoms of the target, with the SMILES of each reactant aligned to that of its product "
        "(default: canonical SMILES)")  # fmt: skip
    add("--sub-routes", action="store_true", help="also add each intermediate as a target")
    add("--single-steps", action="store_true",
        help="also add each reaction as a one-step route; a model needs them for the search to the stock")  # fmt: skip
    add("--forward", action="store_true",
        help="make rows for a forward model instead: each reaction, aligned, from its reactants to its product")  # fmt: skip
    add("--starting-material", choices=STARTING_MATERIALS, default="none",
        help="starting materials to add: none, one at random, or each in a separate row (default: %(default)s)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace the folder if this command made it")
    add("--workers", type=int, metavar="N", help="processes (default: one per core)")
    add = parser.add_argument_group("which routes").add_argument
    add("--exclude-by", choices=EXCLUDE_BY, default="target",
        help="exclude routes to an excluded target, or also routes that make it as an intermediate (default: %(default)s)")  # fmt: skip
    add("--max-depth", type=int, metavar="N",
        help="maximum number of reactions in the longest path (default: no limit)")  # fmt: skip
    add("--max-source-length", type=int, metavar="TOKENS",
        help="limit of target and starting material in tokens (default: 280, as in published models)")  # fmt: skip
    add("--max-target-length", type=int, metavar="TOKENS",
        help="limit of a route in tokens (default: 1075, as in published models)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    add("--no-progress", action="store_true", help="show no progress bar")


def main(args: argparse.Namespace) -> None:
    """Prepare the data set, and print the report.

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

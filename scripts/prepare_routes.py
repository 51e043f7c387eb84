"""`weftformer prepare-routes`: route files of any kind as one data set to train on, and a report of what was left out and why."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from weftformer.routes.data.preparation import Preparation, prepare
from weftformer.routes.data.rows import STARTING_MATERIALS
from weftformer.routes.data.selection import EXCLUDE_BY

_DEFAULT = Preparation()
_EPILOG = """forms of route files, gzipped or not, told by what they hold:
  JSON lines       {"route": {"smiles": ..., "children": [...]}}, or any form below on each line
  DirectMultiStep  its text, one route a line or in JSON
  PaRoutes         JSON list of trees of molecules and reactions
  AiZynthFinder    the same, a list for each target; its tables
  RetroCast        benchmarks, tasks, candidates, predictions
  reactions        reaction SMILES, those of a route on one line, separated by spaces, the target's last; atom maps are taken
                   off. Or JSON lines {"product": ..., "reactants": [...]}. One reaction is a route of one step.

examples:
  weftformer prepare-routes routes.jsonl.gz --out data/routes
  weftformer prepare-routes all-routes.json.gz --exclude n1-routes.json n5-routes.json --permutations 3 \\
      --starting-material random --validation 0.01 --out data/routes
  weftformer prepare-routes routes.jsonl.gz reactions.jsonl.gz --weights 1 0.5 --aligned 8 --sub-routes \
      --exclude held-out.jsonl.gz --exclude-by made --out data/aligned
  weftformer train-routes --train_file data/routes --test_file n1-routes.json
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weftformer prepare-routes",
        # files first: after --exclude they would be excluded
        usage="weftformer prepare-routes FILE [FILE ...] --out DIR [--exclude FILE ...] [--argument value ...]",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="routes, in any of the forms below")
    add("--out", type=Path, required=True, metavar="DIR", help="folder to write, for `datasets.load_from_disk`")
    add("--overwrite", action="store_true", help="replace DIR if it is a data set that this command made")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="routes that must not be trained on")
    add("--exclude-by", choices=EXCLUDE_BY, default=_DEFAULT.exclude_by,
        help="leave out all routes to an excluded route's target, also routes that make it on the way (made), or only that "
        "route; their sub-routes too (default: %(default)s)")  # fmt: skip
    add("--permutations", type=int, default=_DEFAULT.permutations, metavar="N",
        help="most orders of the reactants for each route: as given, then distinct random ones (default: %(default)s)")  # fmt: skip
    add("--aligned", type=int, default=_DEFAULT.aligned, metavar="N",
        help="write each reactant from the atom that makes its SMILES most like its product's: N texts of each route, from "
        "N atoms of the target, its canonical SMILES first (default: canonical SMILES everywhere)")  # fmt: skip
    add("--sub-routes", action="store_true", help="take each molecule that a route makes for a target of its own too")
    add("--weights", type=float, nargs="+", default=[], metavar="W",
        help="one for each FILE: how many times as many texts its routes have as --permutations or --aligned say; with less "
        "than one text a route, as many routes are drawn (default: 1)")  # fmt: skip
    add("--starting-material", choices=STARTING_MATERIALS, default=_DEFAULT.starting_material,
        help="tell the model none, one drawn at random, or each in a row of its own (default: %(default)s)")  # fmt: skip
    add("--max-source-length", type=int, default=_DEFAULT.max_source_length, metavar="TOKENS",
        help="most tokens of target and starting material; the target's part has at most 145 (default: %(default)s)")  # fmt: skip
    add("--max-target-length", type=int, default=_DEFAULT.max_target_length, metavar="TOKENS",
        help="most tokens of a route (default: %(default)s)")  # fmt: skip
    add("--min-depth", type=int, default=_DEFAULT.min_depth, metavar="N",
        help="fewest reactions on the longest path (default: %(default)s)")  # fmt: skip
    add("--max-depth", type=int, metavar="N", help="most reactions on the longest path (default: no limit)")
    add("--keep-duplicates", action="store_true", help="keep routes that differ at most in the order of reactants")
    add("--validation", type=float, default=_DEFAULT.validation, metavar="SHARE",
        help="share of the targets, with all their routes, for a split of its own (default: none)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="processes (default: one a core)")
    add(
        "--seed",
        type=int,
        default=_DEFAULT.seed,
        help="of orders, texts, draws, starting materials and split (default: %(default)s)",
    )
    add("--no-progress", action="store_true", help="show no progress bar")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, prepare the data set, print the report.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.preparation.prepare`.
    """
    arguments = build_parser().parse_args(argv)
    settings = Preparation(
        permutations=arguments.permutations,
        aligned=arguments.aligned,
        sub_routes=arguments.sub_routes,
        weights=tuple(arguments.weights),
        starting_material=arguments.starting_material,
        max_source_length=arguments.max_source_length,
        max_target_length=arguments.max_target_length,
        min_depth=arguments.min_depth,
        max_depth=arguments.max_depth,
        deduplicate=not arguments.keep_duplicates,
        exclude_by=arguments.exclude_by,
        validation=arguments.validation,
        seed=arguments.seed,
    )
    report = prepare(
        arguments.files,
        arguments.out,
        settings,
        exclude=arguments.exclude,
        workers=arguments.workers,
        overwrite=arguments.overwrite,
        progress=not arguments.no_progress,
    )
    rows = ", ".join(f"{count:,} rows for {name}" for name, count in report.rows.items())
    print(
        f"{report.format_table()}\n{rows}, in {arguments.out}; counts and examples in {arguments.out / 'report.json'}"
    )


if __name__ == "__main__":
    main()

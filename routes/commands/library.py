"""Make a library of transformations from recorded reactions, such as those of a company, or write the included one for
AiZynthFinder.
"""

import argparse
from pathlib import Path

EPILOG = """REACTIONS is a table with a column of reaction SMILES (`reaction_smiles`, `rxn_smiles`, ...), or has a
reaction SMILES or a JSON object with one on each line, gzipped or not. A row may also have `class` (one of the ten
classes of USPTO-50K), `id` and `agents`. Agents may also stand among the reactants or between the two `>`: what gives
no atom to the product is a reagent. Reactions without atom maps get them, by the included library or by what product
and reactants have in common. Those whose maps are uncertain are left out, with their names.

example:
  weftformer routes library reactions.csv --output-file own.jsonl.gz
  weftformer routes plan "CC(=O)Nc1ccc(O)cc1" --library own.jsonl.gz
  weftformer routes library --aizynthfinder files && aizynthcli --config files/config.yml --smiles targets.txt"""

# Of the reactions that are left out for one reason, how many are named.
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s (REACTIONS --output-file FILE | --aizynthfinder FOLDER [--stock FILE]) [--option value ...]"
    )
    add = parser.add_argument
    add("reactions", type=Path, nargs="?", metavar="REACTIONS", help="reactions")
    add("--output-file", type=Path, metavar="FILE", help="library to write, for --library")
    add("--aizynthfinder", type=Path, metavar="FOLDER",
        help="write the included templates, their ranker, the stock and a config.yml for AiZynthFinder "
        "(needs onnx)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE", help="molecules for its stock, SMILES (default: the included ones)")
    add("--workers", type=int, metavar="N", help="processes (default: one per core)")
    add("--overwrite", action="store_true", help="replace the file, or the files of the folder")
    add("--no-progress", action="store_true", help="show no progress bar")


def check(args: argparse.Namespace) -> None:
    from weftformer.routes.shipped import stock_file
    from weftformer.training.options import check_exist

    if (args.aizynthfinder is None) == (args.reactions is None):
        raise ValueError("give REACTIONS and --output-file, or --aizynthfinder.")
    if args.aizynthfinder is not None:
        if args.output_file is not None:
            raise ValueError("--output-file is for a library of REACTIONS: --aizynthfinder names a folder.")
        if args.stock is not None:
            check_exist(str(stock_file(args.stock)))
        if args.aizynthfinder.exists() and not args.overwrite:
            raise FileExistsError(f"{args.aizynthfinder} exists: choose another folder, or use --overwrite.")
        return
    if args.output_file is None or args.stock is not None:
        raise ValueError("--output-file is required." if args.stock is None else "--stock is for --aizynthfinder.")
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers} is not allowed: give at least 1.")
    if not args.output_file.parent.is_dir():
        raise FileNotFoundError(f"the folder {args.output_file.parent} does not exist.")
    if args.output_file.exists() and not args.overwrite:
        raise FileExistsError(f"{args.output_file} exists: choose another file, or replace it with --overwrite.")


def main(args: argparse.Namespace) -> None:
    """Write the library, and print what it has.

    Raises:
        ValueError, OSError: as in `weftformer.routes.training.extraction.make_library`.
        ImportError: `onnx` is not installed, for AiZynthFinder.
    """
    if args.aizynthfinder is not None:
        return _write_for_aizynthfinder(args)
    import multiprocessing

    from weftformer.routes.training.extraction import make_library, write

    workers = args.workers or multiprocessing.cpu_count()
    rows, problems = make_library(args.reactions, workers, progress=not args.no_progress)
    write(rows, args.output_file)
    for reason, names in sorted(problems.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        print(f"{len(names):>10,}  left out: {reason}: {', '.join(names[:_SHOWN])}{more}")
    reactions = sum(transformation.count for _, transformation in rows)
    print(f"{reactions:,} reactions have {len(rows):,} different transformations. Saved to {args.output_file}.")


def _write_for_aizynthfinder(args: argparse.Namespace) -> None:
    from weftformer.routes.files.targets import read_targets
    from weftformer.routes.judging import shipped_library
    from weftformer.routes.shipped import STOCK, stock_file
    from weftformer.routes.training.aizynthfinder import write_aizynthfinder

    molecules = [target.smiles for target in read_targets(stock_file(args.stock or STOCK))]
    write_aizynthfinder(shipped_library(), molecules, args.aizynthfinder)
    print(f"Saved for AiZynthFinder to {args.aizynthfinder}: aizynthcli --config {args.aizynthfinder / 'config.yml'}")

"""Make a library of transformations from recorded reactions with atom maps, such as those of a company."""

import argparse
from pathlib import Path

EPILOG = """REACTIONS is a table with a column of reaction SMILES (`reaction_smiles`, `rxn_smiles`, ...), or has a reaction
SMILES or a JSON object with one on each line, gzipped or not. A row may also have `class` (one of the ten classes of
USPTO-50K), `id` and `agents`. Agents may also stand among the reactants or between the two `>`: what gives no atom to the
product is a reagent. If the reactions have no atom maps, rxnmapper adds them, in an environment of its own.

example:
  weftformer routes library reactions.csv --output-file own.jsonl.gz
  weftformer routes plan "CC(=O)Nc1ccc(O)cc1" --library own.jsonl.gz"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s REACTIONS --output-file FILE [--option value ...]"
    add = parser.add_argument
    add("reactions", type=Path, metavar="REACTIONS", help="reactions with atom maps")
    add("--output-file", type=Path, required=True, metavar="FILE", help="library to write, for --library")
    add("--workers", type=int, metavar="N", help="processes (default: one per core)")
    add("--overwrite", action="store_true", help="replace the file")
    add("--no-progress", action="store_true", help="show no progress bar")


def check(args: argparse.Namespace) -> None:
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers} is not allowed: give at least 1.")
    if not args.output_file.parent.is_dir():
        raise FileNotFoundError(f"the folder {args.output_file.parent} does not exist.")
    if args.output_file.exists() and not args.overwrite:
        raise FileExistsError(f"{args.output_file} exists: choose another file, or replace it with --overwrite.")


def main(args: argparse.Namespace) -> None:
    """Write the library, and print what it has.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.library.make_library`.
    """
    import multiprocessing

    from weftformer.routes.data.library import make_library, write

    workers = args.workers or multiprocessing.cpu_count()
    rows, problems = make_library(args.reactions, workers, progress=not args.no_progress)
    write(rows, args.output_file)
    for reason, count in problems.most_common():
        print(f"{count:>10,}  left out: {reason}")
    reactions = sum(one.count for _, one in rows)
    print(f"{reactions:,} reactions have {len(rows):,} different transformations. Saved to {args.output_file}.")

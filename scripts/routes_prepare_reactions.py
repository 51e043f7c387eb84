"""Write the reactions of route files as pairs of reactants and product. A forward model trained on
these pairs checks planned routes (`weftformer routes plan --forward-model`)."""

import argparse
from pathlib import Path

from weftformer.scripts.arguments import check_at_least_one, check_folders

EPILOG = """example:
  weftformer routes prepare-reactions routes.jsonl.gz reactions.jsonl.gz --exclude held-out.jsonl.gz --texts 5 \\
      --output-file reactions.csv.gz
  weftformer train --train-file reactions.csv.gz --source-column reactants --target-column product \\
      --tokenizer-vocab-size 300 --preset modern-tiny --config-overrides cross_attention_position_type=rotary \\
      --output-dir runs/forward"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s FILE [FILE ...] --output-file PAIRS [--option value ...]"
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE",
        help="routes or single reactions, in any format of `routes prepare`")  # fmt: skip
    add("--output-file", type=Path, required=True, metavar="PAIRS", help="csv to write, gzipped if it ends in .gz")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE",
        help="routes whose products are excluded from training, whatever their reactants")  # fmt: skip
    add("--texts", type=int, default=1, metavar="N",
        help="largest number of pairs of each reaction, each from another atom of the product (default: %(default)s)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the chosen atoms (default: %(default)s)")
    add("--no-progress", action="store_true", help="show no progress bar")


def main(args: argparse.Namespace) -> None:
    """Write the pairs, and print how many there are.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.forward_pairs.write_forward_pairs`.
    """
    from weftformer.routes.data.forward_pairs import write_forward_pairs

    check_at_least_one(args, "texts")
    check_folders(args, "output_file")
    counts = write_forward_pairs(
        args.files,
        args.output_file,
        exclude=args.exclude,
        texts=args.texts,
        seed=args.seed,
        progress=not args.no_progress,
    )
    print(
        f"{counts['read']:,} routes read, {counts['unreadable']:,} of them unreadable; {counts['excluded']:,} reactions excluded.\n"
        f"{counts['pairs']:,} pairs of {counts['reactions']:,} reactions are in {args.output_file}."
    )

"""The arguments of `weftformer prepare-reactions`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer prepare-reactions",
        usage="weftformer prepare-reactions FILE [FILE ...] --output-file PAIRS [--option value ...]",
        description="Write the reactions of route files as pairs of reactants and product. A model that is trained on them predicts\n"
        "what a reaction gives, and so checks planned routes (`weftformer plan --forward-model`).",
        epilog="example:\n"
        "  weftformer prepare-reactions routes.jsonl.gz reactions.jsonl.gz --exclude held-out.jsonl.gz --texts 5 \\\n"
        "      --output-file reactions.csv.gz\n"
        "  weftformer train --train-file reactions.csv.gz --source-column reactants --target-column product \\\n"
        "      --tokenizer-vocab-size 300 --preset modern-tiny --output-dir runs/forward",
    )
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="routes or single reactions, in any form that `prepare-routes` reads",
    )
    add("--output-file", type=Path, required=True, metavar="PAIRS", help="csv to write, gzipped if it ends in .gz")
    add("--exclude", nargs="+", type=Path, default=[], metavar="FILE",
        help="routes whose products must not be trained on, whatever they are made from")  # fmt: skip
    add("--texts", type=int, default=1, metavar="N",
        help="most pairs of each reaction: the first in canonical SMILES, the others drawn at random (default: %(default)s)")  # fmt: skip
    add("--seed", type=int, default=0, help="of these draws (default: %(default)s)")
    add("--no-progress", action="store_true", help="show no progress bar")
    return parser

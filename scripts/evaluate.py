"""Score a model on a file of pairs of texts: the metrics of training with intervals, and the wrong pairs with the
model's output. `weftformer routes evaluate` scores routes.
"""

import argparse
import sys

from weftformer.scripts.arguments import (
    add_model_options,
    add_threads_option,
    check_model,
    load_model,
    new_file,
    positive,
)
from weftformer.training.options import check_exist


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s FILE --model MODEL [--option value ...]"
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="pairs: csv, tsv, json, jsonl, parquet, txt, ...")
    add("--input-file", metavar="FILE", help="the same, as in `generate`")
    add("--model", required=True, help="folder or Hub id of a trained text model")
    add("--limit", type=positive, metavar="N", help="only the first N pairs")
    for side in ("source", "target"):
        add(f"--{side}-column", metavar="NAME", help=f"column of the {side}s (default: as in training)")
    add("--condition-columns", metavar="A,B", help="numeric columns, as in training")
    add("--beams", type=positive, metavar="N", help="width of the search (default: as saved with the model)")
    add("--max-new-tokens", type=positive, metavar="N",
        help="longest text, in tokens (default: as saved with the model, else 256)")  # fmt: skip
    add("--batch-size", type=positive, default=32, metavar="N", help="pairs per batch (default: %(default)s)")
    add_model_options(add)
    add_threads_option(add)
    add("--json", type=new_file, metavar="FILE", help="write the scores and their intervals")


def main(args: argparse.Namespace) -> None:
    """Write a text for each pair, and print the scores.

    Raises:
        ValueError, OSError: an argument does not fit, the model writes routes, or a file is not valid.
    """
    from weftformer.common.atomic import write_json
    from weftformer.common.words import counted
    from weftformer.inference import TextTask
    from weftformer.inference.scoring import score_pairs
    from weftformer.training.files import first_number
    from weftformer.training.metrics import verdict, wrong_rows
    from weftformer.training.options import DataArguments
    from weftformer.training.pairs import Pairs, trained_columns
    from weftformer.training.sources import TrainedSources

    task = TextTask(*load_model(args, "texts"))
    columns = trained_columns(args.model)
    data = DataArguments(
        train_file=args.file,
        source_column=args.source_column or columns.get("source"),
        target_column=args.target_column or columns.get("target"),
        condition_columns=args.condition_columns,
        max_train_samples=args.limit,
    )
    try:
        pairs = Pairs(data)
    except ValueError as error:
        raise ValueError(f"{error} If these are routes, `weftformer routes evaluate` scores them.") from error
    settings = task.settings(args.beams, args.max_new_tokens)
    first = first_number(args.file)
    metrics = score_pairs(task, pairs.train, pairs.columns, settings, batch_size=args.batch_size, first=first)
    scores, intervals = metrics.scores(), metrics.intervals()
    if num_skipped := len(pairs) - len(metrics.references):
        print(f"Skipped: {num_skipped:,} of {counted(len(pairs), 'pair')}, with an empty text.", file=sys.stderr)
    print(f"{counted(len(metrics.references), 'pair')} of {args.file}")
    for name, score in scores.items():
        low, high, _ = intervals.get(name, (None, None, None))
        print(f"{name:<12}{score:8.4g}" + ("" if low is None else f"  [{low:.4g}, {high:.4g}]"))
    print(verdict(wrong_rows(metrics.rows()), len(metrics.references)))
    for note in TrainedSources.load(args.model).notes(pairs.keys()):
        print(note)
    if args.json is not None:
        write_json(args.json, {"pairs": len(metrics.references), "scores": scores, "intervals": intervals})


def check(args: argparse.Namespace) -> None:
    """Find mistakes that would otherwise show only after scoring."""
    if (args.file is None) == (args.input_file is None):
        raise ValueError("Give the pairs once: FILE, or --input-file FILE.")
    args.file = args.file or args.input_file
    check_exist(args.file)
    check_model(args.model)

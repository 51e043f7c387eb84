"""The arguments of `weftformer benchmark`."""

import argparse
from pathlib import Path

from ..arguments import Parser

# As in `benchmarks/decoding.py`, which needs torch.
CASES = (
    "reference", "greedy", "batch", "beam10", "beam50", "length100", "length1000", "published", "routes",
    "translation-greedy", "translation-greedy-batch", "translation-beam5", "translation-beam5-batch", "sparse", "train",
    "train-sparse", "experts", "batching", "vocabulary",
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer benchmark",
        usage="weftformer benchmark [CASE ...] [--json FILE] [--into FILE ...] [--option value ...]",
        description="Time and memory of Weft and its peers, side by side in one process on the same weights. Every contender runs\n"
        "in turn, after warm-ups; a row gives the median, its range and its ratio to the first contender. Outputs (tokens, or\n"
        "logits before training) are compared before a time is reported.",
    )
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE",
        help=f"of {', '.join(CASES)} (default: all, but those that need files only if they are named)")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add(
        "--figures",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing, take what --json wrote to these files",
    )
    add("--into", type=Path, nargs="+", metavar="FILE", default=[],
        help="write tables between `<!-- benchmark CASE -->` and `<!-- end -->` of Markdown files; the case `summary` is one "
        "table of all")  # fmt: skip
    add("--plot", type=Path, metavar="FILE", help="draw the costs to this file (needs matplotlib)")
    add("--only", nargs="+", metavar="NAME", help="contenders whose names contain one of these, and the first")
    add = parser.add_argument_group("how it is measured").add_argument
    add("--runs", type=int, default=5, metavar="N", help="counted runs of each contender (default: %(default)s)")
    add("--warm-ups", type=int, default=3, metavar="N", help="runs before those (default: %(default)s)")
    add("--threads", type=int, default=2, metavar="N", help="threads of torch (default: %(default)s)")
    add("--new-tokens", type=int, metavar="N", help="tokens to write when decoding (default: the case's)")
    add("--peer-runs", type=int, default=1, metavar="N",
        help="runs of directmultistep's search, which takes minutes (default: %(default)s)")  # fmt: skip
    add("--model", metavar="FOLDER",
        help="of the case routes: a trained dms-flash-10m; of translation: a trained text model with its tokenizer")  # fmt: skip
    add("--routes", metavar="FILE", help="of the cases routes and batching: a file of routes")
    add("--texts", metavar="FILE", help="of translation: source texts, one a line, gzipped or not")
    add(
        "--sources",
        type=int,
        default=32,
        metavar="N",
        help="of translation: texts, from the first on (default: %(default)s)",
    )
    add("--no-compile", action="store_true", help="leave compiled contenders out")
    return parser

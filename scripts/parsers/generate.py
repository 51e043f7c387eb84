"""The arguments of `weftformer generate`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer generate",
        usage="weftformer generate [TEXT ...] --model MODEL [--input-file FILE] [--output-file FILE] [--option value ...]",
        description="Write a text for each line: of the command line, of a file, or of standard input. Line n of the output belongs\n"
        "to line n of the input, or to row n of a table (a blank line of a csv is no row).",
        epilog="examples:\n"
        "  weftformer generate 'three one four' --model runs/mine\n"
        "  weftformer generate --model runs/mine --input-file new.csv --source-column question --output-file answers.txt\n"
        "  zcat de.txt.gz | weftformer generate --model runs/de-en --beams 5 --json-lines > en.jsonl",
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="a text to answer (default: lines of --input-file or standard input)")
    add("--model", required=True, help="folder or Hub id of a trained model of texts")
    add("--input-file", metavar="FILE",
        help="a text a line; or a table: csv, tsv, json, jsonl, parquet; .gz and .zst too; - is standard input")  # fmt: skip
    add("--source-column", metavar="NAME", help="column of a table to read (default: source, else the first)")
    add("--output-file", type=Path, metavar="FILE", help="file to write (default: standard output)")
    add("--resume", action="store_true", help="go on behind the last whole line of --output-file")
    add("--beams", type=int, metavar="N", help="width of the search (default: what the model's folder says)")
    add("--json-lines", action="store_true",
        help="write JSON lines: source, text, and score, the log-probability of the whole text")  # fmt: skip
    add("--batch-size", type=int, default=32, metavar="N", help="lines computed at a time (default: %(default)s)")
    add("--device", help="where the model runs, e.g. cuda:0 (default: cuda where there is one)")
    add("--compile", action="store_true",
        help="take the compiled steps of `weftformer compile`; another number of rows is compiled first")  # fmt: skip
    more = parser.add_argument_group("how texts are written")
    add = more.add_argument
    add(
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="longest text (default: what the model's folder says, else 256)",
    )
    add(
        "--num-return-sequences",
        type=int,
        default=1,
        metavar="N",
        help="texts for a line, with --json-lines (default: 1)",
    )
    add("--sample", action="store_true", help="draw texts instead of searching for the best")
    add("--seed", type=int, default=0, help="of what is drawn (default: %(default)s)")
    add("--temperature", type=float, metavar="T", help="below 1 draws what is probable more often (default: 1)")
    add("--top-k", type=int, metavar="K", help="draw among the K most probable tokens (default: all)")
    add("--top-p", type=float, metavar="P", help="draw among the tokens that have this share together (default: 1)")
    more = parser.add_argument_group("files")
    add = more.add_argument
    add("--condition-columns", metavar="A,B", help="columns of numbers for a model that was trained with some")
    add("--overwrite", action="store_true", help="replace --output-file")
    add("--no-progress", action="store_true", help="say nothing of how far it is")
    return parser

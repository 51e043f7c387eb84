"""Generate a text for each line of a file or of standard input, or for each text on the command line. Line n of the
output corresponds to line n of the input, or to row n of a table (blank lines of a csv are not counted).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from weftformer.common.atomic import atomic_write
from weftformer.common.packed import unpacked
from weftformer.common.words import counted
from weftformer.scripts.arguments import add_model_options, check_model, check_output, loading_options, positive
from weftformer.scripts.sharing import add_sharing_options, is_shared, output_place, run_shared, unfinished_rows
from weftformer.training.options import check_exist

if TYPE_CHECKING:
    from weftformer.inference.lines import Line

EPILOG = """examples:
  weftformer generate 'three one four' --model runs/mine
  weftformer generate --model runs/mine --input-file new.csv --source-column question --output-file answers.txt
  zcat de.txt.gz | weftformer generate --model runs/de-en --beams 5 --json-lines > en.jsonl"""

COMMAND = "generate"
# Options that determine the texts, and fields that rows of parts have besides the answers.
_OPTIONS = (
    "model", "beams", "max_new_tokens", "num_return_sequences", "sample", "temperature", "top_k", "top_p",
    "json_lines", "condition_columns", "source_column", "dtype",
)  # fmt: skip
_SAMPLING = ("temperature", "top_k", "top_p")
_OF_PARTS = ("number", "state", "seconds")
# A text below this probability is doubtful, and so many are named.
_DOUBTFUL, _SHOWN = 0.5, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [TEXT ...] --model MODEL [--input-file FILE] [--output-file FILE] [--option value ...]"
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="a source text (default: lines of --input-file or standard input)")
    add("--model", help="folder or Hub id of a trained text model; required, except with --join")
    add("--input-file", metavar="FILE",
        help="one text per line; or a csv, tsv, json, jsonl or parquet table; .gz, .zst too; - is stdin")  # fmt: skip
    add("--output-file", type=output_place, metavar="FILE",
        help="file to write (default: standard output); .csv: with sources and probabilities")  # fmt: skip
    add("--source-column", metavar="NAME", help="column of a table to read (default: as in training)")
    add("--resume", action="store_true", help="continue an interrupted run, whose lines are in FILE.parts")
    add("--beams", type=positive, metavar="N", help="width of the search (default: as saved with the model)")
    add("--json-lines", action="store_true",
        help="write JSON lines: source, text, and score, the log-probability of the whole text")  # fmt: skip
    add("--batch-size", type=positive, metavar="N", help="lines per batch (default: up to 4,096 tokens)")
    add_model_options(add)
    add = parser.add_argument_group("generation").add_argument
    add("--max-new-tokens", type=positive, metavar="N",
        help="longest text, in tokens (default: as saved with the model, else 256)")  # fmt: skip
    add("--num-return-sequences", type=positive, default=1, metavar="N",
        help="texts for a line, with --json-lines (default: 1)")  # fmt: skip
    add("--sample", action="store_true", help="sample texts instead of searching for the best")
    add("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)")
    add("--temperature", type=float, metavar="T", help="below 1, probable tokens are sampled more often (default: 1)")
    add("--top-k", type=int, metavar="K", help="sample among the K most probable tokens (default: all)")
    add("--top-p", type=float, metavar="P",
        help="sample among the most probable tokens whose probabilities add up to P (default: 1)")  # fmt: skip
    add = parser.add_argument_group("files").add_argument
    add("--condition-columns", metavar="A,B", help="numeric columns for a model trained with some")
    add("--overwrite", action="store_true", help="replace --output-file")
    add("--no-progress", action="store_true", help="show no progress")
    add_sharing_options(add)


def check(args: argparse.Namespace) -> None:
    """Check the arguments as far as possible without a model.

    Raises:
        ValueError: naming the argument.
    """
    if args.texts and args.input_file:
        raise ValueError("Texts on the command line and --input-file are mutually exclusive: give one.")
    for name in _SAMPLING:
        if getattr(args, name) is not None and not args.sample:
            raise ValueError(f"--{name.replace('_', '-')} requires --sample.")
    if args.num_return_sequences > 1 and not args.json_lines:
        raise ValueError("--num-return-sequences above 1 requires --json-lines.")
    if not args.sample and args.num_return_sequences > (args.beams or args.num_return_sequences):
        raise ValueError(f"{args.num_return_sequences} --num-return-sequences need as many --beams, or --sample.")
    if not is_shared(args):
        check_output(args.output_file, args.resume, args.overwrite)
        if str(args.output_file).endswith((".gz", ".zst")):
            raise ValueError(f"--output-file {args.output_file} would not be compressed: choose another ending.")
    check_exist(None if args.input_file == "-" else args.input_file)
    if args.join is None:
        if args.model is None:
            raise ValueError("--model is required: give the folder or Hub id of a trained text model.")
        check_model(args.model)


def main(args: argparse.Namespace) -> int:
    """Read the lines and write a line for each, here or with workers, or join the parts of workers.

    Returns:
        1 if the model cannot read some of the lines, whose output lines are then empty, else 0.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read or written.
    """
    if args.join is not None:
        from weftformer.distributed.parts import Parts

        _save(args, Parts(args.join).rows(COMMAND))
        return 0
    from weftformer.distributed import job
    from weftformer.distributed.tasks import GenerateTask, Result

    lines, rows = list(read(args)), list[dict[str, Any]]()
    task = GenerateTask(
        args.model, loading_options(args), args.threads, _options(args), _settings(args), args.batch_size, args.seed,
        args.json_lines or _is_csv(args), len(_conditions(args)),
    )  # fmt: skip
    if is_shared(args):
        states = run_shared(args, task, lines)
        return 0 if states.total() == states["done"] else 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")

    def take(result: Result) -> str | None:
        if parts is None:
            rows.append(result.value)
        return _line(args, result.value) if args.output_file is None else None

    with unfinished_rows(args, task, lines) as parts:
        job.run(task, list(enumerate(lines)), parts, is_shown=not args.no_progress, take=take)
        if args.output_file is not None:
            _save(args, rows if parts is None else parts.rows(COMMAND))
        return report(rows if parts is None else parts.rows(COMMAND), names_doubtful=_is_csv(args))


def _save(args: argparse.Namespace, rows: Iterable[dict[str, Any]]) -> None:
    """Write the texts of rows as one file, a line for each line of the input.

    Raises:
        ValueError: lines are missing; the message names them. OSError: a file cannot be read or written.
    """
    with atomic_write(args.output_file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        if not _is_csv(args):
            file.writelines(_line(args, row) + "\n" for row in rows)
            return
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["source", "text", "probability"])
        for row in rows:
            probability = _probability(row)
            table.writerow([row["source"], row["text"], "" if probability is None else f"{probability:.4f}"])


def _is_csv(args: argparse.Namespace) -> bool:
    return str(args.output_file).endswith(".csv") and not args.json_lines


def _probability(row: dict[str, Any]) -> float | None:
    return None if row.get("score") is None else math.exp(row["score"])


def report(rows: Iterable[dict[str, Any]], names_doubtful: bool = False) -> int:
    """Report texts that were cut, texts that are improbable (`names_doubtful`, by their rows in a csv), and lines that
    the model cannot read, on stderr. Return the exit code.
    """
    num_lines, num_cut, problems, doubtful = 0, 0, [], []
    for row in rows:
        probability = _probability(row)
        if names_doubtful and probability is not None and probability < _DOUBTFUL:
            doubtful.append((probability, num_lines + 2))  # below the header
        num_lines += 1
        num_cut += row.get("is_cut", False)
        if "problem" in row:
            problems.append(f"Line {row['number']}: {row['problem']}")
    command = "weftformer generate"
    if num_cut:
        message = f"cut at the largest number of tokens: {num_cut} of {num_lines} texts (raise --max-new-tokens)."
        print(f"{command}: {message}", file=sys.stderr)
    if doubtful:
        numbers = ", ".join(str(number) for _, number in sorted(doubtful)[:_SHOWN])
        count = f"{len(doubtful)} of {counted(num_lines, 'text')}"
        message = f"probability below {_DOUBTFUL:.0%}: {count}, the lowest first"
        print(f"{command}: {message}: row {numbers}{', ...' if len(doubtful) > _SHOWN else ''}.", file=sys.stderr)
    if problems:
        message = f"the model cannot read {len(problems)} of {counted(num_lines, 'line')}, whose output is empty."
        print(f"{command}: {message} {problems[0]}", file=sys.stderr)
    return 1 if problems else 0


def _line(args: argparse.Namespace, row: dict[str, Any]) -> str:
    if not args.json_lines:
        return _text(row["text"])
    return json.dumps({name: row[name] for name in row if name not in _OF_PARTS}, ensure_ascii=False)


def read(args: argparse.Namespace) -> Iterable[Line]:
    """Return the lines to answer.

    Raises:
        ValueError: a column is missing, or there is no input. FileNotFoundError: there is no such file.
    """
    from weftformer.inference.lines import Line

    conditions, name = _conditions(args), args.input_file
    is_file = name not in (None, "-")
    if is_file or args.source_column or conditions:  # pandas and datasets load slowly
        from weftformer.training.encoding import finite_number
        from weftformer.training.files import TABLES, first_number, is_table, load_file
        from weftformer.training.pairs import trained_columns
    if is_file and is_table(name):
        rows = load_file(name)
        column_of_training = trained_columns(args.model).get("source")
        default = "source" if "source" in rows.column_names else rows.column_names[0]
        source = args.source_column or column_of_training or default
        for column in (source, *conditions):
            if column not in rows.column_names:
                hint = " It is that of the training: use --source-column for another."
                columns = ", ".join(rows.column_names)
                raise ValueError(
                    f"{name} has no column {column!r}: it has {columns}.{hint * (column == column_of_training)}"
                )
        return (
            Line(_text(row[source]), tuple(finite_number(row[column], name, index, column) for column in conditions))
            for index, row in enumerate(rows, first_number(name))
        )
    if args.source_column or conditions:
        raise ValueError(f"--source-column and --condition-columns require a table ({', '.join(TABLES)}).")
    if args.texts:
        return [Line(_text(text)) for text in args.texts]
    if is_file:
        return (Line(text) for text in _lines(unpacked(open(name, "rb"), name), name))
    if name is None and sys.stdin.isatty():
        raise ValueError("Nothing to read: give texts, --input-file FILE, or lines on standard input.")
    return (Line(text) for text in _lines(nullcontext(sys.stdin.buffer), "standard input"))


def _lines(stream: Any, name: str) -> Iterator[str]:
    """Yield lines as `wc -l` counts them. Texts may contain other characters that Python regards as line ends."""
    number = 0
    try:
        with stream as raw:
            for number, line in enumerate(raw, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number} is not UTF-8 text: {error}.") from error


def _text(value: Any) -> str:
    return "" if value is None else " ".join(str(value).splitlines())


def _conditions(args: argparse.Namespace) -> list[str]:
    """Return the names of the columns with conditions."""
    return [name.strip() for name in (args.condition_columns or "").split(",") if name.strip()]


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `TextTask.settings`."""
    from weftformer.inference.texts import Sampling

    options = {name: getattr(args, name) for name in _SAMPLING if getattr(args, name) is not None}
    return {
        "beams": args.beams,
        "max_new_tokens": args.max_new_tokens,
        "sampling": Sampling(**options) if args.sample else None,
        "candidates": args.num_return_sequences,
    }


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that determine the texts. A resumed run must have the same."""
    names = [*_OPTIONS, *(["seed", "batch_size"] if args.sample else [])]  # which otherwise do not affect the texts
    options = {name.replace("_", "-"): getattr(args, name) for name in names}
    return {name: value for name, value in options.items() if value not in (None, False, "auto")}

"""Generate a text for each line of a file or of standard input, or for each text on the command line. Line n of the output
corresponds to line n of the input, or to row n of a table (blank lines of a csv are not counted)."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, Any

from weftformer.common.atomic import atomic_write, complete_lines, open_lines
from weftformer.common.progress import Progress
from weftformer.scripts.arguments import add_engine, add_model_options, check_model, check_output, positive
from weftformer.scripts.sharing import add_sharing_options, is_shared, output_place, run_shared
from weftformer.training.options import check_exist

if TYPE_CHECKING:
    from weftformer.distributed.works import TextWork
    from weftformer.serving.lines import Answer, Line

EPILOG = """examples:
  weftformer generate 'three one four' --model runs/mine
  weftformer generate --model runs/mine --input-file new.csv --source-column question --output-file answers.txt
  zcat de.txt.gz | weftformer generate --model runs/de-en --beams 5 --json-lines > en.jsonl"""

# Arguments that determine the texts, and fields that rows of parts have besides the answers.
_SETTINGS = (
    "model", "beams", "max_new_tokens", "num_return_sequences", "sample", "temperature", "top_k", "top_p", "json_lines",
    "condition_columns", "source_column", "engine",
)  # fmt: skip
_SAMPLING = ("temperature", "top_k", "top_p")
_OF_PARTS = ("number", "state", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [TEXT ...] --model MODEL [--input-file FILE] [--output-file FILE] [--option value ...]"
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="a source text (default: lines of --input-file or standard input)")
    add("--model", help="folder or Hub id of a trained text model; required, except with --join")
    add("--input-file", metavar="FILE",
        help="one text per line; or a table: csv, tsv, json, jsonl, parquet; .gz and .zst too; - is standard input")  # fmt: skip
    add("--output-file", type=output_place, metavar="FILE", help="file to write (default: standard output)")
    add("--source-column", metavar="NAME", help="column of a table to read (default: as in training)")
    add("--resume", action="store_true", help="continue after the last complete line of --output-file")
    add("--beams", type=positive, metavar="N", help="width of the search (default: as saved with the model)")
    add("--json-lines", action="store_true",
        help="write JSON lines: source, text, and score, the log-probability of the whole text")  # fmt: skip
    add("--batch-size", type=positive, metavar="N", help="lines per batch (default: up to 4,096 tokens)")
    add_model_options(add, compiles=True)
    add_engine(parser)
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
        raise ValueError(
            f"--num-return-sequences {args.num_return_sequences} is more than the {args.beams} beams: give as "
            "many --beams, or --sample."
        )
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
        return join(args)
    lines, total = read(args)
    work = _work(args)
    return share(args, work, lines) if is_shared(args) else generate_here(args, work, lines, total)


def generate_here(args: argparse.Namespace, work: TextWork, lines: Iterable[Line], total: int | None) -> int:
    """Generate the texts in this process, and write them window by window. Returns and raises as [`main`]."""
    from weftformer.serving.lines import answer_lines

    work.load()
    first = complete_lines(args.output_file) if args.resume else 0
    if total is not None and first > total:
        raise ValueError(
            f"{args.output_file} has {first} lines already, but the input has {total}: it belongs to another input."
        )
    if first:
        print(f"{first:,} lines are in {args.output_file} already.", file=sys.stderr)
    problems: list[tuple[int, str]] = []
    num_cut, number = 0, first
    progress = Progress("generate", total, "lines", done=first, is_shown=not args.no_progress)
    with _sink(args) as sink, progress:
        for answers in answer_lines(
            work.task, lines, work.settings, batch_size=args.batch_size, seed=args.seed, first=first,
            with_scores=args.json_lines,
        ):  # fmt: skip
            for answer in answers:
                number += 1
                num_cut += any(text.is_cut for text in answer.written[:1])
                sink.write(_line(answer, args.json_lines, args.num_return_sequences) + "\n")
                if answer.problem is not None:
                    problems.append((number, answer.problem))
            sink.flush()
            progress.update(len(answers))
    if num_cut:
        print(
            f"weftformer generate: {num_cut} of {number - first} texts were cut after {work.settings.max_new_tokens} tokens: "
            "raise --max-new-tokens.",
            file=sys.stderr,
        )
    if problems:
        where, why = problems[0]
        print(
            f"weftformer generate: the model cannot read {len(problems)} of {number - first} lines, and their output lines are "
            f"empty. Line {where}: {why}",
            file=sys.stderr,
        )
    return 1 if problems else 0


def share(args: argparse.Namespace, work: TextWork, lines: Iterable[Line]) -> int:
    """Generate the texts with workers or as one shard, and write parts. Returns and raises as [`main`]."""
    items = list(lines)
    names = [*_SETTINGS, *(["seed", "batch_size"] if args.sample else [])]  # which otherwise do not affect the texts
    settings = {name.replace("_", "-"): getattr(args, name) for name in names}
    settings = {name: value for name, value in settings.items() if value not in (None, False)}
    if args.dtype != "auto":
        settings["dtype"] = args.dtype
    work.options = settings
    states = run_shared("generate", args, work, items, (repr(tuple(line)) for line in items), "lines")
    return 0 if states.total() == states["done"] else 1


def join(args: argparse.Namespace) -> int:
    """Write the texts in the parts of `--join` as one file, a line for each line of the input.

    Raises:
        ValueError: lines are missing; the message names them. OSError: a file cannot be read or written.
    """
    from weftformer.distributed.parts import Parts

    rows = Parts(args.join).rows("generate")
    with atomic_write(args.output_file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            text = " ".join(row["text"].splitlines())
            if args.json_lines:
                text = json.dumps({name: row[name] for name in row if name not in _OF_PARTS}, ensure_ascii=False)
            file.write(text + "\n")
    return 0


def read(args: argparse.Namespace) -> tuple[Iterable[Line], int | None]:
    """Return the lines to answer, and their number if it is known before they are read.

    Raises:
        ValueError: a column is missing, or there is no input. FileNotFoundError: there is no such file.
    """
    from weftformer.serving.lines import Line

    conditions, name = _names(args.condition_columns), args.input_file
    is_file = name not in (None, "-")
    if is_file or args.source_column or conditions:  # pandas and datasets load slowly
        from weftformer.training.encoding import finite_number
        from weftformer.training.files import TABLES, is_table, load_file
        from weftformer.training.pairs import trained_columns
    if is_file and is_table(name):
        rows = load_file(name)
        trained = trained_columns(args.model).get("source")
        default = "source" if "source" in rows.column_names else rows.column_names[0]
        source = args.source_column or trained or default
        for column in (source, *conditions):
            if column not in rows.column_names:
                hint = " The model was trained on this column: use --source-column to read another."
                raise ValueError(
                    f"{name} has no column {column!r}: it has {', '.join(rows.column_names)}.{hint * (column == trained)}"
                )
        return (
            Line(_text(row[source]), tuple(finite_number(row[column], name, index, column) for column in conditions))
            for index, row in enumerate(rows)
        ), len(rows)
    if args.source_column or conditions:
        raise ValueError(f"--source-column and --condition-columns require a table ({', '.join(TABLES)}).")
    if args.texts:
        return [Line(_text(text)) for text in args.texts], len(args.texts)
    if is_file:
        with _opened(name) as stream:
            total = sum(1 for _ in stream)
        return (Line(text) for text in _lines(_opened(name), name)), total
    if name is None and sys.stdin.isatty():
        raise ValueError("Nothing to read: give texts, --input-file FILE, or lines on standard input.")
    return (Line(text) for text in _lines(nullcontext(sys.stdin.buffer), "standard input")), None


def _opened(name: str) -> IO[bytes]:
    import fsspec

    stream = fsspec.open(name, "rb", compression="infer").open()
    return io.BufferedReader(stream) if name.endswith(".zst") else stream  # Zstandard's own reader cannot read lines


def _lines(stream: Any, name: str) -> Iterator[str]:
    """Yield lines as `wc -l` counts them. Texts may contain other characters that Python regards as line ends."""
    with stream as raw:
        for number, line in enumerate(raw, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}, line {number} is not UTF-8 text: {error}.") from error


def _text(value: Any) -> str:
    return "" if value is None else " ".join(str(value).splitlines())


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _work(args: argparse.Namespace) -> TextWork:
    """Return the work on the lines, for this process or for workers."""
    from weftformer.distributed.works import TextWork
    from weftformer.serving.texts import Sampling

    sampling = None
    if args.sample:
        chosen = {name: getattr(args, name) for name in _SAMPLING}
        sampling = Sampling(**{name: value for name, value in chosen.items() if value is not None})
    asked = {
        "beams": args.beams, "max_new_tokens": args.max_new_tokens, "sampling": sampling,
        "candidates": args.num_return_sequences,
    }  # fmt: skip
    return TextWork(
        args.model, asked, args.batch_size, args.seed, args.json_lines, len(_names(args.condition_columns)),
        args.device, args.compile, args.engine, args.dtype,
    )  # fmt: skip


def _line(answer: Answer, as_json: bool, candidates: int) -> str:
    from weftformer.serving.lines import answer_row

    if as_json:
        return json.dumps(answer_row(answer, candidates), ensure_ascii=False)
    return _text(answer.written[0].text) if answer.written else ""


def _sink(args: argparse.Namespace) -> Any:
    if args.output_file is not None:
        return open_lines(args.output_file, append=args.resume)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return nullcontext(sys.stdout)

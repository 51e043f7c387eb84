"""`weftformer generate`: a text for each line of a file, with a model that `weftformer train` made."""

import io
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import fsspec

import weftformer  # noqa: F401 (makes the Auto classes know the family)
from weftformer.common.progress import Progress
from weftformer.common.whole_files import open_lines, whole_lines
from weftformer.inference.lines import Answer, Line, answer_lines
from weftformer.inference.tasks import Sampling, TextSettings, TextTask, load_task
from weftformer.scripts.arguments import check_folders, check_model, check_output, move_to
from weftformer.scripts.parsers.generate import build_parser
from weftformer.training.data import TABLES, is_table, load_file
from weftformer.training.encoding import finite_number


def main(argv: Sequence[str] | None = None) -> int:
    """Read the lines, write a line for each.

    Returns:
        1 when there are lines that the model cannot read; their own lines are empty.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read or written.
    """
    arguments = build_parser().parse_args(argv)
    check(arguments)
    lines, total = read(arguments)
    task = _load(arguments)
    task.check_conditions(len(_names(arguments.condition_columns)))
    settings = _settings(arguments, task)
    first = whole_lines(arguments.output_file) if arguments.resume else 0
    if total is not None and first > total:
        raise ValueError(
            f"{arguments.output_file} has {first} lines already, and the input {total}: it is of another."
        )
    if first:
        print(f"{first:,} lines are in {arguments.output_file} already.", file=sys.stderr)
    problems: list[tuple[int, str]] = []
    number = first
    progress = Progress("generate", total, "lines", done=first, is_shown=not arguments.no_progress)
    with _sink(arguments) as sink, progress:
        for answers in answer_lines(
            task,
            lines,
            settings,
            batch_size=arguments.batch_size,
            seed=arguments.seed,
            first=first,
            with_scores=arguments.json_lines,
        ):
            for answer in answers:
                number += 1
                sink.write(_line(answer, arguments.json_lines, arguments.num_return_sequences) + "\n")
                if answer.problem is not None:
                    problems.append((number, answer.problem))
            sink.flush()
            progress.update(len(answers))
    if problems:
        where, why = problems[0]
        print(
            f"weftformer generate: the model cannot read {len(problems)} of {number - first} lines, and their own are "
            f"empty. Line {where}: {why}",
            file=sys.stderr,
        )
    return 1 if problems else 0


def check(arguments: Namespace) -> None:
    """Mistakes that need no model to be seen.

    Raises:
        ValueError: naming the argument.
    """
    for name in ("beams", "num_return_sequences", "max_new_tokens", "batch_size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {value}.")
    if arguments.texts and arguments.input_file:
        raise ValueError("Texts on the command line and --input-file exclude each other: give one.")
    if not arguments.sample:
        for name in ("temperature", "top_k", "top_p"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for drawn texts: give --sample too.")
    if arguments.num_return_sequences > 1 and not arguments.json_lines:
        raise ValueError("--num-return-sequences writes several texts for a line: give --json-lines too.")
    if not arguments.sample and arguments.num_return_sequences > (arguments.beams or arguments.num_return_sequences):
        raise ValueError(
            f"--num-return-sequences {arguments.num_return_sequences} is more than the {arguments.beams} beams: give as "
            "many --beams, or --sample."
        )
    check_folders(arguments, "output_file")
    check_output(arguments.output_file, arguments.resume, arguments.overwrite)


def read(arguments: Namespace) -> tuple[Iterable[Line], int | None]:
    """The lines to answer, and how many they are, where that is known before they are read.

    Raises:
        ValueError: a column is not there, or nothing is given. FileNotFoundError: there is no such file.
    """
    names = _names(arguments.condition_columns)
    name = arguments.input_file
    if name not in (None, "-") and is_table(name):
        rows = load_file(name)
        column = arguments.source_column or ("source" if "source" in rows.column_names else rows.column_names[0])
        for asked in (column, *names):
            if asked not in rows.column_names:
                raise ValueError(f"{name} has no column {asked!r}: it has {', '.join(rows.column_names)}.")
        return (
            Line(_text(row[column]), tuple(finite_number(row[one], name, index, one) for one in names))
            for index, row in enumerate(rows)
        ), len(rows)
    if arguments.source_column or names:
        raise ValueError(f"--source-column and --condition-columns name columns of a table ({', '.join(TABLES)}).")
    if arguments.texts:
        return [Line(" ".join(text.splitlines())) for text in arguments.texts], len(arguments.texts)
    if name in (None, "-"):
        if name is None and sys.stdin.isatty():
            raise ValueError("Nothing to read: give texts, --input-file FILE, or lines on standard input.")
        return (Line(text) for text in _lines(nullcontext(sys.stdin.buffer), "standard input")), None
    if not Path(name).is_file():
        raise FileNotFoundError(f"the file {name} does not exist.")
    with _opened(name) as stream:
        total = sum(1 for _ in stream)
    return (Line(text) for text in _lines(_opened(name), name)), total


def _opened(name: str) -> IO[bytes]:
    stream = fsspec.open(name, "rb", compression="infer").open()
    return io.BufferedReader(stream) if name.endswith(".zst") else stream  # Zstandard's own reader knows no lines


def _lines(stream: Any, name: str) -> Iterator[str]:
    """Lines as `wc -l` counts them: other characters that Python takes for ends of lines stand in texts."""
    with stream as raw:
        for number, line in enumerate(raw, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}, line {number} is no UTF-8 text: {error}.") from error


def _text(value: Any) -> str:
    return "" if value is None else " ".join(str(value).splitlines())


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _load(arguments: Namespace) -> TextTask:
    check_model(arguments.model)
    task = load_task(arguments.model)
    if not isinstance(task, TextTask):
        raise ValueError(
            f"{arguments.model} writes routes: `weftformer plan TARGET --model {arguments.model}` asks it."
        )
    move_to(task, arguments.device, arguments.compile)
    return task


def _settings(arguments: Namespace, task: TextTask) -> TextSettings:
    """As the model was trained to write, where nothing is said."""
    defaults = task.model.generation_config
    sampling = None
    if arguments.sample:
        given = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
        sampling = Sampling(**{name: value for name, value in given.items() if value is not None})
    beams = arguments.beams or (1 if arguments.sample else defaults.num_beams or 1)
    if sampling is None:
        beams = max(beams, arguments.num_return_sequences)
    most = task.model.config.max_target_positions
    longest = arguments.max_new_tokens or (defaults.max_length or task.max_new_tokens + 1) - 1
    return TextSettings(beams, max(1, min(longest, most)), sampling, arguments.num_return_sequences)


def _line(answer: Answer, as_json: bool, candidates: int) -> str:
    texts = [" ".join(one.text.splitlines()) for one in answer.written]
    if not as_json:
        return texts[0] if texts else ""
    row: dict[str, Any] = {"source": answer.source, "text": answer.written[0].text if texts else ""}
    row["score"] = answer.written[0].score if texts else None
    if candidates > 1:
        row["candidates"] = [one._asdict() for one in answer.written]
    if answer.problem is not None:
        row["problem"] = answer.problem
    return json.dumps(row, ensure_ascii=False)


@contextmanager
def _sink(arguments: Namespace) -> Iterator[IO[str]]:
    if arguments.output_file is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    with open_lines(arguments.output_file, append=arguments.resume) as sink:
        yield sink


if __name__ == "__main__":
    sys.exit(main())

"""Files of pairs in any format, read into memory or as a stream."""

import csv
import glob
import importlib.util
import io
import itertools
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from typing import IO, Any

import datasets
import fsspec
import pandas
import pyarrow
from datasets import Dataset, DatasetDict, Features, IterableDataset, Value, concatenate_datasets, load_dataset
from datasets.data_files import DataFilesList
from datasets.filesystems.compression import BaseCompressedFileFileSystem

from ..common.packed import check_unpacked, unpacked
from ..common.tables import named_errors, text_of
from .options import check_exist

_KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
    ".xlsx": "xlsx", ".txt": "txt",
}  # fmt: skip
TABLES = tuple(ending for ending, kind in _KINDS.items() if kind != "txt")
_COMPRESSED = (".gz", ".zst")
# The largest number of lists and objects around a value in a line of JSON.
_DEPTH = 100
# Bytes that are read at once.
_CHUNK = 1 << 20


class _TabSeparated(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # quotation marks are part of the text


def load_file_stream(file: str, no_header: bool = False) -> IterableDataset:
    """Load files of training pairs of one format as a stream, as [`load_file`] loads one.

    Args:
        file: the file, a pattern such as "pairs-*.jsonl.gz", or several of these separated by commas.
        no_header: as in [`load_file`].

    Raises:
        FileNotFoundError: a file does not exist, or no file matches a pattern.
        ValueError: the format is unknown, files have different formats, or csv or tsv files have different columns.
    """
    files = _matching(file)
    kind, first_settings = _reader(files[0], no_header)
    for name in files[1:]:
        other_kind, other_settings = _reader(name, no_header)
        here, there = {"format": kind, **first_settings}, {"format": other_kind, **other_settings}
        fields = [field for field in here if field != "features" and here[field] != there.get(field)]
        if fields:
            what = "; ".join(f"{field} {here[field]!r} and {there.get(field)!r}" for field in fields)
            raise ValueError(f"{files[0]} and {name} differ: {what}. Give files of one format, with the same columns.")
    try:
        urls = DataFilesList([_CheckedFiles.url(name) for name in files], [()] * len(files))
        return load_dataset(kind, data_files={"train": urls}, split="train", streaming=True, **first_settings)
    except (OSError, ValueError, pyarrow.ArrowInvalid) as error:
        raise ValueError(f"{file} cannot be read as {kind}: {error}") from error


def _matching(file: str) -> list[str]:
    if Path(file).is_file():
        return [file]
    files: list[str] = []
    for pattern in filter(None, map(str.strip, file.split(","))):
        names = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        if not names and glob.has_magic(pattern):
            raise FileNotFoundError(f"no file matches {pattern}.")
        check_exist(*(names or [pattern]))
        files += names
    return files


def load_file(
    file: str, target_file: str | None = None, no_header: bool = False, keeps_blank_lines: bool = False
) -> Dataset:
    """Load one file of training pairs.

    The ending of the name determines the format. Columns of csv, tsv, txt and xlsx files are always texts: "007" and
    "NA" are kept as they are. In tsv and txt files, quotation marks are part of the text. A csv file may have
    semicolons, tabs or bars instead of commas. Texts are UTF-8, UTF-16, or else cp1252 or Latin-1, with a warning.

    Args:
        file: the file, or a folder of `Dataset.save_to_disk`.
        target_file: a text file with the targets. Line i is then the target of line i in `file`.
        no_header: whether the first line of a csv or tsv file is a pair instead of the column names.
        keeps_blank_lines: whether a blank line of a csv or tsv file is a row of empty texts, so that rows have the
            numbers of the file, see [`first_number`].

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the ending of the name is unknown, or the content does not have this format.
    """
    if Path(file).is_dir():
        dataset = datasets.load_from_disk(file)
        if isinstance(dataset, DatasetDict):
            raise ValueError(
                f"{file} has the splits {list_names(dataset)}: give the folder of one, such as "
                f"{Path(file, next(iter(dataset)))}."
            )
        return dataset.flatten()
    check_exist(file, target_file)
    for name in filter(None, (file, target_file)):
        _read_through(name)
    if target_file:
        return _load_aligned(file, target_file)
    if _kind(file) == "xlsx":
        return _load_excel(file, no_header)
    kind, options = _reader(file, no_header, is_stream=False)
    if kind == "csv":
        options["skip_blank_lines"] = not keeps_blank_lines
    dataset = _load(kind, file, **options)
    if kind == "csv":
        return dataset
    dataset = dataset.flatten()  # {"translation": {"en": ..., "de": ...}} becomes translation.en, ...
    return _with_numbers_as_written(dataset, file) if kind == "json" else dataset


def first_number(file: str, no_header: bool = False) -> int:
    """Return the number of the first pair of a file, as a spreadsheet or an editor numbers it: 2 below a header."""
    return 2 if _known_kind(file) in ("csv", "tsv", "xlsx") and not no_header else 1


def _read_through(file: str) -> None:
    """Check a file, before `datasets` unpacks it to the disk."""
    if zipfile.is_zipfile(file):
        sizes = [member.file_size for member in zipfile.ZipFile(file).infolist()]
        check_unpacked(sum(sizes), os.path.getsize(file), file)
    elif _known_kind(file) != "parquet":
        with _opened(file) as content:
            while content.read(_CHUNK):
                pass


def _opened(file: str) -> IO[bytes]:
    """Open a file, packed or not, whose content is checked while it is read."""
    content = unpacked(open(file, "rb"), file)  # noqa: SIM115 (it is closed when its reader is collected)
    return io.BufferedReader(_ShallowLines(content, file)) if _known_kind(file) == "json" else content


class _ShallowLines(io.RawIOBase):
    """Lines of JSON. Those that nest so deeply that Arrow's reader would end the process are refused."""

    def __init__(self, lines: IO[bytes], file: str):
        self._lines, self._file, self._number, self._line = lines, file, 0, io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if number := self._line.readinto(buffer):
            return number
        line = self._lines.readline()
        self._number += 1
        if line.lstrip().startswith(b"{") and line.count(b"{") + line.count(b"[") > _DEPTH:
            # a quote that is not closed goes to the end, or the search would begin again at each quote within
            marks = (mark for mark in re.findall(rb'"(?:[^"\\]|\\.)*"?|[][{}]', line) if mark[:1] != b'"')
            if max(itertools.accumulate(1 if mark in b"[{" else -1 for mark in marks)) > _DEPTH:
                place = f"{self._file}, line {self._number}"
                raise ValueError(f"{place}: nested too deeply, in more than {_DEPTH} lists and objects.")
        self._line = io.BytesIO(line)
        return self._line.readinto(buffer)

    def close(self) -> None:
        self._lines.close()
        super().close()


class _CheckedFiles(BaseCompressedFileFileSystem):
    """Opens the files of a stream for `datasets` by [`_opened`]."""

    protocol, name = "weft", "pairs.txt"

    def _get_dirs(self) -> None:
        self.dir_cache = {self.name: {"name": self.name, "size": None, "type": "file"}}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> IO[bytes]:
        return _opened(self.fo)

    @classmethod
    def url(cls, file: str) -> str:
        path = os.path.abspath(file)
        # Arrow reads parquet from its end
        return path if _kind(file) == "parquet" else f"{cls.protocol}://{cls.name}::{path}"


fsspec.register_implementation(_CheckedFiles.protocol, _CheckedFiles, clobber=True)


def _reader(file: str, no_header: bool, is_stream: bool = True) -> tuple[str, dict[str, Any]]:
    """Return the reader of `datasets` for a file, and its options."""
    kind = _kind(file)
    if kind == "json" or kind == "parquet":
        return kind, {}
    if kind == "xlsx":
        raise ValueError(f"{file} is an Excel file, which cannot be streamed: save it as csv (UTF-8).")
    is_headless = no_header or kind == "txt"
    with _text(file) as text:
        lines, head = itertools.tee(text)
        dialect = _dialect(head) if kind == "csv" else _TabSeparated
        first_row = _first_row(file, csv.reader(lines, dialect), dialect, is_stream)
        names = _names(len(first_row)) if is_headless else first_row
        return "csv", {
            "sep": dialect.delimiter,
            "quoting": dialect.quoting,
            "header": None if is_headless else 0,
            "names": names,
            "features": Features({name: Value("string") for name in names}),
            "encoding": text.encoding,
            "na_filter": False,
        }


@contextmanager
def _text(file: str) -> Iterator[Any]:
    """Open a text with the encoding by which its beginning can be read."""
    with open(file, "rb") as raw, named_errors(file):
        if raw.peek(4).startswith(b"PK\x03\x04"):
            raise ValueError(f"{file} looks like an Excel file: name it .xlsx, or save it as csv (UTF-8).")
        yield text_of(raw, file)


def _names(number: int) -> list[str]:
    """Return names for the columns of a file without a header."""
    return ["source", "target", *(f"column_{i}" for i in range(3, number + 1))][:number]


def _load_excel(file: str, no_header: bool) -> Dataset:
    if importlib.util.find_spec("openpyxl") is None:
        raise ValueError(f"{file} needs a package: pip install openpyxl. Or save it as csv (UTF-8).")
    try:
        frame = pandas.read_excel(file, header=None if no_header else 0, dtype=str, na_filter=False)
    except Exception as error:  # openpyxl and zipfile have errors of their own
        raise ValueError(f"{file} cannot be read as xlsx: {error}") from error
    frame.columns = _names(len(frame.columns)) if no_header else [str(name) for name in frame.columns]
    return Dataset.from_pandas(frame, preserve_index=False)


def _dialect(lines: Iterable[str]) -> type[csv.Dialect]:
    """Return the dialect of a csv file: its separator gives the first rows the same width (default: comma)."""
    dialects = [type("_Separated", (csv.excel,), {"delimiter": mark}) for mark in ",;\t|"]
    for dialect, copy in zip(dialects, itertools.tee(lines, len(dialects)), strict=True):
        with suppress(csv.Error):  # [`_first_row`] gives the reason
            widths = {len(row) for row in itertools.islice(filter(None, csv.reader(copy, dialect)), 20)}
            if len(widths) == 1 and min(widths) > 1:
                return dialect
    return csv.excel


def _load_aligned(file: str, target_file: str) -> Dataset:
    columns = {}
    for side, name in (("source", file), ("target", target_file)):
        with _text(name) as text:
            columns[side] = _load("text", name, encoding=text.encoding).rename_column("text", side)
    source, target = columns.values()
    if len(source) != len(target):
        raise ValueError(f"{file} has {len(source)} lines and {target_file} has {len(target)}: give as many of each.")
    return concatenate_datasets([source, target], axis=1)


def _load(kind: str, file: str, **options) -> Dataset:
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # a reader also logs the error that it raises
    try:
        return load_dataset(kind, data_files=file, split="train", **options)
    except Exception as error:  # each format and compression has errors of its own
        if "corresponds to no data" in str(error):  # the message of datasets for a file without rows
            raise ValueError(f"{file} has no training pairs.") from error
        raise ValueError(f"{file} cannot be read as {kind}: {error.__cause__ or error}") from error
    finally:
        datasets.logging.set_verbosity(verbosity)


def _with_numbers_as_written(dataset: Dataset, file: str) -> Dataset:
    """Replace columns of floating-point numbers, which may have rounded larger integers, by the texts in the file."""
    names = [name for name, feature in dataset.features.items() if getattr(feature, "dtype", "") == "float64"]
    if not names:
        return dataset
    parse = partial(json.loads, parse_int=str, parse_float=str, parse_constant=str)
    with _text(file) as stream:
        text = stream.read()
    try:
        rows = parse(text) if text.lstrip().startswith("[") else list(map(parse, filter(str.strip, text.split("\n"))))
    except ValueError:  # one dictionary of columns
        return dataset
    columns: dict[str, Any] = {name: dataset.data.column(name) for name in dataset.column_names}
    for name in names:
        columns[name] = [row[name] if name in row else reduce(_field, name.split("."), row) for row in rows]
    return Dataset(pyarrow.table(columns))


def _field(row: Any, name: str) -> Any:
    return row.get(name) if isinstance(row, dict) else None


def is_table(file: str) -> bool:
    """Return whether [`load_file`] reads columns with names from a file, by the ending of its name."""
    kind = _known_kind(file)
    return kind is not None and kind != "txt"


def _known_kind(file: str) -> str | None:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _KINDS.get(suffixes[-1]) if suffixes else None


def _kind(file: str) -> str:
    kind = _known_kind(file)
    if kind is None:
        raise ValueError(
            f"{file} has no known file extension: use one of {', '.join(_KINDS)} (.gz or .zst may follow), or give "
            "the targets in a second file; both are then read line by line."
        )
    return kind


def _first_row(file: str, rows: Iterator[list[str]], dialect: type[csv.Dialect], is_stream: bool) -> list[str]:
    """Return the first row of a file, none of whose rows has more cells. Of a stream, only the second is checked."""
    first = next(rows, None)
    if not first:
        raise ValueError(f"{file} is empty, or begins with an empty line.")
    with suppress(csv.Error):  # the reader of the pairs gives the reason
        for number, row in enumerate(rows, 2):
            # pandas would take the first cell of the second row for the name of the row, and shift the others
            if len(row) > len(first):
                hint = " Put texts that contain a comma in quotation marks." if dialect is csv.excel else ""
                raise ValueError(f"{file}: row {number} has {len(row)} cells, and row 1 has {len(first)}.{hint}")
            if is_stream and row:
                break
    return first


def list_names(names: Sequence[str] | DatasetDict) -> str:
    return ", ".join(repr(name) for name in names)

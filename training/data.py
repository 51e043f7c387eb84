"""Loading training pairs from files or from the Hub, into memory or as a stream, and checking their columns."""

import codecs
import csv
import glob
import importlib.util
import itertools
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy as np
import pandas
import pyarrow
from datasets import Dataset, DatasetDict, Features, IterableDataset, Value, concatenate_datasets, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from ..configuration.fields import closest
from .options import DataArguments, check_exist
from .streaming import flattened

logger = logging.getLogger(__name__)

_KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
    ".xlsx": "xlsx", ".txt": "txt",
}  # fmt: skip
TABLES = tuple(ending for ending, kind in _KINDS.items() if kind != "txt")
_COMPRESSED = (".gz", ".zst")
# The number of bytes at the beginning of a file by which its encoding is judged.
_SAMPLE = 2**24
_HUB_SPLITS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}


class _TabSeparated(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # quotation marks are part of the text


@dataclass(frozen=True)
class Columns:
    """The names of the columns with the source, the target and the conditions."""

    source: str
    target: str
    conditions: tuple[str, ...] = ()


def load_pairs(
    args: DataArguments, rows: IterableDataset | None = None
) -> tuple[Dataset | IterableDataset, DatasetDict, Columns]:
    """Load the pairs that the arguments name: into memory, or with `args.streaming` the training pairs as a stream.

    Args:
        args: the arguments. For a stream, `max_train_samples` and a `validation_split` of 1 or more are numbers of
            rows at its beginning.
        rows: a stream of training pairs, instead of those in the arguments.

    Returns:
        The training pairs; the splits that are in memory ("train" unless it is a stream, and "validation" and "test" if
        there are any); and the names of the columns.

    Raises:
        FileNotFoundError: a file or data set does not exist, or no file matches a pattern.
        ValueError: a file cannot be read, is empty, or lacks a column (the message names the file and its columns), or an
            argument does not work with streams.
    """
    if args.streaming and args.train_target_file:
        raise ValueError(
            f"--train-target-file {args.train_target_file} is not supported with --streaming: put sources and targets into one file "
            "(paste SOURCES TARGETS > pairs.txt)."
        )
    origin = args.train_file or args.dataset_name
    if rows is None and origin is None:
        raise ValueError("Give either --train-file or --dataset-name: got neither.")
    origin = origin or "the stream"
    splits = _from_hub(args) if args.dataset_name else _from_files(args)
    train: Any = splits["train"] if rows is None else rows
    first = _first_rows(train, 1, origin) if args.streaming else train
    columns = find_columns(first, args, origin)
    for split, dataset in {**splits, "train": first}.items():
        name = origin if split == "train" else _origin(args, split)
        if not len(dataset):
            raise ValueError(f"{name} has no training pairs.")
        for column in (columns.source, columns.target, *columns.conditions):
            _check_column(column, dataset, name)
    splits = DatasetDict(
        {split: _first(rows, args.max_eval_samples) for split, rows in splits.items() if split != "train"}
    )
    if not args.streaming:
        train = splits["train"] = _first(train, args.max_train_samples)
    else:
        if "validation" not in splits:
            train = _split_stream(train, splits, args, origin)
        if args.max_train_samples is not None:
            train = train.take(args.max_train_samples)
    return train, splits, columns


def _split_stream(rows: IterableDataset, others: DatasetDict, args: DataArguments, origin: str) -> IterableDataset:
    """Move the first rows to the split "validation" if the arguments give a number of them. Return the other rows."""
    share = args.validation_split
    if share >= 1:
        taken = int(share)
        others["validation"] = _first(_first_rows(rows, taken, origin), args.max_eval_samples)
        return rows.skip(taken)
    if share:
        logger.warning(
            f"validation_split={share} is a share of the pairs, but a stream has no length: nothing is evaluated. Give "
            "--validation-file, or --validation-split 1000 for the first 1,000 pairs. 0 turns off this warning."
        )
    return rows


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
    options = {name: _reader(name, no_header) for name in files}
    kind, first = options[files[0]]
    for name, (other, option) in options.items():
        if other != kind or option.get("sep") != first.get("sep"):
            raise ValueError(f"{files[0]} and {name} have different formats: give files of one format.")
        if option.get("names") != first.get("names"):
            raise ValueError(
                f"{files[0]} has the columns {_list(first['names'])} and {name} has {_list(option['names'])}: give files "
                "with the same columns in the same order."
            )
        if option != first:
            what = next(field for field in first if option[field] != first[field])
            raise ValueError(
                f"{files[0]} has {what}={first[what]!r} and {name} has {option[what]!r}: give files with the same encoding, "
                "all of them with a header or none."
            )
    try:
        return load_dataset(kind, data_files=files, split="train", streaming=True, **first)
    except (OSError, ValueError, pyarrow.ArrowInvalid) as error:
        raise ValueError(f"{file} cannot be read as {kind}: {error}") from error


def _matching(file: str) -> list[str]:
    if Path(file).is_file():
        return [file]
    found: list[str] = []
    for pattern in filter(None, map(str.strip, file.split(","))):
        names = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        if not names and glob.has_magic(pattern):
            raise FileNotFoundError(f"no file matches {pattern}.")
        check_exist(*(names or [pattern]))
        found += names
    return found


def _first_rows(rows: IterableDataset, number: int, origin: str) -> Dataset:
    """Return the first rows of a stream in memory, with flattened dictionaries."""
    try:
        table = next(rows.with_format("arrow").iter(number), None)
    except Exception as error:  # each reader of `datasets` raises its own errors, which do not name the file
        raise ValueError(f"{origin} cannot be read: {error.__cause__ or error}") from error
    if table is None:
        raise ValueError(f"{origin} has no training pairs.")
    return Dataset(flattened(table))


def split_validation(splits: DatasetDict, args: DataArguments, seed: int = 42) -> None:
    """Move `args.validation_split` of the training pairs, drawn at random, to a "validation" split if there is none.

    Pairs with equal inputs stay together. If a split has inputs of the training data, a warning counts them.

    Args:
        splits: the pairs. All columns but `labels` are inputs.
        args: the arguments.
        seed: the seed of the draw.

    Raises:
        ValueError: no training pair would be left.
    """
    keys = list(_input_keys(splits["train"]))
    trained = set(keys)
    for name in splits.keys() - {"train"}:
        if seen := sum(key in trained for key in _input_keys(splits[name])):
            logger.warning(
                f"{seen} of {len(splits[name])} {name} pairs have a source that is also in the training data: their scores do "
                "not show how well the model does on new texts."
            )
    if "validation" in splits or not args.validation_split:
        return
    rows, share = len(splits["train"]), args.validation_split
    taken = int(share) if share >= 1 else max(1, round(rows * share))
    if taken >= rows:
        raise ValueError(
            f"validation_split={share} would take {taken} of {rows} training pairs: give a smaller value, a "
            "--validation-file, or 0 for no evaluation."
        )
    groups: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    together = list(groups.values())
    held: list[int] = []
    for group in np.random.default_rng(seed).permutation(len(together)):
        if len(held) + len(together[group]) <= taken:
            held += together[group]
    held = held or min(together, key=len)
    if len(held) == rows:
        raise ValueError(
            "All training pairs have the same source, so none can be set aside: give --validation-split 0."
        )
    splits["validation"] = _first(splits["train"].select(held), args.max_eval_samples)
    splits["train"] = splits["train"].select(np.setdiff1d(np.arange(rows), held))
    logger.info(f"{len(held)} of {rows} training pairs are set aside for validation (validation_split).")


def _input_keys(dataset: Dataset) -> Iterator[int]:
    """Yield a number for each row, which is the same for rows with equal inputs."""
    inputs = dataset.select_columns([name for name in dataset.column_names if name != "labels"])
    for batch in inputs.with_format("arrow").iter(10_000):
        yield from (hash(str(row)) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))


def find_columns(dataset: Dataset, args: DataArguments, origin: str) -> Columns:
    """Return the names of the columns.

    Source and target are the columns that the arguments name, or else those with the names `source` and `target`, or
    else the two columns without another use.

    Raises:
        ValueError: there are not enough columns, or it is not clear which are meant.
    """
    for name in filter(None, (args.source_column, args.target_column)):
        _check_column(name, dataset, origin)
    free = [column for column in dataset.column_names if column not in args.condition_names]
    source = args.source_column or ("source" if "source" in free and args.target_column != "source" else None)
    target = args.target_column or ("target" if "target" in free and source != "target" else None)
    others = [column for column in free if column not in (source, target)]
    wanted = [source, target].count(None)
    if len(others) < wanted:
        raise ValueError(
            f"{origin} needs a source column and a target column, and has {_list(dataset.column_names)}: in a txt "
            "file, separate source and target by a tab, or give the targets as a second file "
            "(--train-target-file)."
        )
    if wanted and len(others) > wanted:
        first, second = (shlex.quote(name) for name in (source or others[-wanted], target or others[-1]))
        raise ValueError(
            f"{origin} has the columns {_list(dataset.column_names)}: name the source and the target column, for example "
            f"--source-column {first} --target-column {second}."
        )
    left = iter(others)
    return Columns(source or next(left), target or next(left), tuple(args.condition_names))


def load_file(file: str, target_file: str | None = None, no_header: bool = False) -> Dataset:
    """Load one file of training pairs.

    The ending of the name determines the format. Columns of csv, tsv, txt and xlsx files are always texts: "007" and "NA"
    are kept as they are. In tsv and txt files, quotation marks are part of the text. A csv file may have semicolons, tabs or
    bars instead of commas. Texts are UTF-8, UTF-16, or else cp1252 or Latin-1, with a warning.

    Args:
        file: the file, or a folder of `Dataset.save_to_disk`.
        target_file: a text file with the targets. Line i is then the target of line i in `file`.
        no_header: whether the first line of a csv or tsv file is a pair instead of the column names.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the ending of the name is unknown, or the content does not have this format.
    """
    if Path(file).is_dir():
        loaded = datasets.load_from_disk(file)
        if isinstance(loaded, DatasetDict):
            raise ValueError(
                f"{file} has the splits {_list(loaded)}: give the folder of one, such as {Path(file, next(iter(loaded)))}."
            )
        return loaded.flatten()
    check_exist(file, target_file)
    if target_file:
        return _load_aligned(file, target_file)
    if _kind(file) == "xlsx":
        return _load_excel(file, no_header)
    kind, options = _reader(file, no_header)
    dataset = _load(kind, file, **options)
    # {"translation": {"en": ..., "de": ...}} becomes translation.en, ...
    return dataset if kind == "csv" else dataset.flatten()


def _reader(file: str, no_header: bool) -> tuple[str, dict[str, Any]]:
    """Return the reader of `datasets` for a file, and its options."""
    kind = _kind(file)
    if file.endswith(".zst") and not datasets.config.ZSTANDARD_AVAILABLE:
        raise ValueError(f"{file} is compressed by Zstandard, which needs a package: pip install zstandard")
    if kind == "json" or kind == "parquet":
        return kind, {}
    if kind == "xlsx":
        raise ValueError(f"{file} is an Excel file, which cannot be streamed: save it as csv (UTF-8).")
    encoding = _encoding(file)
    dialect = _separated(file, encoding) if kind == "csv" else _TabSeparated
    headless = no_header or kind == "txt"
    first = _first_row(file, dialect, encoding, has_names=not headless)
    names = _names(len(first)) if headless else first
    return "csv", {
        "sep": dialect.delimiter,
        "quoting": dialect.quoting,
        "header": None if headless else 0,
        "names": names,
        "features": Features({name: Value("string") for name in names}),
        "encoding": encoding,
        "na_filter": False,
    }


def _names(number: int) -> list[str]:
    """Return names for the columns of a file without a header."""
    return ["source", "target", *(f"column_{i}" for i in range(3, number + 1))][:number]


def _load_excel(file: str, no_header: bool) -> Dataset:
    if importlib.util.find_spec("openpyxl") is None:
        raise ValueError(
            f"{file} is an Excel file, which needs a package: pip install openpyxl. Or save it as csv (UTF-8)."
        )
    try:
        frame = pandas.read_excel(file, header=None if no_header else 0, dtype=str, na_filter=False)
    except Exception as error:  # openpyxl and zipfile have errors of their own
        raise ValueError(f"{file} cannot be read as xlsx: {error}") from error
    frame.columns = _names(len(frame.columns)) if no_header else [str(name) for name in frame.columns]
    return Dataset.from_pandas(frame, preserve_index=False)


def _encoding(file: str) -> str:
    """Return the encoding of a text file, judged by its beginning."""
    try:
        with fsspec.open(file, "rb", compression="infer") as raw:
            sample = raw.read(_SAMPLE)
    except (OSError, EOFError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if sample.startswith(b"PK\x03\x04"):
        raise ValueError(f"{file} looks like an Excel file: name it .xlsx, or save it as csv (UTF-8).")
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in sample[:200]:
        return "utf-16-le" if sample[1] == 0 else "utf-16-be"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(sample)
        except UnicodeDecodeError:
            continue
        break
    else:
        encoding = "latin-1"
    if encoding != "utf-8-sig":
        logger.warning(f"{file} is not UTF-8 and is read as {encoding}: if letters come out wrong, save it as UTF-8.")
    return encoding


def _separated(file: str, encoding: str) -> type[csv.Dialect]:
    """Return the dialect of a csv file: its separator gives the first rows the same width (default: comma)."""
    dialects = [type("_Separated", (csv.excel,), {"delimiter": mark}) for mark in ",;\t|"]
    for dialect in dialects:
        try:
            with fsspec.open(file, "rt", compression="infer", encoding=encoding, newline="") as lines:
                widths = {len(row) for row in itertools.islice(filter(None, csv.reader(lines, dialect)), 20)}
        except (OSError, EOFError, UnicodeDecodeError, csv.Error):
            continue  # `_first_row` gives the reason
        if len(widths) == 1 and min(widths) > 1:
            return dialect
    return csv.excel


def _from_files(args: DataArguments) -> dict[str, Any]:
    splits: dict[str, Any] = {}
    for split in _HUB_SPLITS:
        file, target_file = args.files(split)
        if file and split == "train" and args.streaming:
            splits[split] = load_file_stream(file, args.no_header)
        elif file:
            splits[split] = load_file(file, target_file, args.no_header)
    return splits


def _from_hub(args: DataArguments) -> dict[str, Any]:
    try:
        loaded = load_dataset(args.dataset_name, args.dataset_config_name, streaming=args.streaming)
    except DatasetGenerationError as error:
        raise ValueError(f"--dataset-name {args.dataset_name} cannot be read: {error.__cause__ or error}") from error
    splits: dict[str, Any] = {}
    for split, names in _HUB_SPLITS.items():
        rows = next((loaded[name] for name in names if name in loaded), None)
        if rows is not None:
            splits[split] = rows if args.streaming and split == "train" else _in_memory(rows, args.max_eval_samples)
    if "train" not in splits:
        raise ValueError(f"{args.dataset_name} has no split `train`; it has {_list(loaded)}.")
    return splits


def _in_memory(rows: Dataset | IterableDataset, most: int | None) -> Dataset:
    """Return a split with flattened dictionaries. Of a stream, only the first `most` rows are fetched."""
    if isinstance(rows, Dataset):
        return rows.flatten()
    tables = [
        flattened(table) for table in (rows if most is None else rows.take(most)).with_format("arrow").iter(10_000)
    ]
    return Dataset(pyarrow.concat_tables(tables)) if tables else Dataset.from_dict({})


def _load_aligned(file: str, target_file: str) -> Dataset:
    source = _load("text", file, encoding=_encoding(file)).rename_column("text", "source")
    target = _load("text", target_file, encoding=_encoding(target_file)).rename_column("text", "target")
    if len(source) != len(target):
        raise ValueError(
            f"{file} has {len(source)} lines and {target_file} has {len(target)}: line i of the second file must be "
            "the target of line i of the first."
        )
    return concatenate_datasets([source, target], axis=1)


def _load(kind: str, file: str, **options) -> Dataset:
    try:
        return load_dataset(kind, data_files=file, split="train", **options)
    except (DatasetGenerationError, pyarrow.ArrowInvalid, ValueError) as error:
        if "corresponds to no data" in str(error):  # the message of datasets for a file without rows
            raise ValueError(f"{file} has no training pairs.") from error
        raise ValueError(f"{file} cannot be read as {kind}: {error.__cause__ or error}") from error


def is_table(file: str) -> bool:
    """Return whether [`load_file`] reads columns with names from a file, by the ending of its name."""
    kind = _known_kind(file)
    return kind is not None and kind != "txt"


def trained_columns(model: str) -> dict[str, str]:
    """Return the names of the columns that a model was trained on, as `source` and `target`, if its tokenizer has them.

    Args:
        model: the folder or Hub id of the model.
    """
    return get_tokenizer_config(model).get("text_columns", {})


def _known_kind(file: str) -> str | None:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _KINDS.get(suffixes[-1]) if suffixes else None


def _kind(file: str) -> str:
    kind = _known_kind(file)
    if kind is None:
        raise ValueError(
            f"{file} has no known file extension: use one of {', '.join(_KINDS)} (.gz or .zst may follow), or give the "
            "targets in a second file; both are then read line by line."
        )
    return kind


def _first_row(file: str, dialect: type[csv.Dialect], encoding: str, has_names: bool) -> list[str]:
    try:
        with fsspec.open(file, "rt", compression="infer", encoding=encoding, newline="") as lines:
            rows = csv.reader(lines, dialect)
            row = next(rows, None)
            second = next(filter(None, rows), []) if has_names else []
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not row:
        raise ValueError(f"{file} is empty, or begins with an empty line.")
    if len(second) > len(row):  # pandas would take the first field for the name of the row, and shift the others
        hint = " Put texts that contain a comma in quotation marks." if dialect is csv.excel else ""
        raise ValueError(
            f"{file} cannot be read as csv: expected {len(row)} fields, one per column name, but the first row has "
            f"{len(second)}.{hint}"
        )
    return row


def _first(dataset: Dataset, rows: int | None) -> Dataset:
    return dataset if rows is None or rows >= len(dataset) else dataset.select(range(rows))


def _check_column(name: str, dataset: Dataset, origin: str) -> None:
    if name not in dataset.column_names:
        hint = closest(name, dataset.column_names)
        raise ValueError(f"{origin} has no column {name!r}; it has {_list(dataset.column_names)}.{hint}")


def _origin(args: DataArguments, split: str) -> str:
    return args.files(split)[0] or f"{args.dataset_name} ({split})"


def _list(names: Sequence[str] | DatasetDict) -> str:
    return ", ".join(repr(name) for name in names)

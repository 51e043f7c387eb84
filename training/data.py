"""Pairs of texts from files or from the Hub, as `datasets.Dataset`s with columns that are known to exist."""

import csv
import gzip
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
from datasets import Dataset, DatasetDict, Features, Value, concatenate_datasets, load_dataset
from datasets.exceptions import DatasetGenerationError

from ..configuration.fields import closest
from .arguments import DataArguments

logger = logging.getLogger(__name__)

_KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
    ".txt": "txt",
}  # fmt: skip
_HUB_SPLITS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}


class _TabSeparated(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # a quotation mark is a character of the text


@dataclass(frozen=True)
class Columns:
    """Names of the columns that hold the source, the target and the numbers told beside the source."""

    source: str
    target: str
    conditions: tuple[str, ...] = ()


def load_pairs(args: DataArguments) -> tuple[DatasetDict, Columns]:
    """The splits that the arguments name ("train" always; "validation" and "test" where there are any), and the columns.

    Raises:
        FileNotFoundError: a file or data set does not exist.
        ValueError: a file cannot be read, is empty, or lacks a column; the message names the file and what it has.
    """
    splits = _from_hub(args) if args.dataset_name else _from_files(args)
    columns = find_columns(splits["train"], args, _origin(args, "train"))
    for split, dataset in splits.items():
        if not len(dataset):
            raise ValueError(f"{_origin(args, split)} holds no pairs.")
        for name in (columns.source, columns.target, *columns.conditions):
            _check_column(name, dataset, _origin(args, split))
        splits[split] = _first(dataset, args.max_train_samples if split == "train" else args.max_eval_samples)
    return splits, columns


def split_validation(splits: DatasetDict, args: DataArguments, seed: int = 42) -> None:
    """Where there is no "validation", set `args.validation_split` of the training pairs aside for it, drawn by `seed`.

    Raises:
        ValueError: no training pair would be left.
    """
    if "validation" in splits or not args.validation_split:
        return
    rows, share = len(splits["train"]), args.validation_split
    taken = int(share) if share >= 1 else max(1, round(rows * share))
    if taken >= rows:
        raise ValueError(
            f"validation_split={share} would take {taken} of {rows} training pairs: give a smaller one, "
            "--validation-file, or 0 for no evaluation."
        )
    parts = splits["train"].train_test_split(test_size=taken, seed=seed)
    splits["train"], splits["validation"] = parts["train"], _first(parts["test"], args.max_eval_samples)
    logger.info(f"{taken} of {rows} training pairs are set aside for validation (validation_split).")


def find_columns(dataset: Dataset, args: DataArguments, origin: str) -> Columns:
    """The columns asked for; else those called `source` and `target`, else the first that are not taken otherwise."""

    def choose(given: str | None, name: str, taken: str | None) -> str:
        free = [column for column in dataset.column_names if column not in (*args.condition_names, taken)]
        if given or name in free:
            return given or name
        if not free:
            raise ValueError(
                f"{origin} needs a column to read and one to write, and has {_list(dataset.column_names)}: pairs in a "
                "txt file are separated by a tab, or the targets stand in a file of their own (--train-target-file)."
            )
        return free[0]

    source = choose(args.source_column, "source", args.target_column)
    return Columns(source, choose(args.target_column, "target", source), tuple(args.condition_names))


def load_file(file: str, target_file: str | None = None, no_header: bool = False) -> Dataset:
    """One file of pairs, its format told by its name; with `target_file`, both are read line by line.

    Columns of csv, tsv and txt files are texts, whatever they look like: "007" and "NA" stay what they are.
    Tab-separated files know no quotation marks.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: its name has no known ending, or its content does not fit it.
    """
    for path in (file, target_file):
        if path and not Path(path).is_file():
            beside = Path(path).parent
            found = sorted(entry.name for entry in beside.iterdir()) if beside.is_dir() else []
            hint = closest(Path(path).name, found) if found else f" There is no folder {beside} either."
            raise FileNotFoundError(f"the file {path} does not exist.{hint}")
    if target_file:
        return _load_aligned(file, target_file)
    kind = _kind(file)
    if kind == "json" or kind == "parquet":
        return _load(kind, file).flatten()  # {"translation": {"en": ..., "de": ...}} becomes translation.en, ...
    dialect = csv.excel if kind == "csv" else _TabSeparated
    first = _first_row(file, dialect)
    headless = no_header or kind == "txt"
    names = (
        ["source", "target", *(f"column_{i}" for i in range(3, len(first) + 1))][: len(first)] if headless else first
    )
    return _load(
        "csv",
        file,
        sep=dialect.delimiter,
        quoting=dialect.quoting,
        header=None if headless else 0,
        names=names,
        features=Features({name: Value("string") for name in names}),
        encoding="utf-8-sig",
        na_filter=False,
    )


def _from_files(args: DataArguments) -> DatasetDict:
    splits = DatasetDict()
    for split in _HUB_SPLITS:
        file, target_file = args.files(split)
        if file:
            splits[split] = load_file(file, target_file, args.no_header)
    return splits


def _from_hub(args: DataArguments) -> DatasetDict:
    try:
        loaded = load_dataset(args.dataset_name, args.dataset_config_name)
    except DatasetGenerationError as error:
        raise ValueError(f"--dataset-name {args.dataset_name} cannot be read: {error.__cause__ or error}") from error
    splits = DatasetDict()
    for split, names in _HUB_SPLITS.items():
        found = next((name for name in names if name in loaded), None)
        if found:
            splits[split] = loaded[found].flatten()
    if "train" not in splits:
        raise ValueError(f"{args.dataset_name} has no split `train`; it has {_list(loaded)}.")
    return splits


def _load_aligned(file: str, target_file: str) -> Dataset:
    source = _load("text", file).rename_column("text", "source")
    target = _load("text", target_file).rename_column("text", "target")
    if len(source) != len(target):
        raise ValueError(
            f"{file} has {len(source)} lines and {target_file} has {len(target)}: line i of one must be the translation "
            "of line i of the other."
        )
    return concatenate_datasets([source, target], axis=1)


def _load(kind: str, file: str, **options) -> Dataset:
    try:
        return load_dataset(kind, data_files=file, split="train", **options)
    except (DatasetGenerationError, pyarrow.ArrowInvalid, ValueError) as error:
        if "corresponds to no data" in str(error):  # what datasets says of a file without rows
            raise ValueError(f"{file} holds no pairs.") from error
        raise ValueError(f"{file} cannot be read as {kind}: {error.__cause__ or error}") from error


def _kind(file: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = _KINDS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        raise ValueError(
            f"{file} has no ending that tells its format: name it {', '.join(_KINDS)} (.gz may follow), or give "
            "the file of its targets too, and both are read line by line."
        )
    return kind


def _first_row(file: str, dialect: type[csv.Dialect]) -> list[str]:
    opener = gzip.open if file.endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as lines:
            row = next(csv.reader(lines, dialect), None)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not row:
        raise ValueError(f"{file} is empty, or begins with an empty line.")
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

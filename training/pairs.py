"""The pairs of texts of a training run: loaded, split, and encoded as token ids."""

import itertools
import logging
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset, DatasetDict, IterableDataset, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers import PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from ..configuration import WeftConfig
from ..tokenization import iter_columns
from .encoding import Columns, PairEncoder, is_empty
from .files import first_number, list_names, load_file, load_file_stream
from .options import DataArguments
from .sources import TrainedSources, source_key
from .streaming import flattened

logger = logging.getLogger(__name__)

_HUB_SPLITS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
# A vocabulary is trained on this many texts from the beginning of a stream. More would change it little, and a stream
# may have no end.
_VOCABULARY_TEXTS = 1_000_000


class Pairs:
    """The pairs that the arguments name: in memory, or with `args.streaming` the training pairs as a stream.

    Args:
        args: the arguments. For a stream, `max_train_samples` and a `validation_split` of 1 or more are numbers of
            rows at its beginning.
        stream: training pairs, instead of those in the arguments.

    Attributes:
        train (`datasets.Dataset` or `datasets.IterableDataset`): the training pairs.
        held_out (`datasets.DatasetDict`): the splits "validation" and "test", if there are any.
        columns (`Columns`): the names of the columns.
        trained (`TrainedSources`): the sources that the model will have been trained on, once they are encoded.
        contradictions (`dict[str, str]`): sentences on sources with different targets, by split, once encoded.
        notes (`list[str]`): what makes the scores uncertain, once they are encoded.

    Raises:
        FileNotFoundError: a file or data set does not exist, or no file matches a pattern.
        ValueError: a file cannot be read, is empty, or lacks a column (the message names the file and its columns), or
            an argument does not work with streams.
    """

    def __init__(self, args: DataArguments, stream: IterableDataset | None = None):
        self.trained, self.notes, self.contradictions = TrainedSources(), list[str](), dict[str, str]()
        self.args, self.origin = args, args.train_file or args.dataset_name or "the stream"
        if args.streaming and args.train_target_file:
            raise ValueError("--train-target-file does not work with --streaming: paste SOURCES TARGETS > pairs.txt")
        if stream is None and not (args.train_file or args.dataset_name):
            raise ValueError("Give either --train-file or --dataset-name: got neither.")
        splits = self._from_hub() if args.dataset_name else self._from_files()
        train: Any = splits.pop("train") if stream is None else stream
        first = self._first_rows(train, 1) if args.streaming else train
        self.columns = find_columns(first, args, self.origin)
        for split, rows in {"train": first, **splits}.items():
            name = self.origin if split == "train" else args.files(split)[0] or f"{args.dataset_name} ({split})"
            if not len(rows):
                raise ValueError(f"{name} has no training pairs.")
            for column in (self.columns.source, self.columns.target, *self.columns.conditions):
                _check_column(column, rows, name)
        self.held_out = DatasetDict({split: _first(rows, args.max_eval_samples) for split, rows in splits.items()})
        if not args.streaming:
            self.train = _first(train, args.max_train_samples)
        else:
            train = train if "validation" in splits else self._split_stream(train)
            self.train = train if args.max_train_samples is None else train.take(args.max_train_samples)

    def _from_files(self) -> dict[str, Any]:
        args, splits = self.args, {}
        for split in _HUB_SPLITS:
            file, target_file = args.files(split)
            if file and split == "train" and args.streaming:
                splits[split] = load_file_stream(file, args.no_header)
            elif file:
                splits[split] = load_file(file, target_file, args.no_header, keeps_blank_lines=True)
        return splits

    def _from_hub(self) -> dict[str, Any]:
        args = self.args
        try:
            dataset = load_dataset(args.dataset_name, args.dataset_config_name, streaming=args.streaming)
        except DatasetGenerationError as error:
            raise ValueError(f"{args.dataset_name} cannot be read: {error.__cause__ or error}") from error
        splits: dict[str, Any] = {}
        for split, names in _HUB_SPLITS.items():
            rows = next((dataset[name] for name in names if name in dataset), None)
            if rows is not None:
                in_memory = not (args.streaming and split == "train")
                splits[split] = _in_memory(rows, args.max_eval_samples) if in_memory else rows
        if "train" not in splits:
            raise ValueError(f"{args.dataset_name} has no split `train`; it has {list_names(dataset)}.")
        return splits

    def _split_stream(self, rows: IterableDataset) -> IterableDataset:
        """Move the first rows to "validation" if the arguments give a number of them. Return the other rows."""
        share = self.args.validation_split
        if share is not None and share >= 1:
            self.held_out["validation"] = _first(self._first_rows(rows, int(share)), self.args.max_eval_samples)
            return rows.skip(int(share))
        if share != 0:
            logger.warning(
                "A stream has no length, so no share of it can be set aside (validation_split): nothing is evaluated. "
                "Give --validation-file, or --validation-split 1000 for the first 1,000 pairs. 0 turns off this "
                "warning."
            )
        return rows

    def _first_rows(self, rows: IterableDataset, number: int) -> Dataset:
        """Return the first rows of a stream in memory, with flattened dictionaries."""
        try:
            table = next(rows.with_format("arrow").iter(number), None)
        except Exception as error:  # each reader of `datasets` raises its own errors, which do not name the file
            raise ValueError(f"{self.origin} cannot be read: {error.__cause__ or error}") from error
        if table is None:
            raise ValueError(f"{self.origin} has no training pairs.")
        return Dataset(flattened(table))

    def __len__(self) -> int:
        return len(self.train)

    def texts(self) -> Iterator[str]:
        """Return sources and targets in turn, for a vocabulary. Of a stream, these are the first ones."""
        names = (self.columns.source, self.columns.target)
        if isinstance(self.train, Dataset):
            return iter_columns(self.train, names)
        tables = map(flattened, self.train.with_format("arrow").iter(1000))
        rows = (row for table in tables for row in table.to_pylist())
        return itertools.islice(iter_columns(rows, names), _VOCABULARY_TEXTS)

    def first(self) -> tuple[str, str]:
        """Return the start of the first source with a target, and of this target."""
        pairs = zip(*[self.texts()] * 2, strict=True)
        source, target = next((pair for pair in pairs if not is_empty(*pair)), ("", ""))
        return source[:200], target[:200]

    def keys(self) -> np.ndarray:
        """Return the numbers of the sources of the training pairs in memory without an empty text ([`source_key`])."""
        source, target, conditions = self.columns.source, self.columns.target, self.columns.conditions
        rows = (row for row in self.train if not is_empty(str(row[source]), str(row[target])))
        return np.array([source_key(str(row[source]), map(row.get, conditions)) for row in rows], np.uint32)

    def limits(self, config: WeftConfig) -> tuple[int, int]:
        """Return the limits of a source and of a target in tokens, from the arguments or else from the configuration.

        Raises:
            ValueError: the arguments allow more tokens than the model's learned position tables have rows.
        """
        limits = []
        for side in ("source", "target"):
            limit, rows = getattr(self.args, f"max_{side}_length"), getattr(config, f"max_{side}_positions")
            if config.has_position_table and limit is not None and limit > rows:
                raise ValueError(
                    f"max_{side}_length={limit} is more than the model's max_{side}_positions={rows}: give at most "
                    f"{rows}, or a new model --config-overrides max_{side}_positions={limit}."
                )
            limits.append(rows if limit is None else limit)
        return limits[0], limits[1]

    def encode(
        self,
        tokenizer: PreTrainedTokenizerFast,
        config: WeftConfig,
        seed: int = 42,
        trained: TrainedSources | None = None,
    ) -> dict[str, Any]:
        """Encode all splits, and split off validation pairs. This sets `trained` and `notes`.

        Args:
            tokenizer: the tokenizer of the model.
            config: the configuration of the model.
            seed: the seed of the order of a stream.
            trained: the sources that the model was trained on before. Defaults to none.

        Returns:
            The encoded rows (`Dataset`, or [`ShuffledStream`] for a stream) of "train", and of "validation" and "test"
            if there are any.

        Raises:
            ValueError: as in [`PairEncoder`] and [`split_validation`].
        """
        args = self.args
        encoder = PairEncoder(
            self.columns, tokenizer, self.limits(config), config.decoder_start_token_id, args.truncate
        )
        for split in _HUB_SPLITS:
            if file := args.files(split)[0]:
                encoder.first_numbers[split] = 1 if args.files(split)[1] else first_number(file, args.no_header)
        in_memory = self.held_out if args.streaming else {"train": self.train, **self.held_out}
        splits: dict[str, Any] = {
            split: encoder.encode(split, rows, args.num_proc) for split, rows in in_memory.items()
        }
        self.contradictions = encoder.contradictions
        held_out = _keys(splits["validation"]).tolist() if "validation" in splits else ()
        self.trained, self.notes = split_validation(splits, args, trained or TrainedSources())
        if args.streaming:
            order = {"buffer_size": args.shuffle_buffer_size, "seed": seed, "name": self.origin}
            splits["train"] = encoder.stream(self.train, held_out, **order)
        return splits


def split_validation(
    splits: dict[str, Dataset], args: DataArguments, trained: TrainedSources
) -> tuple[TrainedSources, list[str]]:
    """Move `args.validation_split` of the training pairs to a "validation" split if there is none.

    The hashes of their sources decide which pairs these are, so that they are the same in each training. The default
    is a twentieth, but at least 50 pairs, or a fifth of fewer than 250. Pairs with equal inputs stay together. A pair
    whose source the model is or was trained on never validates it: a warning counts those that are left out.

    Args:
        splits: the encoded pairs with their `source_key`, which is removed. "train" is missing if it is a stream.
        args: the arguments.
        trained: the sources that the model was trained on before.

    Returns:
        The sources that the model will have been trained on, and sentences on what makes the scores uncertain.

    Raises:
        ValueError: no training pair would be left.
    """
    if "train" in splits and "validation" not in splits and args.validation_split != 0:
        pairs = splits["train"]
        if held_out := _held_out_rows(_keys(pairs), args.validation_split, trained):
            splits["validation"] = _first(pairs.select(held_out), args.max_eval_samples)
            splits["train"] = pairs.select(np.setdiff1d(np.arange(len(pairs)), held_out))
            logger.info(
                f"Set aside for validation: {len(held_out)} of {len(pairs)} training pairs (--validation-split)."
            )
        else:
            logger.warning(f"Nothing is evaluated: {trained.name} was trained on all sources. Give --validation-file.")
    keys = {split: _keys(rows) for split, rows in splits.items()}
    for split, rows in splits.items():
        splits[split] = rows.remove_columns("source_key")
    held_out_keys = keys.get("validation", np.array([], np.uint32))
    after = trained.after_training(keys.get("train"), held_out_keys)
    is_new = ~np.isin(held_out_keys, after.keys)
    if not is_new.all():
        logger.warning(
            f"Left out: {(~is_new).sum()} of {len(is_new)} validation pairs, because the model is or was trained on "
            f"their sources.{'' if is_new.any() else ' Nothing is evaluated.'}"
        )
        rows = splits.pop("validation")
        if is_new.any():
            splits["validation"] = rows.select(np.flatnonzero(is_new))
    notes = trained.notes(held_out_keys[is_new], "validation pairs")
    if "test" in splits:
        notes += after.notes(keys["test"], "test pairs")
    for note in notes:
        logger.warning(note)
    return after, notes


def _held_out_rows(keys: np.ndarray, share: float | None, trained: TrainedSources) -> list[int]:
    """Return the rows to validate with: those with the smallest keys, if the model was not trained on them."""
    rows = len(keys)
    if share is None:
        size = max(1, round(rows / 20), min(50, rows // 5))
    else:
        size = int(share) if share >= 1 else max(1, round(rows * share))
    if size >= rows:
        raise ValueError(f"validation_split would take {size} of {rows} training pairs: give fewer, or 0 for none.")
    if len(np.unique(keys)) == 1:
        raise ValueError("All training pairs have the same source: give --validation-split 0.")
    groups: dict[int, list[int]] = {}
    order = np.lexsort([keys, trained.is_doubtful(keys)])
    for row in order[~np.isin(keys[order], trained.keys)].tolist():
        groups.setdefault(int(keys[row]), []).append(row)
    held_out: list[int] = []
    for group in groups.values():
        if len(held_out) + len(group) <= size:
            held_out += group
    return held_out or min(groups.values(), key=len, default=[])


def _keys(rows: Dataset) -> np.ndarray:
    return np.asarray(rows["source_key"][:], np.uint32)


def find_columns(dataset: Dataset, args: DataArguments, origin: str) -> Columns:
    """Return the names of the columns.

    Source and target are the columns that the arguments name, or else those with the names `source` and `target`, or
    else the two columns without another use.

    Raises:
        ValueError: there are not enough columns, or it is not clear which are meant.
    """
    for name in filter(None, (args.source_column, args.target_column)):
        _check_column(name, dataset, origin)
    candidates = [column for column in dataset.column_names if column not in args.condition_names]
    source = args.source_column or ("source" if "source" in candidates and args.target_column != "source" else None)
    target = args.target_column or ("target" if "target" in candidates and source != "target" else None)
    others = [column for column in candidates if column not in (source, target)]
    num_missing = [source, target].count(None)
    if len(others) < num_missing:
        raise ValueError(
            f"{origin} needs a source column and a target column, and has {list_names(dataset.column_names)}: "
            "separate them by a tab, or give --train-target-file."
        )
    if num_missing and len(others) > num_missing:
        first, second = (shlex.quote(name) for name in (source or others[-num_missing], target or others[-1]))
        raise ValueError(
            f"{origin} has the columns {list_names(dataset.column_names)}: name the source and the target column, for "
            f"example --source-column {first} --target-column {second}."
        )
    names = iter(others)
    return Columns(source or next(names), target or next(names), tuple(args.condition_names))


def trained_columns(model: str) -> dict[str, str]:
    """Return the columns that a model was trained on, as `source` and `target`, if its tokenizer has their names.

    Args:
        model: the folder or Hub id of the model.
    """
    return get_tokenizer_config(model).get("text_columns", {})


def _in_memory(rows: Dataset | IterableDataset, limit: int | None) -> Dataset:
    """Return a split with flattened dictionaries. Of a stream, only the first `most` rows are fetched."""
    if isinstance(rows, Dataset):
        return rows.flatten()
    tables = [
        flattened(table) for table in (rows if limit is None else rows.take(limit)).with_format("arrow").iter(10_000)
    ]
    return Dataset(pyarrow.concat_tables(tables)) if tables else Dataset.from_dict({})


def _first(dataset: Dataset, rows: int | None) -> Dataset:
    return dataset if rows is None or rows >= len(dataset) else dataset.select(range(rows))


def _check_column(name: str, dataset: Dataset, origin: str) -> None:
    if name not in dataset.column_names:
        raise ValueError(f"{origin} has no column {name!r}; it has {list_names(dataset.column_names)}.")

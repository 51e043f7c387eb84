"""Streams of training rows: repeated, shuffled, shared by processes, and resumed at the exact batch."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
from torch.utils.data import IterableDataset, get_worker_info

# The entry of a batch with the position in the stream after it. `WeftTrainer` removes it.
STREAM_POSITION = "stream_position"
# Rows that are encoded in one call.
_ROWS_PER_CALL = 1000
# Iterables of `datasets` that continue at the exact row when their state is loaded. A shuffle buffer is refilled
# instead, and other steps may skip rows.
_EXACT = frozenset(["ArrowExamplesIterable", "ExamplesIterable", "RebatchedArrowExamplesIterable"])

Columns = dict[str, list]
# maps the columns of some rows and the numbers of these rows to the columns of any number of features
Encode = Callable[[Columns, list[int]], Columns]
# maps the lengths of features, (2, features), and a random generator to batches of features
FormBatches = Callable[[np.ndarray, np.random.Generator], Iterator[Sequence[int]]]


@dataclass(frozen=True)
class Position:
    """
    A place in a stream.

    Args:
        epoch (`int`):
            The number of times that the stream was read to its end.
        row (`int`):
            The number of rows before the window.
        state (`dict`, *optional*):
            The state of the rows at the beginning of the window. Without it, earlier rows are read and skipped.
        done (`int`):
            The number of features (or of batches formed by lengths) of the window that were already yielded.
    """

    epoch: int = 0
    row: int = 0
    state: dict | None = None
    done: int = 0


class Batch(NamedTuple):
    """The features of a batch, and the position after it as JSON."""

    features: list[dict[str, Any]]
    position: str


class ShuffledStream(IterableDataset):
    """
    Endless batches of encoded rows from a `datasets.IterableDataset`, for [`WeftTrainer`].

    The rows are read in windows, and each window is shuffled. Each epoch reads the shards of the rows in another
    order. The sizes of windows differ from epoch to epoch by up to a quarter, so that other rows share a window. The
    order depends only on the seed, the epoch and the settings. Every row is in exactly one batch of an epoch. A batch
    can contain the last rows of an epoch and the first rows of the next.

    Each process and each worker of a `DataLoader` reads all rows, but encodes only its share of each window: every
    n-th row. Thus no row is lost or repeated, for any number of shards. A window has up to `buffer_size` rows of each
    worker.

    Args:
        rows (`datasets.IterableDataset`):
            The rows. They are read anew in each epoch.
        encode (`Callable`):
            Maps columns of rows and the numbers of these rows to columns of features. There may be more or fewer
            features than rows.
        buffer_size (`int`, *optional*, defaults to 10,000):
            The largest number of rows of a window. With 1, the order of rows and shards is kept.
        seed (`int`, *optional*, defaults to 0):
            The seed of the order.
        name (`str`, *optional*):
            The name of the rows in error messages.

    Raises:
        ValueError: while the stream is read: rows cannot be read, or no row of an epoch gives a feature.
    """

    def __init__(
        self,
        rows: datasets.IterableDataset,
        encode: Encode,
        *,
        buffer_size: int = 10_000,
        seed: int = 0,
        name: str = "the stream",
    ):
        self.rows, self.encode, self.buffer_size, self.seed = rows, encode, buffer_size, seed
        self.name = name
        # set by the trainer: the number of features of a batch, or how batches are formed from the lengths of a window,
        # and their `max_tokens_per_batch` and `pad_to_multiple_of`
        self.batch_size = 1
        self.form_batches: FormBatches | None = None
        self.max_tokens: int | None = None
        self.pad_to_multiple_of: int | None = None
        # set by the trainer: the index of this process among those that share the rows, and their number
        self.process_index, self.num_processes = 0, 1
        self._start: Mapping[int, Position] = {}
        self._batches_before = 0

    def start_at(self, positions: Mapping[str, str], batches_before: int, num_workers: int = 0) -> None:
        """
        Let `iter` start after batches that were already yielded.

        It yields None for each of these, because a resumed Trainer skips them.

        Args:
            positions (`Mapping[str, str]`):
                The position after the last batch of each worker, as JSON, by worker number.
            batches_before (`int`):
                The number of batches.
            num_workers (`int`, *optional*, defaults to 0):
                The number of workers of the `DataLoader`.

        Raises:
            ValueError: the positions belong to other settings of the stream.
        """
        settings = self._settings(max(num_workers, 1))
        self._start, self._batches_before = {}, batches_before
        start: dict[int, Position] = {}
        for worker, text in positions.items():
            saved = json.loads(text)
            other = [
                f"{name} ({saved['settings'].get(name)} in the checkpoint, {value} now)"
                for name, value in settings.items()
                if saved["settings"].get(name) != value
            ]
            if other:
                raise ValueError(
                    f"The checkpoint is from another order of {self.name}: {', '.join(other)}. Resume with the arguments of "
                    "the first run."
                )
            start[int(worker)] = Position(**saved["position"])
        self._start = start

    def __iter__(self) -> Iterator[Batch | None]:
        worker = get_worker_info()
        index, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        start, before = self._start.get(index, Position()), self._batches_before
        # batches come from the workers in turn
        yield from itertools.repeat(None, len(range(index, before, workers)))
        share, shares = self.process_index * workers + index, self.num_processes * workers
        settings = self._settings(workers)
        features: list[dict[str, Any]] = []
        for some, position in self._parts(start, share, shares):
            features += some
            if self.form_batches is not None or len(features) == self.batch_size:
                text = json.dumps({"settings": settings, "position": asdict(position), "worker": index})
                yield Batch(features, text)
                features = []

    def _settings(self, workers: int) -> dict[str, int | None]:
        return {
            "seed": self.seed,
            "shuffle_buffer_size": self.buffer_size,
            "max_tokens_per_batch": self.max_tokens,
            "pad_to_multiple_of": self.pad_to_multiple_of,
            "processes": self.num_processes,
            "dataloader_num_workers": workers,
        }

    def _parts(self, start: Position, share: int, shares: int) -> Iterator[tuple[list[dict[str, Any]], Position]]:
        """Yield the features, or the batches if batches are formed, each with the position after it."""
        while True:
            is_empty = True
            for state, row, numbers, table in self._windows(start, share, shares):
                rng = np.random.default_rng([self.seed, start.epoch, row, share])
                columns = self._encoded(table, numbers)
                done = start.done if row == start.row else 0
                for number, members in enumerate(self._order(columns, rng)):
                    is_empty = False
                    if number >= done:
                        features = [{name: column[i].tolist() for name, column in columns.items()} for i in members]
                        yield features, Position(start.epoch, row, state, number + 1)
            if is_empty:
                raise ValueError(self._why_empty(shares))
            start = Position(start.epoch + 1)

    def _why_empty(self, shares: int) -> str:
        share = f" Each of {shares} processes and workers reads one row in {shares}." if shares > 1 else ""
        return f"{self.name} has no rows to train on: it is empty, or all rows are skipped because they are empty, too short or too long.{share}"

    def _windows(
        self, start: Position, share: int, shares: int
    ) -> Iterator[tuple[dict | None, int, list[int], pa.Table]]:
        """Yield the windows from that of `start` on: the state and the row count before it, and the share's rows."""
        rng = np.random.default_rng([self.seed, start.epoch])
        rows = self.rows.with_format("arrow")  # a copy, with an epoch and a state of its own
        size = _ROWS_PER_CALL
        if self.buffer_size > 1:
            size = self.buffer_size - int(rng.integers(self.buffer_size // 4 + 1))
            # the epoch determines the order of shards, also that of a shuffle that the rows already have
            rows.set_epoch(int(rng.integers(1, 2**31)))
        if start.state is not None:
            rows.load_state_dict(start.state)
        state, row = start.state, 0 if start.state is None else start.row
        tables = rows.iter(size * shares)
        while True:
            try:
                table = next(tables, None)
            except Exception as error:  # each reader of `datasets` raises its own errors, which do not name the file
                raise ValueError(f"{self.name} cannot be read after row {row}: {error.__cause__ or error}") from error
            if table is None:
                return
            if row >= start.row:
                yield state, row, list(range(row + share, row + len(table), shares)), _take(table, share, shares)
            row += len(table)
            state = _exact_state(rows)

    def _encoded(self, table: pa.Table, numbers: list[int]) -> dict[str, list[np.ndarray]]:
        """Return the features of a window as columns of arrays, which take a fifth of the memory of lists."""
        columns: dict[str, list[np.ndarray]] = {}
        for begin in range(0, len(numbers), _ROWS_PER_CALL):
            some = flattened(table.slice(begin, _ROWS_PER_CALL)).to_pydict()
            for name, values in self.encode(some, numbers[begin : begin + _ROWS_PER_CALL]).items():
                columns.setdefault(name, []).extend(map(np.asarray, values))
        return columns

    def _order(self, columns: dict[str, list[np.ndarray]], rng: np.random.Generator) -> Iterator[Sequence[int]]:
        number = len(next(iter(columns.values()), []))
        if not number:
            return
        if self.form_batches is not None:
            lengths = np.array([[len(ids) for ids in columns[name]] for name in ("input_ids", "labels")])
            yield from self.form_batches(lengths, rng)
        else:
            order = rng.permutation(number) if self.buffer_size > 1 else np.arange(number)
            yield from order[:, None].tolist()


class StreamCollator:
    """
    A collator for the batches of a [`ShuffledStream`]. It adds the position in the stream to each batch.

    Args:
        collator (`Callable`):
            Makes a batch from a list of features.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Mapping[str, Any]]):
        self.collator = collator

    def __call__(self, batch: Batch | None) -> dict[str, Any] | None:
        return None if batch is None else {**self.collator(batch.features), STREAM_POSITION: batch.position}


def data_fingerprint(dataset: Any) -> str | None:
    """Return a checksum of training data: of the row count and a thousand rows, or of the first row of a stream.

    Return None for data other than `datasets.Dataset`, `list` and [`ShuffledStream`], whose rows may be random. Also
    return None for a stream that cannot be read. Training then raises an error with the reason.
    """
    if isinstance(dataset, ShuffledStream):
        number = 1
        try:
            rows: Iterator[Any] = iter(list(itertools.islice(dataset.rows, number)))
        except Exception:  # each reader of `datasets` has errors of its own
            return None
    elif isinstance(dataset, (datasets.Dataset, list)):
        plain = dataset if isinstance(dataset, list) else dataset.with_format(None)
        number = len(plain)
        rows = (plain[index] for index in range(0, number, max(1, number // 1000)))
    else:
        return None
    total = hashlib.blake2b(f"{number}".encode(), digest_size=16)
    for row in itertools.islice(rows, number):
        total.update(repr(row).encode())
    return total.hexdigest()


def flattened(table: pa.Table) -> pa.Table:
    """Return a table in which columns of dictionaries become columns of their entries, such as `translation.en`."""
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def _take(table: pa.Table, share: int, shares: int) -> pa.Table:
    return table if shares == 1 else table.take(pa.array(range(share, len(table), shares), pa.int64()))


def _exact_state(rows: datasets.IterableDataset) -> dict | None:
    state = rows.state_dict()
    return state if _types(state) <= _EXACT else None


def _types(state: Any) -> set[str]:
    """Return the kinds of iterables in a state; "" if unknown."""
    if not isinstance(state, dict):
        return set()
    own = {state["type"]} if "type" in state else {""} if "epoch" not in state else set()
    return own.union(*map(_types, state.values()))

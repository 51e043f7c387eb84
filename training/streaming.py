"""Streams of training rows: repeated, shuffled and shared by processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from torch.utils.data import IterableDataset, get_worker_info

from . import files  # noqa: F401 (it registers the file system by which a worker process reads them)

# Rows that are encoded in one call.
_ROWS_PER_CALL = 1000

ColumnLists = dict[str, list]
# maps the columns of some rows and the numbers of these rows to the columns of any number of features
Encode = Callable[[ColumnLists, list[int]], ColumnLists]
# maps the lengths of features, (2, features), and a random generator to batches of features
FormBatches = Callable[[np.ndarray, np.random.Generator], Iterator[Sequence[int]]]


class ShuffledStream(IterableDataset):
    """Endless batches of encoded rows from a `datasets.IterableDataset`, for [`WeftTrainer`].

    The rows are read in windows, and each window is shuffled. Each epoch reads the shards of the rows in another
    order. The sizes of windows differ from epoch to epoch by up to a quarter, so that other rows share a window. The
    order depends only on the seed, the epoch and the settings, so that a resumed Trainer, which skips the batches of
    earlier steps, continues at the exact batch. Every row is in exactly one batch of an epoch. A batch can contain the
    last rows of an epoch and the first rows of the next.

    Each process and each worker of a `DataLoader` reads all rows, but encodes only its share of each window: every
    n-th row. Thus no row is lost or repeated, for any number of shards. A window has up to `buffer_size` rows of each
    worker.

    Args:
        rows: the rows. They are read anew in each epoch.
        encode: maps columns of rows and the numbers of these rows to columns of features. There may be more or fewer
            features than rows.
        buffer_size: the largest number of rows of a window. With 1, the order of rows and shards is kept.
        seed: the seed of the order.
        name: the name of the rows in error messages.

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
        # set by the trainer: the number of features of a batch, or how batches are formed from the lengths of a window
        self.batch_size = 1
        self.form_batches: FormBatches | None = None
        # set by the trainer: the index of this process among those that share the rows, and their number
        self.process_index, self.num_processes = 0, 1

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        worker = get_worker_info()
        index, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        share, shares = self.process_index * workers + index, self.num_processes * workers
        batch: list[dict[str, Any]] = []
        for epoch in itertools.count():
            is_empty = True
            for row, table in self._windows(epoch, shares):
                columns = self._encoded(table, row, share, shares)
                for members in self._order(columns, np.random.default_rng([self.seed, epoch, row, share])):
                    is_empty = False
                    batch += ({name: column[i].tolist() for name, column in columns.items()} for i in members)
                    if self.form_batches is not None or len(batch) == self.batch_size:
                        yield batch
                        batch = []
            if is_empty:
                raise ValueError(f"{self.name} has no rows that fit for each of {shares} processes and workers.")

    def _windows(self, epoch: int, shares: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the windows of an epoch, each with the number of rows before it."""
        rng = np.random.default_rng([self.seed, epoch])
        rows, size = self.rows.with_format("arrow"), _ROWS_PER_CALL  # a copy, with an epoch of its own
        if self.buffer_size > 1:
            size = self.buffer_size - int(rng.integers(self.buffer_size // 4 + 1))
            # the epoch determines the order of shards, also that of a shuffle that the rows already have
            rows.set_epoch(int(rng.integers(1, 2**31)))
        row = 0
        try:
            for table in rows.iter(size * shares):
                yield row, table
                row += len(table)
        except Exception as error:  # each reader of `datasets` raises its own errors, which do not name the file
            raise ValueError(f"{self.name} cannot be read after row {row}: {error.__cause__ or error}") from error

    def _encoded(self, table: pa.Table, row: int, share: int, shares: int) -> dict[str, list[np.ndarray]]:
        """Return the features of a share of a window as columns of arrays, a fifth of the memory of lists."""
        columns: dict[str, list[np.ndarray]] = {}
        numbers = range(share, len(table), shares)
        for begin in range(0, len(numbers), _ROWS_PER_CALL):
            part = numbers[begin : begin + _ROWS_PER_CALL]
            rows = flattened(table.take(pa.array(part, pa.int64()))).to_pydict()
            for name, values in self.encode(rows, [row + number for number in part]).items():
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


def flattened(table: pa.Table) -> pa.Table:
    """Return a table in which columns of dictionaries become columns of their entries, such as `translation.en`."""
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table

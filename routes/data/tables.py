"""A folder for `datasets.load_from_disk`, written row by row, and either completely or not at all."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict

from ...common.whole_files import whole_folder

REPORT = "report.json"
# The number of rows in memory that are written as one record batch.
_BATCH = 1000


class Tables:
    """
    Writes the rows of one or several splits to a folder.

    Args:
        folder (`Path`):
            The folder. It stays without a data set until `save`.
        has_starting_material (`bool`):
            Whether the rows have the column `starting_material`.
        splits (`Sequence[str]`):
            The names of the splits.
    """

    def __init__(self, folder: Path, has_starting_material: bool, splits: Sequence[str]):
        columns = [("source", pa.string()), ("target", pa.string()), ("n_steps", pa.int64())]
        self._schema = pa.schema(columns + [("starting_material", pa.string())] * has_starting_material)
        self._folder, self._parts = folder, folder / ".parts"
        self._waiting: dict[str, list[dict[str, Any]]] = {name: [] for name in splits}
        self.rows = dict.fromkeys(splits, 0)

    def __enter__(self) -> Tables:
        self._parts.mkdir()
        self._files = {name: pa.ipc.new_stream(str(self._parts / name), self._schema) for name in self.rows}
        return self

    def __exit__(self, *error: Any) -> None:
        for name, file in self._files.items():
            self._flush(name)
            file.close()

    def write(self, split: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to a split."""
        self._waiting[split] += rows
        self.rows[split] += len(rows)
        if len(self._waiting[split]) >= _BATCH:
            self._flush(split)

    def _flush(self, name: str) -> None:
        if self._waiting[name]:
            self._files[name].write_batch(pa.RecordBatch.from_pylist(self._waiting[name], schema=self._schema))
            self._waiting[name] = []

    def save(self, is_split: bool, report: dict[str, Any]) -> None:
        """
        Save the data set in the folder. Call it after the `with` statement.

        Args:
            is_split (`bool`):
                Whether the folder contains all splits by their names, or only the rows of the first.
            report (`dict[str, Any]`):
                The contents of `report.json`.
        """
        tables = {name: Dataset.from_file(str(self._parts / name)) for name in self.rows}
        with _quiet():
            if is_split:
                DatasetDict(tables).save_to_disk(str(self._folder))
            else:
                next(iter(tables.values())).save_to_disk(str(self._folder))
        del tables  # release the files, which are mapped into memory
        shutil.rmtree(self._parts)
        (self._folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bars of `datasets` for short operations."""
    was_quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def data_folder(folder: Path, inputs: Sequence[Path], overwrite: bool) -> Iterator[Path]:
    """
    Yield a folder to write into, which gets its final name at the end of the `with` block.

    After an error, an old folder of that name is unchanged.

    Args:
        folder (`Path`):
            The final name.
        inputs (`Sequence[Path]`):
            The files that are being read. None of them may be in the folder.
        overwrite (`bool`):
            Whether a prepared data set of that name may be replaced.

    Yields:
        `Path`: the folder to write into.

    Raises:
        ValueError: the folder exists and must not be replaced, or an input file is in it.
    """
    is_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_there and not overwrite:
        raise ValueError(f"{folder} exists and is not empty: choose another folder, or replace it with --overwrite.")
    if is_there and not (folder / REPORT).is_file():
        raise ValueError(
            f"{folder} is not overwritten: {REPORT} is missing, so `weftformer prepare-routes` did not write it."
        )
    if inside := [path for path in inputs if folder.resolve() in path.resolve().parents]:
        raise ValueError(f"{inside[0]} is in {folder}, which would be overwritten: choose another folder.")
    with whole_folder(folder, replace=is_there) as staging:
        yield staging

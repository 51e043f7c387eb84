"""A folder for `datasets.load_from_disk`, written row by row, whole or not at all."""

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
# Rows that are kept before they are written as one record batch.
_BATCH = 1000


class Tables:
    """Rows of one or several splits on their way to the disk.

    Args:
        folder: the folder to write; only `save` leaves anything in it.
        has_starting_material: whether rows have the column `starting_material`.
        splits: names of the splits.
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
        """Make the folder, once the `with` statement is over.

        Args:
            is_split: whether the folder holds all splits by their names, or the rows of the first only.
            report: what `report.json` says.
        """
        tables = {name: Dataset.from_file(str(self._parts / name)) for name in self.rows}
        with _quiet():
            if is_split:
                DatasetDict(tables).save_to_disk(str(self._folder))
            else:
                next(iter(tables.values())).save_to_disk(str(self._folder))
        del tables  # they are mapped into memory
        shutil.rmtree(self._parts)
        (self._folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bars for what takes a moment."""
    was_quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def data_folder(folder: Path, inputs: Sequence[Path], overwrite: bool) -> Iterator[Path]:
    """A folder to write into, which gets its name when everything is written; an error leaves what was there.

    Args:
        folder: the name.
        inputs: files that are being read; none may be in the folder.
        overwrite: whether a data set that was written like this may be replaced.

    Raises:
        ValueError: there is something else of that name.
    """
    is_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_there and not overwrite:
        raise ValueError(
            f"{folder} exists and is not empty: choose another folder, or have it replaced (--overwrite)."
        )
    if is_there and not (folder / REPORT).is_file():
        raise ValueError(
            f"{folder} is no data set that was prepared here ({REPORT} is missing): it is not overwritten."
        )
    if inside := [path for path in inputs if folder.resolve() in path.resolve().parents]:
        raise ValueError(f"{inside[0]} is in {folder}, which would be overwritten: choose another folder.")
    with whole_folder(folder, replace=is_there) as staging:
        yield staging

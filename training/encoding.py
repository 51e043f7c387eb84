"""Encoding training pairs as token ids. Labels end with the eos, and have no bos or start token."""

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute
from datasets import Dataset, DatasetDict, IterableDataset
from transformers import PreTrainedTokenizerFast

from ..tokenization import encode_checked
from .data import Columns
from .streaming import ShuffledStream

logger = logging.getLogger(__name__)


def encode_pairs(
    splits: DatasetDict,
    columns: Columns,
    tokenizer: PreTrainedTokenizerFast,
    limits: tuple[int, int],
    decoder_start_token_id: int | None = None,
    truncate: bool = False,
    num_proc: int | None = None,
) -> DatasetDict:
    """Replace the columns of each split by `input_ids`, `labels` and, if there are conditions, `condition_values`.

    Labels are the tokens of the target and the eos. A bos or start token that the tokenizer adds in front is removed,
    because the model adds it itself. Pairs with an empty text and pairs that are too long (unless `truncate`) are left
    out. A warning counts them and repeated pairs, with the first row numbers.

    Args:
        splits: the training pairs.
        columns: the names of their columns.
        tokenizer: the tokenizer of the model.
        limits: the largest number of tokens of a source and of a target.
        decoder_start_token_id: the model's start token.
        truncate: whether to truncate long texts instead of leaving their pairs out.
        num_proc: the number of processes.

    Raises:
        ValueError: a source or target is not a text or not in the vocabulary, a condition is not a finite number, a
            target contains a special token, or a split has no pairs left. The message names split, row and column.
    """
    encoded = DatasetDict()
    for split, dataset in splits.items():
        found = dataset.map(
            partial(_encode_batch, split, columns, tokenizer, limits, decoder_start_token_id, truncate),
            batched=True,
            with_indices=True,
            remove_columns=dataset.column_names,
            num_proc=num_proc if num_proc and num_proc < len(dataset) else None,
            desc=f"Tokenizing {split}",
        )
        _report(split, dataset, found["row"][:] if len(found) else [], columns, limits, truncate)
        encoded[split] = found.remove_columns("row")
    return encoded


def encode_stream(
    rows: IterableDataset,
    columns: Columns,
    tokenizer: PreTrainedTokenizerFast,
    limits: tuple[int, int],
    decoder_start_token_id: int | None = None,
    truncate: bool = False,
    **order: Any,
) -> ShuffledStream:
    """Return training pairs as a stream of batches, which are encoded as in [`encode_pairs`] while they are read.

    Args:
        rows: the training pairs.
        columns: the names of their columns.
        tokenizer: the tokenizer of the model.
        limits: the largest number of tokens of a source and of a target.
        decoder_start_token_id: the model's start token.
        truncate: whether to truncate long texts instead of leaving their pairs out.
        **order: `buffer_size`, `seed` and `name`, see [`ShuffledStream`].

    Raises:
        ValueError: while the stream is read, as in [`encode_pairs`]. Rows are numbered in reading order.
    """
    encode = partial(_encode_batch, "train", columns, tokenizer, limits, decoder_start_token_id, truncate)
    names = [columns.source, columns.target, *columns.conditions]
    if rows.column_names is not None:  # the types of other columns may differ between files
        present = rows.column_names
        rows = rows.select_columns(sorted({name if name in present else name.partition(".")[0] for name in names}))
    return ShuffledStream(rows, _StreamEncoder(encode, names, limits, truncate), **order)


class _StreamEncoder:
    """Encodes some rows of a stream, and warns when pairs are left out for the first time."""

    def __init__(
        self, encode: Callable[..., dict[str, list]], names: list[str], limits: tuple[int, int], truncate: bool
    ):
        self.encode, self.names, self.limits, self.truncate = encode, names, limits, truncate
        self._has_warned = False

    def __call__(self, batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        for name in self.names:
            if name not in batch:
                raise ValueError(
                    f"Row {rows[0]} of train has no column {name!r}; it has {', '.join(map(repr, batch))}."
                )
        encoded = self.encode(batch, rows)
        left_out = len(rows) - len(encoded.pop("row"))
        if left_out and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{left_out} of {len(rows)} pairs of the stream, from row {rows[0]} on, are skipped: they have an empty text"
                f"{'' if self.truncate else f' or are too long ({_named(self.limits)})'}. Pairs skipped later are not reported."
            )
        return encoded


def longest(dataset: Dataset) -> int:
    """Return the length of the longest labels."""
    batches = dataset.select_columns(["labels"]).with_format("arrow").iter(10_000)
    return max(pyarrow.compute.max(pyarrow.compute.list_value_length(batch["labels"])).as_py() for batch in batches)


def encode_target(tokenizer: PreTrainedTokenizerFast, ids: list[int], start: int | None = None) -> list[int]:
    """Return the labels for an encoded target: without a bos or start token in front, and with one eos at the end."""
    fronts = {tokenizer.bos_token_id, start} - {None, tokenizer.eos_token_id}
    if ids and ids[0] in fronts:
        ids = ids[1:]
    return ids if ids and ids[-1] == tokenizer.eos_token_id else [*ids, tokenizer.eos_token_id]


def _encode_batch(
    split: str, columns: Columns, tokenizer, limits, start, truncate, batch: dict[str, list], rows: list[int]
) -> dict[str, list]:
    for column in (columns.source, columns.target):
        _check_texts(batch[column], split, column, rows)
    sources, targets = (
        text_ids(tokenizer, kind, batch[column], [f"Row {row} of {split}, column {column!r}" for row in rows])
        for kind, column in (("text", columns.source), ("text_target", columns.target))
    )
    forbidden = {tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id} - {None}
    special = set(tokenizer.all_special_ids)
    encoded: dict[str, list] = {"row": [], "input_ids": [], "labels": []}
    if columns.conditions:
        encoded["condition_values"] = []
    for index, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True)):
        labels = encode_target(tokenizer, target, start)
        if not forbidden.isdisjoint(labels[:-1]):
            token = tokenizer.convert_ids_to_tokens(next(i for i in labels if i in forbidden))
            raise ValueError(
                f"Row {row} of {split} contains the special token {token!r} in column {columns.target!r}: the model "
                f"would learn to stop or pad there. Remove it from the text {batch[columns.target][index][:80]!r}."
            )
        if is_empty(batch[columns.source][index], batch[columns.target][index]):
            continue
        if truncate:
            source, labels = (
                _truncate(ids, limit, special) for ids, limit in zip((source, labels), limits, strict=True)
            )
        if len(source) > limits[0] or len(labels) > limits[1]:
            continue
        encoded["row"].append(row)
        encoded["input_ids"].append(source)
        encoded["labels"].append(labels)
        if columns.conditions:
            encoded["condition_values"].append(
                [finite_number(batch[name][index], split, row, name) for name in columns.conditions]
            )
    return encoded


def _check_texts(texts: list, split: str, column: str, rows: list[int]) -> None:
    for row, text in zip(rows, texts, strict=True):
        if not isinstance(text, str):
            raise ValueError(f"Row {row} of {split} has {text!r} in column {column!r}, which must be a text.")


def text_ids(tokenizer: Any, kind: str, texts: list[str], places: list[str]) -> list[list[int]]:
    """Return the token ids of texts.

    Args:
        tokenizer: the tokenizer.
        kind: the argument of the tokenizer that takes the texts, `text` or `text_target`.
        texts: the texts.
        places: the place of each text, for messages.

    Raises:
        ValueError: a text is not in the vocabulary. The message names its place.
    """
    try:
        # no mask, because the collator makes it, and no truncation, because the tokenizer would keep this setting
        settings: dict[str, Any] = {
            kind: texts,
            "return_attention_mask": False,
            "return_token_type_ids": False,
            "verbose": False,
        }
        return tokenizer(**settings)["input_ids"]
    except Exception as error:  # the Rust layer raises plain `Exception`, and does not name the text
        for place, text in zip(places, texts, strict=True):
            try:
                encode_checked(tokenizer, text)
            except ValueError as reason:
                raise ValueError(f"{place}: {reason}") from error
        raise


def _truncate(ids: list[int], limit: int, special: set[int]) -> list[int]:
    """Return the first tokens, and the special tokens at the end, such as the eos or a language."""
    if len(ids) <= limit:
        return ids
    end = next((number for number, token in enumerate(reversed(ids)) if token not in special), limit)
    return [*ids[: max(0, limit - end)], *ids[len(ids) - end :]]


def finite_number(value: Any, split: str, row: int, column: str) -> float:
    """Return a value of a condition column as a number.

    Raises:
        ValueError: it is not a finite number. The message names the row, its split or file, and the column.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"Row {row} of {split} has {value!r} in condition column {column!r}, which must be a finite number."
        )
    return number


def is_empty(source: str, target: str) -> bool:
    """Return whether a pair has an empty text, so that nothing is learned from it."""
    return not source.strip() or not target.strip()


def _report(
    split: str, dataset: Dataset, kept: list[int], columns: Columns, limits: tuple[int, int], truncate: bool
) -> None:
    if not kept:
        raise ValueError(
            f"All {len(dataset)} pairs of {split} are empty or too long ({_named(limits)}): raise the limits."
        )
    frame = dataset.select_columns([columns.source, columns.target, *columns.conditions]).to_pandas()
    repeats = np.flatnonzero(frame.duplicated())
    if len(repeats):
        logger.warning(f"{len(repeats)} of {len(frame)} pairs of {split} repeat an earlier one ({_rows(repeats)}).")
    out = np.setdiff1d(np.arange(len(frame)), kept)
    texts = frame.iloc[out]
    empty = np.array([*map(is_empty, texts[columns.source], texts[columns.target])], dtype=bool)
    reasons = [
        f"{len(rows)} {reason} ({_rows(rows)})"
        for rows, reason in (
            (out[empty], "have an empty text"),
            (out[~empty], f"are too long for {_named(limits)} (--truncate shortens them)"),
        )
        if len(rows)
    ]
    if reasons:
        logger.warning(f"{len(out)} of {len(frame)} pairs of {split} are skipped: {', '.join(reasons)}.")


def _rows(rows: np.ndarray) -> str:
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}"


def _named(limits: tuple[int, int]) -> str:
    return f"max_source_length={limits[0]}, max_target_length={limits[1]}"

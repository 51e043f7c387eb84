"""Encoding training pairs as token ids. Labels end with the eos, and have no bos or start token."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerFast

from ..common.panics import panics_as_errors
from ..common.words import counted
from ..tokenization import encode_checked
from .batching import row_lengths
from .sources import source_key
from .streaming import ShuffledStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """The names of the columns with the source, the target and the conditions."""

    source: str
    target: str
    conditions: tuple[str, ...] = ()


class PairEncoder:
    """Replaces the columns of pairs by `input_ids`, `labels` and, if there are conditions, `condition_values`.

    Labels are the tokens of the target and the eos. A bos or start token that the tokenizer adds in front is removed,
    because the model adds it itself. Pairs with an empty text and pairs that are too long (unless `truncate`) are left
    out.

    Args:
        columns: the names of the columns.
        tokenizer: the tokenizer of the model.
        limits: the largest number of tokens of a source and of a target.
        decoder_start_token_id: the model's start token.
        truncate: whether to truncate long texts instead of leaving their pairs out.

    Attributes:
        first_numbers (`dict[str, int]`): the number of the first row of a split in messages. Defaults to 1.
        contradictions (`dict[str, str]`): sentences on sources with different targets, by the split that has some.

    Raises:
        ValueError: while it encodes: a source or target is not a text or not in the vocabulary, a condition is not a
            finite number, or a target contains a special token. The message names split, row and column.
    """

    def __init__(
        self,
        columns: Columns,
        tokenizer: PreTrainedTokenizerFast,
        limits: tuple[int, int],
        decoder_start_token_id: int | None = None,
        truncate: bool = False,
    ):
        self.columns, self.tokenizer, self.limits = columns, tokenizer, limits
        self.start, self.truncate = decoder_start_token_id, truncate
        self.first_numbers: dict[str, int] = {}
        self.contradictions: dict[str, str] = {}
        self._held_out: frozenset[int] = frozenset()
        self._has_warned = False

    def encode(self, split: str, dataset: Dataset, num_proc: int | None = None) -> Dataset:
        """Encode a split. The rows also have their `source_key`, see [`source_key`].

        Warnings count sources with different targets, repeated pairs, and pairs that are left out, with row numbers.

        Raises:
            ValueError: as in the class, or no pairs are left.
        """
        columns_of_rows = dataset.map(
            partial(self, split),
            batched=True,
            with_indices=True,
            remove_columns=dataset.column_names,
            num_proc=num_proc if num_proc and num_proc < len(dataset) else None,
            desc=f"Tokenizing {split}",
        )
        self._report(split, dataset, columns_of_rows["row"][:] if len(columns_of_rows) else [])
        return columns_of_rows.remove_columns("row")

    def stream(self, rows: IterableDataset, held_out: Iterable[int] = (), **order: Any) -> ShuffledStream:
        """Return pairs as a stream of batches, encoded while they are read. Rows are numbered in reading order.

        Args:
            rows: the training pairs.
            held_out: the numbers of the sources whose pairs are left out, see [`source_key`].
            **order: `buffer_size`, `seed` and `name`, see [`ShuffledStream`].
        """
        self._held_out = frozenset(held_out)
        if rows.column_names is not None:  # the types of other columns may differ between files
            columns = {name.partition(".")[0] if name not in rows.column_names else name for name in self._names}
            rows = rows.select_columns(sorted(columns))
        return ShuffledStream(rows, self._encode_stream, **order)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.columns.source, self.columns.target, *self.columns.conditions

    def _encode_stream(self, batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        """Encode some rows of a stream, and warn when pairs are left out for the first time."""
        first = rows[0] + self.first_numbers.get("train", 1)
        for name in self._names:
            if name not in batch:
                raise ValueError(f"Row {first} of train has no column {name!r}; it has {', '.join(map(repr, batch))}.")
        columns_of_rows = self("train", batch, rows)
        num_left_out = len(rows) - len(columns_of_rows.pop("row"))
        if num_left_out and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"Skipped: {num_left_out} of {counted(len(rows), 'pair')} of the stream, from row {first} on, with an "
                f"empty text{'' if self.truncate else f' or too long for {_named(self.limits)}'}. Pairs skipped later "
                "are not reported."
            )
        is_trained = [key not in self._held_out for key in columns_of_rows.pop("source_key")]
        return {name: [*compress(values, is_trained)] for name, values in columns_of_rows.items()}

    def __call__(self, split: str, batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        """Encode columns of rows with these indices. The result also has the `row` and `source_key` of each pair."""
        columns, tokenizer = self.columns, self.tokenizer
        row_numbers = [row + self.first_numbers.get(split, 1) for row in rows]
        for column in (columns.source, columns.target):
            _check_texts(batch[column], split, column, row_numbers)
        sources, targets = (
            text_ids(
                tokenizer, kind, batch[column], [f"Row {row} of {split}, column {column!r}" for row in row_numbers]
            )
            for kind, column in (("text", columns.source), ("text_target", columns.target))
        )
        forbidden = {tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id} - {None}
        special = set(tokenizer.all_special_ids)
        columns_of_rows: dict[str, list] = {"row": [], "source_key": [], "input_ids": [], "labels": []}
        if columns.conditions:
            columns_of_rows["condition_values"] = []
        for index, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True)):
            labels = encode_target(tokenizer, target, self.start)
            if not forbidden.isdisjoint(labels[:-1]):
                token = tokenizer.convert_ids_to_tokens(next(i for i in labels if i in forbidden))
                raise ValueError(
                    f"Row {row_numbers[index]} of {split} contains the special token {token!r} in column "
                    f"{columns.target!r}: remove it from the text {batch[columns.target][index][:80]!r}."
                )
            if is_empty(batch[columns.source][index], batch[columns.target][index]):
                continue
            if self.truncate:
                source, labels = (
                    _truncate(ids, limit, special) for ids, limit in zip((source, labels), self.limits, strict=True)
                )
            if len(source) > self.limits[0] or len(labels) > self.limits[1]:
                continue
            numbers = [
                finite_number(batch[name][index], split, row_numbers[index], name) for name in columns.conditions
            ]
            columns_of_rows["row"].append(row)
            columns_of_rows["source_key"].append(source_key(batch[columns.source][index], numbers))
            columns_of_rows["input_ids"].append(source)
            columns_of_rows["labels"].append(labels)
            if columns.conditions:
                columns_of_rows["condition_values"].append(numbers)
        return columns_of_rows

    def _report(self, split: str, dataset: Dataset, encoded_rows: list[int]) -> None:
        columns, limits = self.columns, _named(self.limits)
        if not encoded_rows:
            raise ValueError(
                f"No pair of {split} can be used: {counted(len(dataset), 'pair')}, each empty or too long "
                f"({limits}): raise the limits."
            )
        inputs, texts = [columns.source, *columns.conditions], [columns.source, columns.target]
        frame = dataset.select_columns([*inputs, columns.target]).to_pandas()
        is_encoded = np.isin(frame.index, encoded_rows)
        frame.index += self.first_numbers.get(split, 1)
        frame[texts] = frame[texts].apply(lambda column: column.str.strip())
        is_line = (frame[texts] != "").any(axis=1)  # a blank one is no pair
        frame, is_encoded = frame[is_line], is_encoded[is_line]
        different = frame[is_encoded].drop_duplicates()
        groups = different[different.duplicated(inputs, keep=False)].groupby(inputs, sort=False)
        if len(groups):
            examples = [
                f"{rows[columns.source].iloc[0][:80]!r} has "
                + " and ".join(
                    f"{text[:80]!r} (row {number})" for number, text in rows[columns.target].head(3).items()
                )
                for _, rows in islice(groups, 3)
            ]
            self.contradictions[split] = (
                f"{counted(len(groups), 'source')} with different targets: {'; '.join(examples)}"
                f"{'; ...' if len(groups) > len(examples) else '.'}"
            )
            logger.warning(f"In {split}, {self.contradictions[split]}")
        size, repeats = f"of {counted(len(frame), 'pair')} of {split}", frame.index[frame.duplicated()]
        if len(repeats):
            logger.warning(f"Repeated: {len(repeats)} {size} ({_rows(repeats)}).")
        is_empty = (frame[texts] == "").any(axis=1)
        reasons = [
            f"{len(rows)} {reason} ({_rows(rows)})"
            for rows, reason in (
                (frame.index[~is_encoded & is_empty], "with an empty text"),
                (frame.index[~is_encoded & ~is_empty], f"too long for {limits} (--truncate shortens them)"),
            )
            if len(rows)
        ]
        if reasons:
            logger.warning(f"Skipped: {(~is_encoded).sum()} {size}, {', '.join(reasons)}.")


def longest(dataset: Dataset) -> int:
    """Return the length of the longest labels."""
    return int(row_lengths(dataset, ["labels"]).max())


def encode_target(tokenizer: PreTrainedTokenizerFast, ids: list[int], start: int | None = None) -> list[int]:
    """Return the labels for an encoded target: without a bos or start token in front, and with one eos at the end."""
    fronts = {tokenizer.bos_token_id, start} - {None, tokenizer.eos_token_id}
    if ids and ids[0] in fronts:
        ids = ids[1:]
    return ids if ids and ids[-1] == tokenizer.eos_token_id else [*ids, tokenizer.eos_token_id]


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
        with panics_as_errors("the tokenizer fails"):
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
        raise ValueError(f"Row {row} of {split} has {value!r} in condition column {column!r}: give a finite number.")
    return number


def is_empty(source: str, target: str) -> bool:
    """Return whether a pair has an empty text, so that nothing is learned from it."""
    return not source.strip() or not target.strip()


def _rows(rows: Sequence[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}"


def _named(limits: tuple[int, int]) -> str:
    return f"max_source_length={limits[0]}, max_target_length={limits[1]}"

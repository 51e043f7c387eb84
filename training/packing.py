"""Packing: several pairs of a source and a target in one row, so that rows of one length have little padding.

A row has a row of source tokens and one of target tokens. Which pair a token belongs to is said by `sequence_ids` and
`decoder_sequence_ids`, with which the model keeps the pairs apart and counts positions anew in each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .batching import LengthSampler, halve_largest

# The inputs that say which pair a token belongs to.
SEQUENCE_INPUTS = ("sequence_ids", "decoder_sequence_ids")
# The columns of a pair that can be packed.
_COLUMNS = ("input_ids", "attention_mask", "labels", "condition_values")


def best_fit(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """
    Pack pairs into rows by best-fit decreasing (Johnson et al. 1974), with a limit on both sides.

    The longest pairs come first. Each goes to the row where the least room is left on the side with more tokens in all,
    of the rows that have room on both sides, or else to a new row.

    Args:
        lengths (`np.ndarray` of shape `(2, pairs)`):
            The number of source tokens and of target tokens of each pair, at most `row_length`.
        row_length (`int`):
            The most source tokens, and the most target tokens, of a row.

    Returns:
        `np.ndarray` of shape `(pairs,)` in int32: the number of the row of each pair, from 0 on.
    """
    other, main = lengths if lengths[1].sum() >= lengths[0].sum() else lengths[::-1]
    order = np.lexsort((-lengths.sum(axis=0, dtype=np.int64), -lengths.max(axis=0)))
    row_of = np.empty(lengths.shape[1], dtype=np.int32)
    # the rows by what is free on the main side: sorted pairs of what is free on the other side, and the row
    free_rows: list[list[tuple[int, int]]] = [[] for _ in range(row_length + 1)]
    most_free = np.full(row_length + 1, -1, dtype=np.int32)  # the largest first entry of each list
    rows = 0
    for pair, need, need_main in zip(order.tolist(), other[order].tolist(), main[order].tolist(), strict=True):
        has_room = most_free[need_main:] >= need
        tightest = int(has_room.argmax())
        if has_room[tightest]:
            free_main = need_main + tightest
            candidates = free_rows[free_main]
            free, row = candidates.pop(bisect_left(candidates, (need, -1)))
            most_free[free_main] = candidates[-1][0] if candidates else -1
        else:
            free, free_main, row = row_length, row_length, rows
            rows += 1
        row_of[pair] = row
        free, free_main = free - need, free_main - need_main
        insort(free_rows[free_main], (free, row))
        most_free[free_main] = free_rows[free_main][-1][0]
    return row_of


def in_given_order(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """Return the row of each pair like [`best_fit`], but a row has pairs that follow each other.

    No other cut of this order has fewer rows.
    """
    row_of = np.empty(lengths.shape[1], dtype=np.int32)
    row = source = target = 0
    for pair, (need, need_target) in enumerate(lengths.T.tolist()):
        source, target = source + need, target + need_target
        if pair and max(source, target) > row_length:
            row, source, target = row + 1, need, need_target
        row_of[pair] = row
    return row_of


class PackingSampler(LengthSampler):
    """
    A batch sampler for packed rows. [`DataCollatorForPackedSeq2Seq`] makes the rows of its batches.

    The pairs are packed once, by their lengths ([`best_fit`]), and every pair is in exactly one row. A batch has at most
    `rows_per_batch` rows, no two batches differ by more than one row, and rows of a batch have similar lengths.

    Each epoch shuffles which of the pairs of equal lengths stands where, which of the rows of equal lengths is in which
    batch, and the order of batches. The shuffle depends only on the seed and the epoch. The number of batches and the
    lengths in each are the same in every epoch, because schedules and resuming need this. The number of batches is a
    multiple of `num_processes` unless every row has one pair, because accelerate distributes the batches over processes
    in turn.

    Args:
        source_lengths (`Sequence[int]` or `np.ndarray` of shape `(pairs,)`):
            The number of source tokens of each pair.
        target_lengths (`Sequence[int]` or `np.ndarray` of shape `(pairs,)`):
            The number of target tokens of each pair.
        row_length (`int`):
            The most source tokens, and the most target tokens, of a row.
        rows_per_batch (`int`, *optional*, defaults to 1):
            The largest number of rows of a batch, on each process.
        num_processes (`int`, *optional*, defaults to 1):
            The number of processes that train together.
        seed (`int`, *optional*, defaults to 0):
            The seed of the shuffle.

    Raises:
        ValueError: a pair does not fit into a row, there are fewer pairs than processes, `rows_per_batch` is below 1,
            or the two lists differ in length.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        row_length: int,
        rows_per_batch: int = 1,
        *,
        num_processes: int = 1,
        seed: int = 0,
    ):
        super().__init__(seed)
        self.lengths = np.array([source_lengths, target_lengths], dtype=np.int32)
        if rows_per_batch < 1:
            raise ValueError(f"rows_per_batch={rows_per_batch} is not allowed: give at least 1.")
        pairs = self.lengths.shape[1]
        if pairs < num_processes:
            raise ValueError(f"{pairs} pairs are too few for {num_processes} processes.")
        _check_fit(self.lengths, row_length)
        row_of = best_fit(self.lengths, row_length)
        # a pair for each place, row after row: its lengths are those of every pair that stands there
        self._places = np.argsort(row_of, kind="stable")
        sizes = np.bincount(row_of).tolist()
        batches = -(-len(sizes) // rows_per_batch)
        batches += -batches % num_processes
        halve_largest(sizes, lambda: len(sizes) >= batches)  # a row at least for each batch
        self._starts = np.cumsum([0, *sizes])
        # source and target tokens of each row
        self.rows = np.add.reduceat(self.lengths[:, self._places], self._starts[:-1], axis=1)
        self.sizes = [len(part) for part in np.array_split(np.arange(len(sizes)), min(batches, len(sizes)))]

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        drawn = rng.permutation(len(self._places))
        # both sorted by lengths: the pairs in their random order, and the places
        pairs = np.empty_like(drawn)
        pairs[np.lexsort(self.lengths[:, self._places])] = drawn[np.lexsort(self.lengths[:, drawn])]
        for batch in self._shuffled_batches(rng):
            yield [pair for row in batch for pair in pairs[self._starts[row] : self._starts[row + 1]].tolist()]


class DataCollatorForPackedSeq2Seq:
    """
    Packs pairs into rows: `input_ids`, `attention_mask`, `labels`, `sequence_ids`, `decoder_sequence_ids`, and with
    conditions `condition_values` for each source token.

    It takes the pairs of a batch in their order, as [`PackingSampler`] gives them row by row, or if that needs fewer
    rows packs them by [`best_fit`]. It works with any Trainer of transformers and a Weft model. In evaluation by
    generation, and with several processes, [`WeftTrainer`] with `packing=True` is what to use.

    The model makes the decoder's inputs of the labels, with the start token at the beginning of each pair.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The tokenizer of the pairs, whose pad token fills the rows.
        row_length (`int`):
            The most source tokens, and the most target tokens, of a row.
        model ([`~transformers.PreTrainedModel`], *optional*):
            The model, to make `decoder_input_ids` here. transformers' own label smoothing needs them.
        label_pad_token_id (`int`, *optional*, defaults to -100):
            What labels are filled with.
        pad_to_multiple_of (`int`, *optional*):
            Rows are padded to the longest of the batch, rounded up to a multiple of this. With the value of
            `row_length`, all rows have this length.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        row_length: int,
        model: PreTrainedModel | None = None,
        label_pad_token_id: int = -100,
        pad_to_multiple_of: int | None = None,
    ):
        self.tokenizer, self.row_length, self.model = tokenizer, row_length, model
        self.label_pad_token_id, self.pad_to_multiple_of = label_pad_token_id, pad_to_multiple_of

    def __call__(self, features: Sequence[dict[str, Any]], return_tensors: str | None = None) -> dict[str, Any]:
        """Return the batch of some pairs.

        Args:
            features (`Sequence[dict]`):
                The pairs: `input_ids` and `labels`, and if wanted `attention_mask` and `condition_values`.
            return_tensors (`str`, *optional*):
                "pt", the only one there is.

        Raises:
            ValueError: a pair does not fit into a row, lacks something, or has something that cannot be packed.
        """
        if return_tensors not in (None, "pt"):
            raise ValueError(f"return_tensors={return_tensors!r}: this collator makes tensors of torch alone.")
        pairs = [self._tensors(feature) for feature in features]
        lengths = np.array([[len(pair[name]) for pair in pairs] for name in ("input_ids", "labels")])
        _check_fit(lengths, self.row_length)
        row_of = in_given_order(lengths, self.row_length)
        packed = best_fit(lengths, self.row_length)
        if packed.max() < row_of.max():
            row_of = packed
        rows: list[list[dict[str, torch.Tensor]]] = [[] for _ in range(int(row_of.max()) + 1)]
        for pair, row in zip(pairs, row_of.tolist(), strict=True):
            rows[row].append({**pair, **self._ids(pair, len(rows[row]))})
        pad = self.tokenizer.pad_token_id
        fill = dict.fromkeys(SEQUENCE_INPUTS, -1) | {"input_ids": pad, "labels": self.label_pad_token_id}
        batch = {name: self._joined(rows, name, fill.get(name, 0)) for name in rows[0][0]}
        if self.model is not None:
            prepare: Any = self.model.prepare_decoder_input_ids_from_labels
            batch["decoder_input_ids"] = prepare(batch["labels"], batch["decoder_sequence_ids"])
        return batch

    def _tensors(self, feature: dict[str, Any]) -> dict[str, torch.Tensor]:
        others = [name for name in feature if name not in _COLUMNS]
        if others or "input_ids" not in feature or "labels" not in feature:
            raise ValueError(
                f"A pair has the columns {', '.join(feature)}: packing needs input_ids and labels, takes attention_mask and "
                "condition_values, and nothing else."
            )
        pair = {name: torch.as_tensor(value) for name, value in feature.items()}
        ids = pair["input_ids"]
        if "attention_mask" not in pair:
            # as of a batch that is not packed: where the tokenizer makes no mask, the model reads it from the pads
            pad, has_mask = self.tokenizer.pad_token_id, "attention_mask" in self.tokenizer.model_input_names
            is_real = torch.ones_like(ids) if has_mask or pad == self.tokenizer.eos_token_id else ids.ne(pad).long()
            pair["attention_mask"] = is_real
        if "condition_values" in pair:  # of the pair, (features,)
            pair["condition_values"] = pair["condition_values"].expand(len(ids), -1)
        return pair

    @staticmethod
    def _ids(pair: dict[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
        lengths = (len(pair[name]) for name in ("input_ids", "labels"))
        return {name: torch.full((length,), number) for name, length in zip(SEQUENCE_INPUTS, lengths, strict=True)}

    def _joined(self, rows: list[list[dict[str, torch.Tensor]]], name: str, fill: int) -> torch.Tensor:
        joined = pad_sequence(
            [torch.cat([pair[name] for pair in row]) for row in rows], batch_first=True, padding_value=fill
        )
        if not self.pad_to_multiple_of:
            return joined
        missing = -joined.shape[1] % self.pad_to_multiple_of
        dimensions = (0, 0) * (joined.ndim - 2)  # the features of conditions
        return torch.nn.functional.pad(joined, (*dimensions, 0, missing), value=fill)


def _check_fit(lengths: np.ndarray, row_length: int) -> None:
    longest = lengths.max(axis=0)
    if longest.max(initial=0) > row_length:
        raise ValueError(
            f"Pair {longest.argmax()} has {longest.max()} tokens, more than the {row_length} of a packed row: raise "
            "packing_length, or leave long pairs out."
        )

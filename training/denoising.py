"""Span corruption, the objective of T5 over plain text: a source and labels from the ids of a text, drawn anew each time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase

from ..tokenization import sentinel_ids

# Share of the tokens that are removed, and mean length of a span, as in T5.
_NOISE_DENSITY = 0.15
_SPAN_LENGTH = 3.0


class DataCollatorForSpanCorruption:
    """T5's objective (Raffel et al. 2020, arXiv:1910.10683): sentinels replace spans in the source, and the labels list the spans.

    Of a text of L tokens, round(0.15 L) are removed, in round(that / 3) spans (at least one of each). All ways to cut the
    removed tokens into spans are equally likely, and so are those of the other tokens. As in T5's code, a text begins with
    tokens that stay and ends with a span, and labels begin with the first sentinel. The tokens that the tokenizer adds to
    every text surround the source, and the labels end with the eos.

    Args:
        tokenizer: a tokenizer with sentinels, see [`add_sentinels`].
        pad_to_multiple_of: pad sources and labels to a multiple of this length.

    Raises:
        ValueError: the tokenizer has no sentinels, or a text has fewer than two tokens or too many spans.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pad_to_multiple_of: int | None = None):
        self.sentinels = sentinel_ids(tokenizer)
        if not self.sentinels:
            raise ValueError(
                "The tokenizer has no sentinel <extra_id_0>: call weftformer.tokenization.add_sentinels(tokenizer), and resize "
                "the model's vocabulary."
            )
        self._eos = tokenizer.eos_token_id
        self._pad = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=pad_to_multiple_of)
        around = list(tokenizer("")["input_ids"])
        self._after = [self._eos] if around[-1:] == [self._eos] else []
        self._before = around[: len(around) - len(self._after)]

    def longest_text(self, max_source_length: int, max_target_length: int) -> int:
        """Return the most ids of a text whose source and labels, with their special tokens, have at most these lengths.

        Raises:
            ValueError: not even two ids fit.
        """
        around = len(self._before) + len(self._after)
        for length in range(max_source_length + max_target_length, 1, -1):
            noise, spans = _noise(length)
            source, target = length - noise + spans + around, noise + spans + 1
            if source <= max_source_length and target <= max_target_length and spans <= len(self.sentinels):
                return length
        raise ValueError(
            f"A source of {max_source_length} and a target of {max_target_length} tokens leave no room for a text: raise "
            "max_source_length and max_target_length."
        )

    def features(self, ids: Sequence[int], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return `input_ids` and `labels` of one text, which is given without special tokens."""
        if len(ids) < 2:
            raise ValueError(f"A text of {len(ids)} tokens cannot be corrupted: leave out texts of fewer than 2.")
        noise, spans = _noise(len(ids))
        if spans > len(self.sentinels):
            raise ValueError(
                f"A text of {len(ids)} tokens has {spans} spans, and the tokenizer {len(self.sentinels)} sentinels: cut texts "
                "to the length of `longest_text`."
            )
        source: list[int] = []
        labels: list[int] = []
        at = 0
        stays, removed = _segments(len(ids) - noise, spans, rng), _segments(noise, spans, rng)
        for kept, gone, sentinel in zip(stays, removed, self.sentinels, strict=False):
            source += [*ids[at : at + kept], sentinel]
            labels += [sentinel, *ids[at + kept : at + kept + gone]]
            at += kept + gone
        return {"input_ids": [*self._before, *source, *self._after], "labels": [*labels, self._eos]}

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return a batch from rows with `input_ids`, the ids of a text without special tokens.

        The random numbers come from torch's global generator, as in transformers' collators.

        Returns:
            `input_ids` and `attention_mask` of shape `(batch, source)`, `labels` of shape `(batch, target)`.
        """
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        return self._pad([self.features(row["input_ids"], rng) for row in rows])


def _noise(length: int) -> tuple[int, int]:
    """Return how many tokens of a text of `length` are removed, and in how many spans."""
    noise = max(round(length * _NOISE_DENSITY), 1)
    return noise, max(round(noise / _SPAN_LENGTH), 1)


def _segments(items: int, segments: int, rng: np.random.Generator) -> list[int]:
    """Return the lengths, at least 1, of so many segments of `items`. All ways to cut are equally likely."""
    cuts = np.sort(rng.choice(items - 1, segments - 1, replace=False)) + 1
    return np.diff([0, *cuts, items]).tolist()

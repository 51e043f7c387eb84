"""Pretraining objectives over plain text, as collators: span corruption (T5), text infilling (BART), UL2's mixture.

Each makes a source and labels of a text's ids, anew whenever the text comes by.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase

from ..tokenization import MODES, Objective, sentinel_ids


class Corrupted(NamedTuple):
    """Ids of a source and of what is to be written, both without what stands at the ends of every text."""

    source: list[int]
    target: list[int]


class DenoisingCollator(ABC):
    """Batches for `WeftForConditionalGeneration` from the ids of texts: `input_ids`, `attention_mask`, `labels`.

    Sources stand between the tokens that the tokenizer puts around a text, and labels end with the eos. The loss counts
    every label. Rows that have `labels` already are padded and otherwise left as they are.

    The random numbers are those of `seed` and `process_index`, one after another for each text: the same texts in the same
    order give the same batches. Each worker of a `DataLoader` has its own, which its own seed makes.

    Args:
        tokenizer: one with the tokens of the objective, see [`add_denoising_tokens`].
        seed: seed of the random numbers.
        process_index: number of this process among those that train together.
        pad_to_multiple_of: pad sources and labels to a multiple of this length.

    Raises:
        ValueError: the tokenizer lacks a token, or a text has fewer than two.
    """

    objective: Objective

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int = 0,
        process_index: int = 0,
        pad_to_multiple_of: int | None = None,
    ):
        self.tokenizer = tokenizer
        self._pad = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=pad_to_multiple_of)
        self._seed = (seed, process_index)
        self._generators: dict[tuple[int, ...], np.random.Generator] = {}
        around = list(tokenizer("")["input_ids"])
        self._after = [tokenizer.eos_token_id] if around[-1:] == [tokenizer.eos_token_id] else []
        self._before = around[: len(around) - len(self._after)]

    @abstractmethod
    def corrupt(self, ids: Sequence[int], rng: np.random.Generator) -> Corrupted:
        """What is read, and what is to be written, of a text of two ids or more."""

    @abstractmethod
    def _fits(self, length: int, max_source: int, max_target: int) -> bool:
        """Whether texts of so many ids become sources and targets within these lengths, whatever is drawn."""

    def longest_text(self, max_source_length: int, max_target_length: int) -> int:
        """Most ids of a text whose source and labels, with the tokens at their ends, are at most so long.

        Raises:
            ValueError: not even two ids fit.
        """
        max_source = max_source_length - len(self._before) - len(self._after)
        for length in range(max_source + max_target_length, 1, -1):
            if self._fits(length, max_source, max_target_length - 1):
                return length
        raise ValueError(
            f"A source of {max_source_length} and a target of {max_target_length} tokens leave no room for a text: raise "
            "max_source_length and max_target_length."
        )

    def features(self, ids: Sequence[int], rng: np.random.Generator) -> dict[str, list[int]]:
        """`input_ids` and `labels` of one text, with what stands at their ends."""
        if len(ids) < 2:
            raise ValueError(f"A text of {len(ids)} tokens cannot be corrupted: leave out texts of fewer than 2.")
        source, target = self.corrupt(ids, rng)
        return {
            "input_ids": [*self._before, *source, *self._after],
            "labels": [*target, self.tokenizer.eos_token_id],
        }

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch from rows with `input_ids`: a list of the ids of a text, without bos and eos.

        Returns:
            `input_ids` and `attention_mask` of shape `(batch, source)`, `labels` of shape `(batch, target)`.
        """
        rng = self._rng
        return self._pad([row if "labels" in row else self.features(row["input_ids"], rng) for row in rows])

    @property
    def _rng(self) -> np.random.Generator:
        worker = torch.utils.data.get_worker_info()
        seed = self._seed if worker is None else (*self._seed, worker.seed)  # another in every epoch
        if seed not in self._generators:
            self._generators[seed] = np.random.default_rng(seed)
        return self._generators[seed]

    def _sentinels(self) -> list[int]:
        if not (found := sentinel_ids(self.tokenizer)):
            raise ValueError(
                "The tokenizer has no sentinel <extra_id_0>: call weftformer.tokenization.add_denoising_tokens("
                f"tokenizer, {self.objective!r}), and resize the model's vocabulary."
            )
        return found


class DataCollatorForSpanCorruption(DenoisingCollator):
    """T5's objective (Raffel et al. 2020, arXiv:1910.10683): spans are replaced by sentinels, and written after theirs.

    Of a text of L tokens round(`noise_density` L) are taken out, in round(that / `mean_span_length`) spans (at least one of
    each), whose lengths are drawn so that all ways to cut are equally likely, and so are those of what stays. A text
    begins with what stays and ends with a span, as in T5's code; a target begins with the first sentinel.

    Args:
        tokenizer, **settings: as in [`DenoisingCollator`].
        noise_density: share of the tokens that are taken out.
        mean_span_length: tokens of a span, on average.
    """

    objective = "span"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        noise_density: float = 0.15,
        mean_span_length: float = 3.0,
        **settings: Any,
    ):
        super().__init__(tokenizer, **settings)
        if not 0 < noise_density < 1:
            raise ValueError(f"noise_density={noise_density} is not allowed: give a share between 0 and 1.")
        if mean_span_length < 1:
            raise ValueError(f"mean_span_length={mean_span_length} is not allowed: give at least 1.")
        self.noise_density, self.mean_span_length = noise_density, mean_span_length
        self.sentinels = self._sentinels()

    def corrupt(self, ids: Sequence[int], rng: np.random.Generator) -> Corrupted:
        return _corrupt_spans(ids, *_noise(len(ids), self.noise_density, self.mean_span_length), self.sentinels, rng)

    def _fits(self, length: int, max_source: int, max_target: int) -> bool:
        noise, spans = _noise(length, self.noise_density, self.mean_span_length)
        return _spans_fit(length, noise, spans, self.sentinels, max_source, max_target)


class DataCollatorForTextInfilling(DenoisingCollator):
    """BART's objective (Lewis et al. 2020, arXiv:1910.13461): sentences change places, spans become masks, all is written.

    Sentences end with full stops. In the permuted text spans are drawn, of lengths from a Poisson distribution, until
    `mask_ratio` of the tokens are covered (rounded up; the last span is cut to fit). Each is replaced by one mask token,
    whatever its length; where the length is 0, a mask is put in. There are at most as many masks as covered tokens, so that
    no source is longer than its text.

    Args:
        tokenizer, **settings: as in [`DenoisingCollator`].
        mask_ratio: share of the tokens that are covered.
        poisson_lambda: tokens of a span, on average.
        permute_sentences: whether sentences change places.
    """

    objective = "infilling"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        mask_ratio: float = 0.3,
        poisson_lambda: float = 3.0,
        permute_sentences: bool = True,
        **settings: Any,
    ):
        super().__init__(tokenizer, **settings)
        if not 0 < mask_ratio < 1:
            raise ValueError(f"mask_ratio={mask_ratio} is not allowed: give a share between 0 and 1.")
        if poisson_lambda <= 0:
            raise ValueError(f"poisson_lambda={poisson_lambda} is not allowed: give a positive length.")
        if tokenizer.mask_token_id is None:
            raise ValueError(
                "The tokenizer has no mask token: call weftformer.tokenization.add_denoising_tokens(tokenizer, "
                "'infilling'), and resize the model's vocabulary."
            )
        self.mask_ratio, self.poisson_lambda = mask_ratio, poisson_lambda
        self.permute_sentences = permute_sentences

    def corrupt(self, ids: Sequence[int], rng: np.random.Generator) -> Corrupted:
        text = self._permuted(list(ids), rng) if self.permute_sentences else list(ids)
        covered = int(np.ceil(len(text) * self.mask_ratio))
        lengths = self._span_lengths(covered, rng)
        # a row of tokens that stay and of spans, in which every order is equally likely
        slots = len(text) - covered + len(lengths)
        starts = set(rng.choice(slots, len(lengths), replace=False).tolist())
        source, rest, spans = [], iter(text), iter(lengths)
        for slot in range(slots):
            if slot in starts:
                source.append(self.tokenizer.mask_token_id)
                for _ in range(next(spans)):
                    next(rest)
            else:
                source.append(next(rest))
        return Corrupted(source, list(ids))

    def _span_lengths(self, covered: int, rng: np.random.Generator) -> list[int]:
        """Lengths in the order they were drawn; their sum is `covered`."""
        lengths: list[int] = []
        while (left := covered - sum(lengths)) > 0:
            lengths.append(min(left, int(rng.poisson(self.poisson_lambda))))
        while len(lengths) > covered:
            lengths.remove(0)
        return lengths

    def _permuted(self, ids: list[int], rng: np.random.Generator) -> list[int]:
        stops = [token in self._full_stops for token in ids]
        ends = [end for end in range(1, len(ids)) if stops[end - 1] and not stops[end]]
        sentences = [ids[start:end] for start, end in zip([0, *ends], [*ends, len(ids)], strict=True)]
        return [token for index in rng.permutation(len(sentences)) for token in sentences[index]]

    @cached_property
    def _full_stops(self) -> frozenset[int]:
        """Tokens that end a sentence: those written with a full stop at their end, as " it." and "." are."""
        tokenizer = self.tokenizer
        special = set(tokenizer.all_special_ids)
        texts = {index: tokenizer.decode([index]) for index in tokenizer.get_vocab().values() if index not in special}
        return frozenset(index for index, text in texts.items() if text.rstrip().endswith("."))

    def _fits(self, length: int, max_source: int, max_target: int) -> bool:
        return length <= max_source and length <= max_target


class Denoiser(NamedTuple):
    """One of UL2's: mode, share of the tokens that are taken out, tokens of a span (None: all in one, at the end)."""

    mode: str
    noise_density: float
    mean_span_length: float | None


class DataCollatorForUL2(DenoisingCollator):
    """UL2's mixture of denoisers (Tay et al. 2022, arXiv:2205.05131): seven of them, each drawn as often as the others.

    | denoiser | source begins with | taken out | mean span |
    | --- | --- | --- | --- |
    | R (regular) | `[NLU]` | 15 % | 3, 8 |
    | S (sequential) | `[S2S]` | 25 %, the end | all in one |
    | X (extreme) | `[NLG]` | 50 % | 3, 8, 64 |
    | X (extreme) | `[NLG]` | 15 % | 64 |

    Spans are corrupted as in [`DataCollatorForSpanCorruption`].

    Args:
        tokenizer, **settings: as in [`DenoisingCollator`].
    """

    objective = "ul2"
    DENOISERS = (
        Denoiser("R", 0.15, 3), Denoiser("R", 0.15, 8), Denoiser("S", 0.25, None), Denoiser("X", 0.5, 3),
        Denoiser("X", 0.5, 8), Denoiser("X", 0.15, 64), Denoiser("X", 0.5, 64),
    )  # fmt: skip

    def __init__(self, tokenizer: PreTrainedTokenizerBase, **settings: Any):
        super().__init__(tokenizer, **settings)
        self.sentinels = self._sentinels()
        known = tokenizer.get_vocab()
        if missing := [token for token in MODES.values() if token not in known]:
            raise ValueError(
                f"The tokenizer has no {', '.join(missing)}: call weftformer.tokenization.add_denoising_tokens("
                "tokenizer, 'ul2'), and resize the model's vocabulary."
            )
        self._modes = {mode: known[token] for mode, token in MODES.items()}

    def corrupt(self, ids: Sequence[int], rng: np.random.Generator) -> Corrupted:
        mode, density, mean = self.DENOISERS[rng.integers(len(self.DENOISERS))]
        source, target = _corrupt_spans(ids, *_noise(len(ids), density, mean), self.sentinels, rng)
        return Corrupted([self._modes[mode], *source], target)

    def _fits(self, length: int, max_source: int, max_target: int) -> bool:
        sizes = [_noise(length, density, mean) for _, density, mean in self.DENOISERS]
        return all(_spans_fit(length, *size, self.sentinels, max_source - 1, max_target) for size in sizes)


COLLATORS: dict[str, type[DenoisingCollator]] = {
    kind.objective: kind for kind in (DataCollatorForSpanCorruption, DataCollatorForTextInfilling, DataCollatorForUL2)
}


def _noise(length: int, density: float, mean_span: float | None) -> tuple[int, int]:
    """Tokens that are taken out of a text of `length`, and in how many spans."""
    noise = min(max(round(length * density), 1), length - 1)
    spans = 1 if mean_span is None else max(round(noise / mean_span), 1)
    return noise, min(spans, length - noise)  # something stays in front of each


def _spans_fit(
    length: int, noise: int, spans: int, sentinels: Sequence[int], max_source: int, max_target: int
) -> bool:
    return length - noise + spans <= max_source and noise + spans <= max_target and spans <= len(sentinels)


def _corrupt_spans(
    ids: Sequence[int], noise: int, spans: int, sentinels: Sequence[int], rng: np.random.Generator
) -> Corrupted:
    if spans > len(sentinels):
        raise ValueError(
            f"A text of {len(ids)} tokens has {spans} spans, and the tokenizer {len(sentinels)} sentinels: cut texts to what "
            "`longest_text` says."
        )
    source: list[int] = []
    target: list[int] = []
    at = 0
    stays, taken = _segments(len(ids) - noise, spans, rng), _segments(noise, spans, rng)
    for kept, gone, sentinel in zip(stays, taken, sentinels, strict=False):
        source += [*ids[at : at + kept], sentinel]
        target += [sentinel, *ids[at + kept : at + kept + gone]]
        at += kept + gone
    return Corrupted(source, target)


def _segments(items: int, segments: int, rng: np.random.Generator) -> list[int]:
    """Lengths, at least 1, of so many segments of `items`; all ways to cut are equally likely."""
    cuts = np.sort(rng.choice(items - 1, segments - 1, replace=False)) + 1
    return np.diff([0, *cuts, items]).tolist()

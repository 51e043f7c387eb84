"""Texts from texts: inputs are checked, and generated in batches, which they may join and leave between steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from ..modeling.decoding import ContinuousSearch
from ..modeling.losses import is_end, text_scores, token_scores
from ..tokenization.checks import decode_texts, encode_checked
from .search import BatchSearch, is_continuous

# The default for the largest number of tokens that a text model writes.
_TEXT_TOKENS = 256
# The number of rows whose logits are in memory together when texts are scored.
_SCORED_ROWS = 8


def disable_padding(tokenizer: Any) -> None:
    """Call a tokenizer once without padding and truncation.

    The first such call turns them off in a tokenizer that was saved with them. Later calls come from several threads
    at once, and must not change it. For this reason, batches are padded here and not by the tokenizer.
    """
    tokenizer("")


@dataclass(frozen=True)
class Sampling:
    """The settings for sampling tokens, as in transformers' `GenerationConfig`. `top_k=0` keeps all tokens."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class TextSettings:
    beams: int
    max_new_tokens: int
    sampling: Sampling | None = None
    candidates: int = 1


@dataclass(frozen=True)
class TextInput:
    ids: tuple[int, ...]
    conditions: tuple[float, ...]
    settings: TextSettings


class GeneratedText(NamedTuple):
    """A text, its log-probability with the end token (None unless requested), and whether it was cut at the limit."""

    text: str
    score: float | None = None
    is_cut: bool = False


class TextPool:
    """A pool of inputs whose outputs are generated together. Inputs join and leave between steps.

    If a search cannot be joined while it runs, a step generates a whole batch of texts (see [`BatchSearch`]).

    Args:
        task: the task.
        beams: width of the search.
        watch: called before each token of a batch; an exception in it ends the batch.
    """

    def __init__(self, task: TextTask, beams: int, watch: Callable[[], None]):
        self.task = task
        self.search: ContinuousSearch | BatchSearch
        two_texts = torch.zeros(2, 2, dtype=torch.long, device=task.model.device)
        # for whole batches alone
        is_compiled = task.model.decoder_for(two_texts, num_beams=beams, do_sample=False).name == "compiled"
        if not is_compiled and is_continuous(task.model, num_beams=beams):
            self.search = ContinuousSearch(task.model, num_beams=beams)
        else:
            self.search = BatchSearch(task.model, watch=watch, has_scores=False, num_beams=beams)
        self._waiting: dict[Hashable, TextInput] = {}
        self._running: dict[int, Hashable] = {}  # by ticket

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add(self, key: Hashable, input: TextInput) -> None:
        self._waiting[key] = input

    def remove(self, key: Hashable) -> None:
        if self._waiting.pop(key, None) is None:
            (ticket,) = [ticket for ticket, owner in self._running.items() if owner == key]
            self.search.remove([ticket])
            del self._running[ticket]

    def step(self) -> list[tuple[Hashable, str]]:
        if self._waiting:
            inputs = list(self._waiting.values())
            tickets = self.search.add(self.task.tensors(inputs), [input.settings.max_new_tokens for input in inputs])
            self._running |= dict(zip(tickets, self._waiting, strict=True))
            self._waiting.clear()
        results = self.search.step()
        outputs = [[*result.prompt, *result.sequences[0]] for result in results]
        texts = decode_texts(self.task.tokenizer, outputs) if outputs else []
        return [(self._running.pop(result.ticket), text) for result, text in zip(results, texts, strict=True)]


class TextTask:
    """Generates a text from a text.

    Args:
        model: a `WeftForConditionalGeneration`.
        tokenizer: the tokenizer it was trained with.
        max_new_tokens: largest number of new tokens (default: 256, or the model's positions if fewer).
    """

    def __init__(self, model: Any, tokenizer: Any, max_new_tokens: int | None = None):
        self.model, self.tokenizer = model.eval(), tokenizer
        positions = model.config.max_target_positions
        self.max_new_tokens = min(max_new_tokens or _TEXT_TOKENS, positions)
        self.beams = model.generation_config.num_beams or 1
        disable_padding(tokenizer)

    def inputs(
        self,
        texts: list[str],
        *,
        beams: int | None = None,
        max_new_tokens: int | None = None,
        conditions: Sequence[float] = (),
    ) -> list[TextInput]:
        """Check a request.

        Args:
            texts: the source texts.
            beams, max_new_tokens: as in [`settings`]. The task limits the number of tokens.
            conditions: the numbers that the model reads with each text, as many as in training.

        Returns:
            An input for each text.

        Raises:
            ValueError: a text is too long or contains a character outside the vocabulary, or the number of conditions
                is wrong.
        """
        self.check_conditions(len(conditions))
        settings = self.settings(beams, max_new_tokens)
        settings = replace(settings, max_new_tokens=min(settings.max_new_tokens, self.max_new_tokens))
        return [self.encode(text, settings, conditions) for text in texts]

    def settings(
        self, beams: int | None, max_new_tokens: int | None, sampling: Sampling | None = None, candidates: int = 1
    ) -> TextSettings:
        """Return the settings of generation. None means the value saved with the model."""
        defaults = self.model.generation_config
        beams = beams or (1 if sampling else defaults.num_beams or 1)
        if sampling is None:
            beams = max(beams, candidates)
        default = defaults.max_new_tokens or (defaults.max_length or self.max_new_tokens + 1) - 1
        longest = max_new_tokens or default
        return TextSettings(beams, max(1, min(longest, self.model.config.max_target_positions)), sampling, candidates)

    def check_conditions(self, count: int) -> None:
        """Refuse a number of conditions that the model was not trained with.

        Raises:
            ValueError: the numbers differ. The message names both.
        """
        features = self.model.config.num_condition_features
        if count != features:
            raise ValueError(f"This model expects {features} conditions per text, got {count}.")

    def encode(self, text: str, settings: TextSettings, conditions: Sequence[float] = ()) -> TextInput:
        """Check one text, and return its ids with the conditions and settings.

        Raises:
            ValueError: the text is too long or contains a character outside the vocabulary.
        """
        ids = encode_checked(self.tokenizer, text, max_length=self.model.config.max_source_positions)
        return TextInput(tuple(ids), tuple(conditions), settings)

    def pool_key(self, input: TextInput) -> int:
        """Return the number of beams, which inputs of one pool have in common."""
        return input.settings.beams

    def rows(self, input: TextInput) -> int:
        """Return the number of beams."""
        return input.settings.beams

    def open_pool(self, key: int, watch: Callable[[], None]) -> TextPool:
        """Return a pool of inputs with this number of beams, that calls `watch` before each token."""
        return TextPool(self, key, watch)

    @torch.no_grad()
    def generate(self, inputs: Sequence[TextInput], *, with_scores: bool = False) -> list[list[GeneratedText]]:
        """Generate the texts for inputs, as one batch.

        Args:
            inputs: inputs with equal settings.
            with_scores: whether to compute the log-probability of each text with one more forward pass.

        Returns:
            For each input, as many texts as its settings request, best first. Sampled texts are sorted only if they
            have scores.
        """
        tensors, settings = self.tensors(inputs), inputs[0].settings
        sampling = settings.sampling
        sequences = self.model.generate(
            **tensors,
            num_beams=settings.beams,
            num_return_sequences=settings.candidates,
            do_sample=sampling is not None,
            max_new_tokens=settings.max_new_tokens,
            max_length=None,
            **({} if sampling is None else vars(sampling)),
        )
        count = settings.candidates
        scores = self._log_probabilities(tensors, sequences, count) if with_scores else [None] * len(sequences)
        is_cut = (~is_end(sequences[:, 1:], self.model.generation_config.eos_token_id).any(1)).tolist()
        texts = decode_texts(self.tokenizer, sequences)
        outputs = [GeneratedText(*row) for row in zip(texts, scores, is_cut, strict=True)]
        groups = [outputs[start : start + count] for start in range(0, len(outputs), count)]
        if with_scores and sampling is not None:
            groups = [sorted(group, key=lambda output: -(output.score or 0.0)) for group in groups]
        return groups

    def tensors(self, inputs: Sequence[TextInput]) -> dict[str, torch.Tensor]:
        """Return the tensors for `generate`, padded to a batch."""
        rows = [torch.tensor(input.ids) for input in inputs]
        source_ids = pad_sequence(rows, batch_first=True, padding_value=self.model.config.pad_token_id or 0)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        tensors = {"input_ids": source_ids, "attention_mask": mask}
        if inputs[0].conditions:
            tensors["condition_values"] = torch.tensor([input.conditions for input in inputs])
        return {name: value.to(self.model.device) for name, value in tensors.items()}

    def _log_probabilities(
        self, tensors: dict[str, torch.Tensor], sequences: torch.Tensor, candidates: int
    ) -> list[float]:
        """Return the log-probability of each sequence (rows, tokens), from its second token to its first end."""
        scores: list[float] = []
        sources = {name: value.repeat_interleave(candidates, dim=0) for name, value in tensors.items()}
        # some rows at a time: the logits of all would take more memory than the search did
        for start in range(0, len(sequences), _SCORED_ROWS):
            rows = slice(start, start + _SCORED_ROWS)
            prefixes, targets = sequences[rows, :-1], sequences[rows, 1:]
            part = {name: value[rows] for name, value in sources.items()}
            logits = self.model(**part, decoder_input_ids=prefixes, use_cache=False).logits
            ends = self.model.generation_config.eos_token_id
            scores += text_scores(token_scores(logits, targets), targets, ends).tolist()
        return scores

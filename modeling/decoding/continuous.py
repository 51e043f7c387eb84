"""A search on the fast path, greedy or with beams, that continues while sources join and leave it between steps.

Each source has its own length, prompt and largest number of tokens, and the same result as from `generate` alone. Keys
have their positions from when they were written, and learned positions are added to the embeddings, so a source that
joins can have its own columns beside the others.

Shape suffixes: B sources, S beams of each, W = B * S rows, V tokens of the vocabulary, T tokens of a prompt.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import torch
from transformers import GenerationConfig
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria

from ..generation import RefuseNonFiniteScores
from ..transformers_names import CACHE, prepared_settings, processors_of, special_tokens
from .cache import compaction_order, rows_of
from .search import Greedy, Search
from .step import GROWING_ROTARY


class IncrementalProcessor(Protocol):
    """A logits processor that reads one token of each row at a time, while sources join and leave."""

    def step(
        self, parents: list[int], tokens: list[int], prompts: dict[int, list[int]], scores: torch.Tensor
    ) -> torch.Tensor:
        """Return the processed scores (W, V).

        Args:
            parents: for each row, the row of the previous call that it continues, or -1 in the first step of a source.
            tokens: the last token of each row.
            prompts: the ids of each row in the first step of its source.
            scores: the scores of the next token (W, V).
        """

    def select_sources(self, sources: list[int], beams: int) -> None:
        """Continue with the given sources: the new source i is the old source `sources[i]`."""


class SourceWatch(Protocol):
    """Changes the scores of one source once its time has passed."""

    @property
    def has_passed(self) -> bool: ...

    def __call__(self, input_ids: Any, scores: Any) -> Any: ...


class Found(NamedTuple):
    """The result of a source.

    Args:
        ticket: the ticket of the source.
        prompt: the ids that all its sequences begin with.
        sequences: the ids written for each sequence, best first, with pads or end tokens after the end.
        scores: the scores of the sequences, as `sequences_scores` of `generate`; log-probabilities in greedy search.
    """

    ticket: int
    prompt: list[int]
    sequences: list[list[int]]
    scores: list[float]


def reason_against(model: Any, **settings: Any) -> str | None:
    """Return why [`ContinuousSearch`] cannot run a model with these settings of `generate`, or None if it can."""
    if model.fast_path is None:
        return "there is no fast path"
    if (against := model.fast_path.reason_against_model(model)) is not None:
        return against
    config, rotary = model.config, model.model.decoder.rotary_embedding
    kinds = (config.self_attention_position_type, config.cross_attention_position_type)
    if {"relative", "bucketed"}.intersection(kinds) or (rotary is not None and rotary.rope_type in GROWING_ROTARY):
        return "positions depend on the whole batch"
    generation_config = continuous_settings(model, settings)
    if generation_config.get_generation_mode() not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH):
        return "the mode is neither greedy search nor beam search"
    if needs_more(model, generation_config):
        return "the settings need processors or stopping criteria that do not support sources added later"
    return None


def needs_more(model: Any, settings: GenerationConfig) -> bool:
    """Return whether settings need a processor, or a criterion other than end tokens and the largest length."""
    return (
        len(processors_of(model, settings)) > 0 or settings.max_time is not None or settings.stop_strings is not None
    )


def continuous_settings(model: Any, settings: dict[str, Any]) -> GenerationConfig:
    """Return the settings of a search with their special tokens: those given, and those saved with a model."""
    return prepared_settings(model, None, settings | {"do_sample": False, "max_new_tokens": 1, "max_length": None})[0]


class ContinuousSearch(Search):
    """Searches for the best sequences of sources that join and leave between steps.

    Args:
        model: a `WeftForConditionalGeneration` for which [`reason_against`] is None. Its weights must not change
            during the search.
        processors: incremental processors.
        settings: settings of `generate`, such as `num_beams`, `length_penalty` and `early_stopping`.
    """

    def __init__(self, model: Any, *, processors: Sequence[IncrementalProcessor] = (), **settings: Any):
        self.request = settings
        search_settings = continuous_settings(model, settings)
        ends = special_tokens(search_settings).ends
        super().__init__(model, search_settings, processors, [] if ends is None else [EosTokenCriteria(ends)])
        self.may_leave = True
        if isinstance(self.texts, Greedy):
            self.texts.has_scores = True
        self.guard = RefuseNonFiniteScores()
        self.watches: list[SourceWatch | None] = []
        self.prompts: list[list[int]] = []
        # for each row, the row of the processors' last call that it continues, or -1 for a new one
        self.parents: list[int] = []

    def __len__(self) -> int:
        return len(self.texts.numbers)

    def add(
        self,
        inputs: dict[str, torch.Tensor],
        max_new_tokens: Sequence[int],
        watches: Sequence[SourceWatch | None] | None = None,
    ) -> list[int]:
        """Add sources, and return a ticket for each. Their first token is written in the next [`step`].

        Args:
            inputs: keywords of `generate` for these sources: `input_ids`, `decoder_input_ids` and so on.
            max_new_tokens: for each source, the largest number of tokens.
            watches: for each source, the [`SourceWatch`] on it, or None.

        Raises:
            ValueError: an input is not allowed.
        """
        num_before = len(self)
        prefill = partial(self._prefill_prepared, list(max_new_tokens))
        prefill.takes_fast_path = True  # type: ignore[attr-defined]
        self.model.generate(
            **inputs, **self.request, do_sample=False, max_new_tokens=1, max_length=None, custom_generate=prefill
        )
        self.watches += [None] * len(max_new_tokens) if watches is None else watches
        return self.texts.numbers[num_before:]

    def _prefill_prepared(
        self,
        max_new_tokens: list[int],
        model: Any,
        input_ids: torch.Tensor,
        logits_processor,
        stopping_criteria,
        generation_config,
        **model_kwargs,
    ) -> torch.Tensor:
        """Replace the search in `generate`: add the sources, with what it has prepared, to those that are running."""
        kinds = {type(observer) for observer in (*logits_processor, *stopping_criteria)}
        assert kinds <= {RefuseNonFiniteScores, EosTokenCriteria, MaxLengthCriteria}, kinds
        prefix_mask = model_kwargs[CACHE].prefix_mask
        self.prefill(input_ids, model_kwargs, max_new_tokens, room=input_ids.shape[1] + max(max_new_tokens))
        ids_BT = input_ids[:: self.beams]
        is_prompt = torch.ones_like(ids_BT) if prefix_mask is None else prefix_mask
        self.prompts += [ids[mask.bool()].tolist() for ids, mask in zip(ids_BT, is_prompt, strict=True)]
        self.parents += [-1] * len(input_ids)
        return input_ids

    @torch.no_grad()
    def step(self) -> list[Found]:  # type: ignore[override]
        """Write one token of each source. Return the results of the sources that are done, which have left."""
        if self.cache is None:
            return []
        prompts = dict(zip(self.texts.numbers, self.prompts, strict=True))
        results = [
            Found(source.number, prompts[source.number], source.sequences.tolist(), source.scores.tolist())
            for source in super().step()
        ]
        self.guard.raise_if_nonfinite()
        if self.is_over:
            self._leave_all()
        return results

    def _leave_all(self) -> None:
        for processor in self.processors:
            processor.select_sources([], self.beams)
        self.cache, self.texts.length = None, 0
        self.texts.select_sources([])
        self.watches, self.prompts, self.parents = [], [], []

    def remove(self, tickets: Sequence[int]) -> None:
        """Remove sources whose results nobody needs any more."""
        done = [number in set(tickets) for number in self.texts.numbers]
        if self.cache is None or not any(done):
            return
        if all(done):
            self._leave_all()
        elif (sources := compaction_order(done)) is not None:
            self.rows_W = None  # the last step has already reordered the cache
            self._select_sources(sources)

    def _follow(self) -> None:
        self.parents = list(range(len(self.parents))) if self.rows_W is None else self.rows_W.tolist()

    def _select_sources(self, sources: list[int]) -> None:
        super()._select_sources(sources)
        self.watches = [self.watches[source] for source in sources]
        self.prompts = [self.prompts[source] for source in sources]
        self.parents = [self.parents[row] for row in rows_of(sources, self.beams)]

    def _process(self, scores_WV: torch.Tensor) -> torch.Tensor:
        scores_WV = self.guard(None, cast(torch.FloatTensor, scores_WV))
        if self.processors:
            prompts = {row: self.prompts[row // self.beams] for row, parent in enumerate(self.parents) if parent < 0}
            last = self.texts.last().tolist() if self.texts.length else [0] * len(self.parents)
            tokens = [prompts[row][-1] if row in prompts else token for row, token in enumerate(last)]
            for processor in self.processors:
                scores_WV = processor.step(self.parents, tokens, prompts, scores_WV)
        for source, watch in enumerate(self.watches):
            if watch is not None and watch.has_passed:
                rows = slice(source * self.beams, (source + 1) * self.beams)
                scores_WV = scores_WV.clone()
                scores_WV[rows] = watch(None, scores_WV[rows])
        return scores_WV

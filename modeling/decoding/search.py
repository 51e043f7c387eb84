"""transformers' greedy search, sampling and beam search on the fast path, with fewer operations per token.

Sources join and leave between two tokens. [`decode`], which `generate` calls, adds all of its sources at once, and
[`ContinuousSearch`] adds them as they arrive. transformers' own functions handle the rare
steps in which a sequence ends or the search may end.

A source that is done leaves, because its rows would be computed for nothing, and the last source takes its place. The
result is the same, but the numbers of the rows change. So no source leaves if the request returns values for each row
(scores and logits of each step, the cache), or has a processor or stopping criterion that may depend on these numbers.

Shape suffixes: B sources, S beams of each, W = B * S rows, C candidates of each source, V tokens of the vocabulary, P
tokens of the prefix, T tokens written.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers import generation as modes
from transformers.cache_utils import EncoderDecoderCache
from transformers.generation import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput
from transformers.modeling_outputs import ModelOutput

from ..losses import token_scores
from ..transformers_names import CACHE, SORTS_SAMPLED_BEAMS, prefill, special_tokens
from .beams import NEG_SCORE, BeamRules, gather_beams, kind_of
from .cache import DecodingCache, FastPathRequest, compaction_order, renumbered, rows_of
from .step import DecodeStep

# The longest prefix that is copied for all beams.
OWN_PREFIX = 16
# The number of tokens that are allocated at first for each sequence.
_TOKENS = 64
# transformers' processors and criteria that treat each row by itself, whatever its number.
_ROW_BY_ROW = frozenset(
    [
        EosTokenCriteria, MaxLengthCriteria, modes.MaxTimeCriteria, modes.StopStringCriteria,
        modes.ExponentialDecayLengthPenalty, modes.ForcedBOSTokenLogitsProcessor, modes.ForcedEOSTokenLogitsProcessor,
        modes.InfNanRemoveLogitsProcessor, modes.MinLengthLogitsProcessor, modes.MinNewTokensLengthLogitsProcessor,
        modes.NoBadWordsLogitsProcessor, modes.NoRepeatNGramLogitsProcessor, modes.RepetitionPenaltyLogitsProcessor,
        modes.SequenceBiasLogitsProcessor, modes.SuppressTokensAtBeginLogitsProcessor,
        modes.SuppressTokensLogitsProcessor,
    ]
)  # fmt: skip


def supports_row_removal(observer: Any) -> bool:
    """Return whether a processor or a criterion gives a row the same result after others have left.

    This holds for those of transformers that read single rows, and for any with a method
    `select_sources(sources, beams)`. The search calls this method when sources leave: the new source i is the old
    source `sources[i]`, with `beams` rows each.
    """
    # a penalty that ignores pads on the left stores their number for each of the original rows
    has_numbers_of_rows = isinstance(getattr(observer, "prompt_ignore_length", None), torch.Tensor)
    return (type(observer) in _ROW_BY_ROW and not has_numbers_of_rows) or hasattr(observer, "select_sources")


def returns_rows(settings: GenerationConfig) -> bool:
    """Return whether a request returns more than sequences and scores (`generate(only_sequences=True)` does not)."""
    return bool(settings.return_dict_in_generate) and not getattr(settings, "only_sequences", False)


def first_beams(value: Any, rows: int, beams: int) -> Any:
    """Return the entries of the first beam of each source, from a value that was expanded for the beams."""
    if isinstance(value, ModelOutput):
        return type(value)(**{name: first_beams(part, rows, beams) for name, part in value.items()})
    if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == rows:
        return value[::beams]
    return value


class Written(NamedTuple):
    """The output of a source whose search is over.

    Args:
        number: the number of the source, counted from the first that was added.
        sequences: ids of the tokens (S, T), best first, with fill after an end.
        scores: the scores of the sequences (S,). In greedy search they are 0 unless requested.
        rows: in beam search, the row of each token (S, T) among the logits of its step, -1 after an end.
    """

    number: int
    sequences: torch.Tensor
    scores: torch.Tensor
    rows: torch.Tensor | None = None


class Texts:
    """The texts that a search writes, without their prefixes. All end in the same column; later sources begin later.

    This class handles end tokens and the largest numbers of tokens itself, if `generate` has made their stopping
    criteria. It calls other stopping criteria at every step.

    Args:
        settings: the settings of the search.
        criteria: the stopping criteria of `generate`.
    """

    # Names of tensors with an entry for each source, and of those whose last dimension is tokens.
    by_source: tuple[str, ...] = ()
    by_token: tuple[str, ...] = ()
    # The id after the end of a text.
    fill: int

    def __init__(self, settings: GenerationConfig, criteria: Sequence[Any]):
        self.settings, self.count = settings, settings.num_beams or 1
        ends = special_tokens(settings).ends
        # a user's criterion of one of these classes replaces the one that `generate` makes
        own_ends = [rule for rule in criteria if type(rule) is EosTokenCriteria and rule.eos_token_id is ends]
        lengths = [
            rule for rule in criteria if type(rule) is MaxLengthCriteria and rule.max_length >= settings.max_length
        ]
        self.criteria = StoppingCriteriaList(rule for rule in criteria if rule not in (*own_ends, *lengths))
        self.ends = ends if own_ends else None
        self.length = 0
        # For each source: its number, its first column, and the column after its last one.
        self.numbers: list[int] = []
        self.starts: list[int] = []
        self.limits: list[int] = []
        self.num_added = 0
        self.prefix_WP: torch.Tensor | None = None

    def _columns(self) -> int:
        return getattr(self, self.by_token[0]).shape[-1] if self.numbers else _TOKENS

    def _join(self, states: dict[str, torch.Tensor], max_len: Sequence[int]) -> None:
        """Append the states of new sources."""
        for name, new in states.items():
            setattr(self, name, torch.cat([getattr(self, name), new]) if self.numbers else new.clone())
        self.numbers += range(self.num_added, self.num_added + len(max_len))
        self.num_added += len(max_len)
        self.starts += [self.length] * len(max_len)
        self.limits += [self.length + limit for limit in max_len]

    def select_sources(self, sources: list[int]) -> None:
        """Continue with the given sources: the new source i is the old source `sources[i]`."""
        for name in ("numbers", "starts", "limits"):
            setattr(self, name, [getattr(self, name)[source] for source in sources])
        for name in self.by_source:
            setattr(self, name, getattr(self, name)[sources])
        if self.prefix_WP is not None:
            self.prefix_WP = self.prefix_WP[rows_of(sources, self.count)]

    def _make_room(self) -> None:
        """Make room for another token: drop the columns that no source uses any more, or allocate more."""
        if self.length < getattr(self, self.by_token[0]).shape[-1]:
            return
        drop = min(self.starts)
        for name in self.by_token:
            states = getattr(self, name)
            padding = torch.full_like(states, -1 if name.endswith("rows") else self.fill)
            setattr(self, name, torch.cat([states[..., drop:], padding[..., : drop or None]], dim=-1))
        self.length -= drop
        self.starts = [begin - drop for begin in self.starts]
        self.limits = [limit - drop for limit in self.limits]

    def _by_source(self, columns: list[int]) -> Any:
        """Return a number if it is the same for all sources, else a tensor (B, 1)."""
        if len(set(columns)) == 1:
            return columns[0]
        return torch.tensor(columns, device=getattr(self, self.by_token[0]).device)[:, None]

    def _whole(self, texts_WT: torch.Tensor, repeats: int = 1) -> torch.Tensor:
        """Put the prefix of each row in front of its `repeats` texts."""
        if self.prefix_WP is None:
            return texts_WT
        return torch.cat([self.prefix_WP.repeat_interleave(repeats, dim=0), texts_WT], dim=1)


class Greedy(Texts):
    """The texts of greedy search or sampling: each row is a source of its own. The arguments are as in [`Texts`]."""

    by_source, by_token = ("ids_WT", "has_ended_W", "scores_W"), ("ids_WT",)
    ids_WT: torch.Tensor
    has_ended_W: torch.Tensor
    scores_W: torch.Tensor
    # Whether to compute log-probabilities.
    has_scores = False

    def __init__(self, settings: GenerationConfig, criteria: Sequence[Any] = ()):
        super().__init__(settings, criteria)
        # a user's criterion may have end tokens too
        self.pads_ends = any(hasattr(rule, "eos_token_id") for rule in criteria)
        pad = special_tokens(settings).pad
        self.fill = 0 if pad is None else int(pad)

    def add(self, max_len: Sequence[int], device: torch.device | None = None) -> None:
        zeros = torch.zeros(len(max_len), dtype=torch.float32, device=device)
        ids_WT = torch.full((len(max_len), self._columns()), self.fill, device=device)
        self._join({"ids_WT": ids_WT, "has_ended_W": zeros.bool(), "scores_W": zeros}, max_len)

    def whole(self) -> torch.Tensor:
        """Return the texts with their prefixes (W, P + T)."""
        return self._whole(self.ids_WT[:, : self.length])

    def last(self) -> torch.Tensor:
        """Return the last token of each row (W,)."""
        return self.ids_WT[:, self.length - 1]

    def extend(
        self, scores_WV: torch.Tensor, logits_WV: torch.Tensor, recorded: tuple[torch.Tensor, ...] | None = None
    ) -> tuple[None, list[bool]]:
        """Add a token to each row. Return None, because each row continues itself, and whether each is done."""
        self._make_room()
        if self.settings.do_sample:
            tokens_W = torch.multinomial(scores_WV.softmax(dim=-1), num_samples=1).squeeze(1)
        else:
            tokens_W = scores_WV.argmax(dim=-1)
        if self.pads_ends:
            tokens_W = tokens_W.masked_fill(self.has_ended_W, self.fill)
        if self.has_scores:
            # from the model's own logits, so that forbidding tokens does not make the others likelier
            self.scores_W = self.scores_W + token_scores(logits_WV, tokens_W)
        self.ids_WT[:, self.length] = tokens_W
        self.length += 1
        ended_W = self.has_ended_W
        if self.ends is not None:
            ended_W = ended_W | torch.isin(tokens_W, self.ends)
        if self.criteria:
            ended_W = ended_W | self.criteria(self.whole(), recorded)
        self.has_ended_W = ended_W
        done = ended_W.tolist()
        if self.length >= min(self.limits):
            done = [is_done or self.length >= limit for is_done, limit in zip(done, self.limits, strict=True)]
        return None, done

    def written(self, source: int) -> Written:
        """Return the output of a source."""
        ids = self.ids_WT[source : source + 1, self.starts[source] : self.length]
        return Written(self.numbers[source], ids, self.scores_W[source : source + 1])


class Beams(Texts):
    """The texts of a beam search: the running beams, and the best texts that have ended.

    Args:
        settings, criteria: as in [`Texts`].
    """

    by_source = (
        "running", "running_rows", "running_scores", "best", "best_rows", "best_scores", "has_ended", "can_improve",
        "first_rows",
    )  # fmt: skip
    by_token = ("running", "running_rows", "best", "best_rows")
    running: torch.Tensor  # (B, S, T)
    running_rows: torch.Tensor  # each token's row among the logits of its step
    running_scores: torch.Tensor  # (B, S)
    best: torch.Tensor
    best_rows: torch.Tensor
    best_scores: torch.Tensor
    has_ended: torch.Tensor
    can_improve: torch.Tensor  # (B, 1)
    first_rows: torch.Tensor  # (B, 1), counted from the first source that was added

    def __init__(self, settings: GenerationConfig, criteria: Sequence[Any] = ()):
        super().__init__(settings, criteria)
        _, ends, pad = special_tokens(settings)
        self.rules = BeamRules(*kind_of(settings))
        self.any_ended = False
        self.fill = -1 if ends is None else int(pad or ends[0])

    def add(self, max_len: Sequence[int], device: torch.device | None = None) -> None:
        shape, columns = (len(max_len), self.count), self._columns()
        texts = torch.full((*shape, columns), self.fill, device=device)
        rows = torch.full((*shape, columns), -1, dtype=torch.int32, device=device)
        scores = torch.zeros(shape, dtype=torch.float32, device=device)
        scores[:, 1:] = NEG_SCORE  # all beams are equal at first
        new = {
            "running": texts, "running_rows": rows, "running_scores": scores, "best": texts, "best_rows": rows,
            "best_scores": torch.full_like(scores, NEG_SCORE), "has_ended": torch.zeros_like(scores, dtype=torch.bool),
            "can_improve": torch.ones((len(max_len), 1), dtype=torch.bool, device=device),
            "first_rows": self.count
            * torch.arange(self.num_added, self.num_added + len(max_len), device=device)[:, None],
        }  # fmt: skip
        self._join(new, max_len)

    def whole(self) -> torch.Tensor:
        """Return the texts of the running beams with their prefixes (W, P + T)."""
        return self._whole(self.running[:, :, : self.length].flatten(0, 1))

    def last(self) -> torch.Tensor:
        """Return the last token of each row (W,)."""
        return self.running[:, :, self.length - 1].flatten()

    def extend(
        self, scores_WV: torch.Tensor, logits_WV: torch.Tensor, recorded: tuple[torch.Tensor, ...] | None = None
    ) -> tuple[torch.Tensor, list[bool]]:
        """Add a token to each beam. Return the row that each beam continues (W,), and whether each source is done.

        `recorded` are the scores of the steps so far, if they are kept. Stopping criteria get them.
        """
        self._make_room()
        vocabulary = scores_WV.shape[-1]
        totals = scores_WV.view(-1, self.count, vocabulary) + self.running_scores[:, :, None]
        top_BC, picks_BC = self._pick(totals.flatten(1))
        parents_BC = picks_BC.div(vocabulary, rounding_mode="floor")
        tokens_BC = picks_BC - parents_BC * vocabulary
        ends_BC = self._ends(parents_BC, tokens_BC, recorded)
        is_special = bool(ends_BC.any())
        if is_special:
            self._end_some(top_BC, parents_BC, tokens_BC, ends_BC)
            top_BC = top_BC + ends_BC.to(torch.float32) * NEG_SCORE
        self.running_scores, order_BS = top_BC.topk(self.count)
        parents_BS = parents_BC.gather(1, order_BS)
        self.running, self.running_rows = self._grown(slice(None), parents_BS, tokens_BC.gather(1, order_BS))
        self.length += 1
        done = self._done(ends_BC) if is_special or self.any_ended else [False] * len(self.numbers)
        first_B1 = torch.arange(len(parents_BS), device=parents_BS.device)[:, None] * self.count
        return (parents_BS + first_B1).flatten(), done

    def _pick(self, totals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.settings.do_sample:
            top = totals.topk(self.rules.num_candidates)
            return top.values, top.indices
        picks = torch.multinomial(totals.softmax(dim=-1), num_samples=self.rules.num_candidates)
        scores = totals.gather(1, picks)
        if not SORTS_SAMPLED_BEAMS:
            return scores, picks
        scores, order = scores.sort(dim=-1, descending=True)
        return scores, picks.gather(1, order)

    def _ends(self, parents_BC, tokens_BC, recorded) -> torch.Tensor:
        """Return which candidates end a text."""
        ends_BC = (
            torch.zeros_like(tokens_BC, dtype=torch.bool) if self.ends is None else torch.isin(tokens_BC, self.ends)
        )
        if self.length + 1 >= min(self.limits):
            is_last = [self.length + 1 >= limit for limit in self.limits]
            ends_BC = ends_BC | torch.tensor(is_last, device=ends_BC.device)[:, None]
        if self.criteria:
            texts = self._grown(slice(None), parents_BC, tokens_BC)[0][:, :, : self.length + 1].flatten(0, 1)
            repeats = texts.shape[0] // (len(self.numbers) * self.count)
            ends_BC = ends_BC | self.criteria(self._whole(texts, repeats), recorded).view_as(ends_BC)
        return ends_BC

    def _grown(self, sources: Any, parents, tokens) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the texts of some sources that continue `parents` with `tokens`, and the rows of their tokens."""
        texts, rows = (gather_beams(states[sources], parents) for states in (self.running, self.running_rows))
        texts[:, :, self.length] = tokens
        rows[:, :, self.length] = parents + self.first_rows[sources]
        return texts, rows

    def _end_some(self, top_BC, parents_BC, tokens_BC, ends_BC) -> None:
        """Update the best texts of the sources that have ended candidates, with transformers' own function."""
        sources = ends_BC.any(dim=1).nonzero()[:, 0]
        texts, rows = self._grown(sources, parents_BC[sources], tokens_BC[sources])
        starts = [self.starts[source] for source in sources.tolist()]
        best = [states[sources] for states in self._best_texts()]
        candidates, lengths = (texts, top_BC[sources], rows), (self.length, self._by_source(starts))
        new_best = self.rules.ended(best, candidates, ends_BC[sources], self.can_improve[sources], *lengths)
        for states, new_states in zip(self._best_texts(), new_best, strict=True):
            states[sources] = new_states
        self.any_ended = True

    def _best_texts(self) -> tuple[torch.Tensor, ...]:
        return self.best, self.best_scores, self.best_rows, self.has_ended

    def _done(self, ends_BC: torch.Tensor) -> list[bool]:
        """Return whether each source is done."""
        lengths = self.length, self._by_source(self.starts), self._by_source(self.limits)
        is_done_B = self.rules.is_done(self.running_scores, self._best_texts(), ends_BC, self.can_improve, *lengths)
        # a source that is done stays done, whatever tokens its rows get until it leaves
        self.can_improve = self.can_improve & ~is_done_B[:, None]
        return is_done_B.tolist()

    def written(self, source: int) -> Written:
        """Return the output of a source."""
        columns = slice(self.starts[source], self.length)
        best = self.best[source, :, columns], self.best_scores[source], self.best_rows[source, :, columns]
        return Written(self.numbers[source], *best)


class Search:
    """A search on the fast path, whose sources join and leave between steps. Each step writes a token of each row.

    Args:
        model: the model.
        settings: the settings of the search.
        processors, criteria: the processors and criteria that `generate` passes to a search.
        streamer: gets the tokens as they are written.
    """

    def __init__(
        self,
        model: Any,
        settings: GenerationConfig,
        processors: Sequence[Any] = (),
        criteria: Sequence[Any] = (),
        streamer: Any = None,
    ):
        self.model, self.settings, self.beams = model, settings, settings.num_beams or 1
        self.processors, self.criteria, self.streamer = processors, criteria, streamer
        # the scores and logits of each step, if `generate` is to return them
        has_rows = returns_rows(settings)
        self.scores: tuple[torch.Tensor, ...] | None = () if has_rows and settings.output_scores else None
        self.logits: tuple[torch.Tensor, ...] | None = () if has_rows and settings.output_logits else None
        self.texts: Greedy | Beams = (Greedy if self.beams == 1 else Beams)(settings, criteria)
        self.cache: DecodingCache | None = None
        self.next_logits_WV = torch.empty(0)  # of the next token, in float32
        self.is_over = self.may_leave = False
        # for each row, the row of the previous step that it continues, None if each continues itself
        self.rows_W: torch.Tensor | None = None

    def prefill(
        self, ids_WT: torch.Tensor, model_kwargs: dict[str, Any], max_new_tokens: list[int], room: int | None = None
    ) -> None:
        """Add sources, whose prefixes the decoder reads here.

        Args:
            ids_WT: ids of the prefix of each row.
            model_kwargs: the keywords that `generate` passes to a search.
            max_new_tokens: for each source, the largest number of tokens.
            room: the number of tokens of each row to allocate memory for. Defaults to the length of the request.
        """
        request: FastPathRequest = model_kwargs[CACHE]
        if self.cache is None:
            self.decoder = DecodeStep(self.model)
            length = request.length if room is None else room
            self.cache = DecodingCache(request.config, request.beams, length, returns_rows(self.settings), OWN_PREFIX)
        rows, beams = len(ids_WT), request.beams  # all beams of a source have the same prefix
        kwargs = {name: first_beams(value, rows, beams) for name, value in model_kwargs.items()}
        logits = prefill(self.model, ids_WT[::beams], self.settings, kwargs).logits[:, -1].to(ids_WT.device)
        logits_WV = logits.float().repeat_interleave(beams, dim=0)
        self.next_logits_WV = torch.cat([self.next_logits_WV, logits_WV]) if self.cache.sources else logits_WV
        self.cache.add(request)
        self.texts.add(max_new_tokens, ids_WT.device)

    def step(self) -> list[Written]:
        """Write a token of each row. Return the output of the sources that leave, which at the end are all of them."""
        assert self.cache is not None
        logits_WV = self.next_logits_WV
        scores_WV = self._process(logits_WV if self.beams == 1 else logits_WV.log_softmax(dim=-1))
        if self.scores is not None:
            self.scores += (scores_WV.clone(),)
        if self.logits is not None:
            self.logits += (logits_WV.clone(),)
        self.rows_W, done = self.texts.extend(scores_WV, logits_WV, self.scores)
        self._follow()
        if self.streamer is not None:
            self.streamer.put(self.texts.last().cpu())
        sources = compaction_order(done) if self.may_leave else None
        self.is_over = all(done)
        outputs = []
        if self.is_over or sources is not None:
            outputs = [self.texts.written(source) for source, is_done in enumerate(done) if is_done]
        if sources is not None:
            self._select_sources(sources)
        if not self.is_over:
            if self.rows_W is not None:
                self.cache.reorder(self.rows_W)
            last_W1 = self.texts.last()[:, None]
            self.next_logits_WV = self.decoder.step(last_W1, self.cache).to(last_W1.device, torch.float32)
        return outputs

    def final_cache(self) -> EncoderDecoderCache | None:
        """Return the cache as transformers' own searches do, or None if it was not requested."""
        assert self.cache is not None
        if not self.cache.is_returned:
            return None
        if self.rows_W is not None:
            self.cache.reorder(self.rows_W)
        return self.cache.as_dynamic()

    def _process(self, scores_WV: torch.Tensor) -> torch.Tensor:
        ids_WT = self.texts.whole()
        for processor in self.processors:
            scores_WV = processor(ids_WT, scores_WV)
        return scores_WV

    def _follow(self) -> None:
        """Record which rows continue others, before sources leave."""

    def _select_sources(self, sources: list[int]) -> None:
        """Continue with the given sources: the new source i is the old source `sources[i]`."""
        assert self.cache is not None
        self.texts.select_sources(sources)
        self.cache.batch_select_indices(sources)
        self.next_logits_WV = self.next_logits_WV[rows_of(sources, self.beams)]
        if self.rows_W is not None:
            self.rows_W = renumbered(self.rows_W, sources, self.beams)
        for observer in (*self.processors, *self.criteria):
            if hasattr(observer, "select_sources"):
                observer.select_sources(sources, self.beams)


def decode(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    streamer: Any = None,
    **model_kwargs,
) -> GenerateEncoderDecoderOutput | GenerateBeamEncoderDecoderOutput | torch.Tensor:
    """Write all tokens of a request, with the result of `GenerationMixin._sample` or `_beam_search`.

    Greedy search and sampling choose one token per row and step, the likeliest or a sampled one. Beam search returns
    the best sequences of each source, best first.

    Args:
        model: the model.
        input_ids: ids of the prefix of each row.
        logits_processor, stopping_criteria: those of `generate`.
        generation_config: the settings of the request.
        streamer: gets the tokens of greedy search and sampling as they are written.
        model_kwargs: the other inputs, with a [`FastPathRequest`] as cache.
    """
    settings = generation_config
    search = Search(model, settings, logits_processor, stopping_criteria, streamer)
    max_new_tokens = settings.max_length - input_ids.shape[1]
    search.texts.prefix_WP = input_ids
    search.prefill(input_ids, model_kwargs, [max_new_tokens] * (len(input_ids) // search.beams))
    has_ends = not isinstance(search.texts, Greedy) or search.texts.pads_ends
    needs_all = (
        streamer is not None or settings.do_sample
    )  # a streamer gets all rows, sampling draws for them together
    can_remove_rows = all(map(supports_row_removal, [*logits_processor, *stopping_criteria]))
    search.may_leave = has_ends and can_remove_rows and not needs_all and not returns_rows(settings)
    sources: list[Written] = []
    while not search.is_over:
        sources += search.step()
    sources.sort(key=lambda source: source.number)
    if streamer is not None:
        streamer.end()
    num_texts = 1 if search.beams == 1 else settings.num_return_sequences
    texts = stacked([source.sequences[:num_texts] for source in sources], search.texts.fill)
    if search.beams > 1:
        rows = stacked([source.rows[:num_texts] for source in sources if source.rows is not None], -1)
        length = int((rows >= 0).sum(dim=1).max())
        texts, rows = texts[:, :length], rows[:, :length]
    prefixes = input_ids[:: search.beams].repeat_interleave(num_texts, dim=0)
    sequences = torch.cat([prefixes, texts], dim=1)
    if not settings.return_dict_in_generate:
        return sequences
    output = {"sequences": sequences, "scores": search.scores, "logits": search.logits, CACHE: search.final_cache()}
    if search.beams == 1:
        return GenerateEncoderDecoderOutput(**output)
    scores = torch.cat([source.scores[:num_texts] for source in sources]) if settings.output_scores else None
    return GenerateBeamEncoderDecoderOutput(**output, sequences_scores=scores, beam_indices=rows)


def stacked(parts: list[torch.Tensor], fill: int) -> torch.Tensor:
    """Concatenate the rows of tensors (rows, T), padded to the widest."""
    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1]), value=fill) for part in parts])

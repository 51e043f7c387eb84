"""A search that runs on while sources join and leave it between steps: greedy search or beam search on the fast path.

Each source has a length, a prompt and a largest number of tokens of its own, and gets what `generate` gives it alone. Keys
have their positions from when they were written, and learned positions are added to the embeddings, so a source that joins
stands beside the others in columns of its own.

Shape suffixes: B sources, S beams of each, W = B * S rows, C candidates of each source, V tokens of the vocabulary, T tokens
written.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

import torch
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria

from .decoding_cache import FastPathRequest, SourceCache, take_states
from .decoding_leaving import places, renumbered, rows_of
from .decoding_pool_cache import PoolCache
from .decoding_search import OUT
from .decoding_step import GROWING_ROTARY, DecodeStep
from .decoding_stepper import first_beams
from .generation import RefuseNonFiniteScores

# The layout of the weights is made for so many rows at least: others join those that are there.
_LAYOUT_ROWS = 8
# Tokens that are allocated at first for each source.
_TOKENS = 64


class Follower(Protocol):
    """A logits processor that follows sources which join and leave. It has been told of a source before its first step."""

    def follow(
        self, parents: list[int], tokens: list[int], prompts: dict[int, list[int]], scores: torch.Tensor
    ) -> torch.Tensor:
        """Return the processed scores (W, V).

        Args:
            parents: for each row the row of the call before that it continues, -1 in the first step of a source.
            tokens: the last token of each row.
            prompts: the ids of each row in the first step of its source.
            scores: the scores of the next token (W, V).
        """

    def keep_sources(self, sources: list[int], beams: int) -> None:
        """Go on with some sources: source i is what was source `sources[i]`."""


class Watch(Protocol):
    """Changes the scores of one source once its time has passed."""

    @property
    def has_passed(self) -> bool: ...

    def __call__(self, input_ids: Any, scores: Any) -> Any: ...


class Found(NamedTuple):
    """What a source has found.

    Args:
        ticket: the ticket of the source.
        prompt: the ids that all its sequences begin with.
        sequences: ids of the tokens written, for each sequence, best first; pads follow its end.
        scores: the scores of the sequences, as in `sequences_scores` of `generate`; of greedy search the log-probability.
    """

    ticket: int
    prompt: list[int]
    sequences: list[list[int]]
    scores: list[float]


def reason_against(model: Any, **settings: Any) -> str | None:
    """Return why a model, or settings of `generate`, cannot have a [`ContinuousSearch`], or None if they can."""
    if model.fast_path is None:
        return "there is no fast path"
    if (against := model.fast_path.reason_against_model(model)) is not None:
        return against
    config, device, rotary = model.config, model.lm_head.weight.device, model.model.decoder.rotary_embedding
    if model.fast_path.is_compiled(model) or device.type != "cpu":
        return "steps are compiled for a number of rows, or not on a CPU"
    kinds = (config.self_attention_position_type, config.cross_attention_position_type)
    if {"relative", "bucketed"}.intersection(kinds) or (rotary is not None and rotary.rope_type in GROWING_ROTARY):
        return "positions are those of a whole batch"
    prepared = _prepared(model, settings)
    if prepared.get_generation_mode() not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH):
        return "the mode is another than greedy search or beam search"
    processors = model._get_logits_processor(
        prepared, input_ids_seq_length=1, encoder_input_ids=torch.zeros(1, 1, dtype=torch.long),
        prefix_allowed_tokens_fn=None, logits_processor=LogitsProcessorList(), device="cpu",
    )  # fmt: skip
    if len(processors) or prepared.max_time is not None or prepared.stop_strings is not None:
        return "the settings ask for processors or stopping criteria that know no sources which join"
    return None


def _prepared(model: Any, settings: dict[str, Any]) -> GenerationConfig:
    request = settings | {"do_sample": False, "max_new_tokens": 1, "max_length": None}
    prepared, _ = model._prepare_generation_config(None, **request)
    model._prepare_special_tokens(prepared, True, device=model.device, batch_size=1)
    return prepared


class ContinuousSearch:
    """Searches for the best sequences of sources that join and leave between steps.

    Args:
        model: a `WeftForConditionalGeneration` without a [`reason_against`] it. Its weights must not change meanwhile.
        followers: processors, see [`Follower`].
        step: the decoding step of another search of the same model.
        settings: settings of `generate`, such as `num_beams`, `length_penalty` and `early_stopping`.
    """

    def __init__(
        self, model: Any, *, followers: Sequence[Follower] = (), step: DecodeStep | None = None, **settings: Any
    ):
        self.model, self.followers, self.settings = model, list(followers), settings
        self.decoder = DecodeStep(model) if step is None else step
        self.prepared = _prepared(model, settings)
        self.beams = self.prepared.num_beams or 1
        self._numbers = count()
        self._clear()

    def _clear(self) -> None:
        """Begin anew, without any source."""
        self.tickets: list[int] = []
        self.watches: list[Watch | None] = []
        self.prompts: list[list[int]] = []
        self.cache = PoolCache(self.beams)
        self.rows: Greedy | Beams = (Greedy if self.beams == 1 else Beams)(self.model, self.prepared)
        self.logits = torch.empty(0)
        # the row of the step before that each row continues, -1 for new ones
        self.parents: list[int] = []
        # the same for the cache, where sources have left since
        self.cached: list[int] | None = None

    def __len__(self) -> int:
        return len(self.tickets)

    def add(
        self, inputs: dict[str, torch.Tensor], most: Sequence[int], watches: Sequence[Watch | None] | None = None
    ) -> list[int]:
        """Let sources join, and return a ticket for each. Their first token is written in the next [`step`].

        Args:
            inputs: keywords of `generate` for these sources: `input_ids`, `decoder_input_ids` and so on.
            most: for each source, the largest number of tokens.
            watches: for each source, what changes its scores after a time.

        Raises:
            ValueError: an input is not allowed.
        """
        before = len(self)
        self.model.generate(
            **inputs, **self.settings, do_sample=False, max_new_tokens=1, max_length=None, custom_generate=self._join
        )
        self.rows.add(list(most))
        new = [next(self._numbers) for _ in range(len(self.prompts) - before)]
        self.tickets += new
        self.watches += [None] * len(new) if watches is None else watches
        return new

    def _join(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor,
        stopping_criteria,
        generation_config,
        **model_kwargs,
    ) -> torch.Tensor:
        """Take the place of the search in `generate`: compute the prompts, and put the sources beside the others."""
        request = model_kwargs.get("past_key_values")
        kinds = {type(one) for one in (*logits_processor, *stopping_criteria)}
        assert isinstance(request, FastPathRequest)
        assert kinds <= {RefuseNonFiniteScores, EosTokenCriteria, MaxLengthCriteria}, kinds
        rows, beams = len(input_ids), self.beams
        ids_BT = input_ids[::beams]
        kwargs = {name: first_beams(value, rows, beams) for name, value in model_kwargs.items()}
        logits_BV = model._prefill(ids_BT, generation_config, kwargs).logits[:, -1].to(torch.float32)
        pads = [0] * len(ids_BT)
        if request.prefix_mask is not None:
            pads = (~request.prefix_mask.bool()).sum(dim=-1).tolist()
        prefix = take_states(request.self_attention_cache)
        source = SourceCache(take_states(request.cross_attention_cache), request.source_mask)
        self.cache.add(prefix, pads, source)
        self.prompts += [ids[first:] for ids, first in zip(ids_BT.tolist(), pads, strict=True)]
        logits_WV = logits_BV.repeat_interleave(beams, dim=0)
        self.logits = torch.cat([self.logits, logits_WV]) if self.tickets else logits_WV
        self.parents += [-1] * rows
        return input_ids

    _join.takes_fast_path = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def step(self) -> list[Found]:
        """Write one token of each source, and return what is found. Its sources have left."""
        if not self.tickets:
            return []
        if not bool(self.logits.amax(dim=-1).isfinite().all()):
            raise ValueError("The scores of the next token are NaN or infinite: the weights are damaged.")
        scores_WV = self._processed(self.logits if self.beams == 1 else self.logits.log_softmax(dim=-1))
        rows_W, done = self.rows.extend(scores_WV, self.logits)
        self.parents = rows_W.tolist()
        found = [
            Found(self.tickets[source], self.prompts[source], *self.rows.found(source))
            for source, is_done in enumerate(done)
            if is_done
        ]
        if all(done):
            self._keep([])
        elif (sources := places(done)) is not None:
            self._keep(sources)
        if self.tickets:
            self.logits = self._decode()
        return found

    def remove(self, tickets: Sequence[int]) -> None:
        """Let sources leave that nobody wants any more."""
        gone = set(tickets)
        done = [ticket in gone for ticket in self.tickets]
        if all(done):
            self._keep([])
        elif (sources := places(done)) is not None:
            self.logits = self.logits[rows_of(sources, self.beams)]
            self._keep(sources, is_between=True)

    def _keep(self, sources: list[int], is_between: bool = False) -> None:
        """Go on with some sources. Between two steps, beams have their places in the cache already."""
        for follower in self.followers:
            follower.keep_sources(sources, self.beams)
        if not sources:
            self._clear()
            return
        self.tickets = [self.tickets[source] for source in sources]
        self.watches = [self.watches[source] for source in sources]
        self.prompts = [self.prompts[source] for source in sources]
        # followers count the rows of their last call, the cache counts the rows that are left
        self.cached = None
        if not is_between:
            self.cached = renumbered(torch.tensor(self.parents), sources, self.beams).tolist()
        self.parents = [self.parents[row] for row in rows_of(sources, self.beams)]
        self.rows.keep(sources)
        self.cache.keep(sources)

    def _processed(self, scores_WV: torch.Tensor) -> torch.Tensor:
        if self.followers:
            prompts = {row: self.prompts[row // self.beams] for row, parent in enumerate(self.parents) if parent < 0}
            last = self.rows.last().tolist()
            tokens = [prompts[row][-1] if row in prompts else token for row, token in enumerate(last)]
            for follower in self.followers:
                scores_WV = follower.follow(self.parents, tokens, prompts, scores_WV)
        for source, watch in enumerate(self.watches):
            if watch is not None and watch.has_passed:
                rows = slice(source * self.beams, (source + 1) * self.beams)
                scores_WV = scores_WV.clone()
                scores_WV[rows] = watch(None, scores_WV[rows])
        return scores_WV

    def _decode(self) -> torch.Tensor:
        """Run the decoder over the last token of each row, and return the logits of the next one (W, V)."""
        cache, step = self.cache, self.decoder
        cache.reorder(self.parents if self.cached is None else self.cached)
        self.cached = None
        slots = torch.tensor(cache.slots)
        tokens_W = self.rows.last()
        ids_W = torch.empty_like(tokens_W).index_copy_(0, slots, tokens_W)
        before = [len(prompt) - 1 for prompt in self.prompts]
        positions_B = torch.tensor(before) + self.rows.written_B
        prefix, suffixes, source = cache.prefix.used(), cache.suffixes.used(), cache.source.used()
        seen = cache.source.mask()
        key_positions = tuple(torch.arange(part.shape[4]) for part in (prefix, suffixes))
        step._pack(max(_LAYOUT_ROWS, len(ids_W)))
        with step.without_gradients():
            logits, states = step(
                ids_W, positions_B.repeat_interleave(self.beams)[:, None], prefix, suffixes, key_positions,
                (cache.prefix.mask(), cache.suffixes.mask()), source, torch.arange(source.shape[4])[None],
                None if seen is None else (seen == 0)[:, None, None],
            )  # fmt: skip
        assert states is not None
        cache.append(states)
        return logits.index_select(0, slots).to(torch.float32)


class Greedy:
    """The rows of a greedy search.

    Args:
        model: the model.
        settings: the settings of the search.
    """

    def __init__(self, model: Any, settings: GenerationConfig):
        self.model, self.settings = model, settings
        self.ends: torch.Tensor | None = settings._eos_token_tensor
        pad: torch.Tensor | None = settings._pad_token_tensor
        self.fill = int(pad) if pad is not None else 0
        self.written_B, self.most_B = torch.zeros(2, 0, dtype=torch.long)
        self.ids_BT = torch.zeros(0, _TOKENS, dtype=torch.long)
        self.scores_B = torch.zeros(0)

    def add(self, most: list[int]) -> None:
        """Add sources with their largest numbers of tokens."""
        self.written_B = torch.cat([self.written_B, torch.zeros(len(most), dtype=torch.long)])
        self.most_B = torch.cat([self.most_B, torch.tensor(most)])
        self.ids_BT = torch.cat([self.ids_BT, torch.full((len(most), self.ids_BT.shape[1]), self.fill)])
        self.scores_B = torch.cat([self.scores_B, torch.zeros(len(most))])

    def keep(self, sources: list[int]) -> None:
        for name in ("written_B", "most_B", "ids_BT", "scores_B"):
            setattr(self, name, getattr(self, name)[sources])

    def last(self) -> torch.Tensor:
        """Return the last token of each row (W,)."""
        return self.ids_BT.gather(1, (self.written_B - 1).clamp(min=0)[:, None])[:, 0]

    def extend(self, scores_WV: torch.Tensor, logits_WV: torch.Tensor) -> tuple[torch.Tensor, list[bool]]:
        """Add a token to each row. Return the row that each continues (W,), and whether each source is done."""
        tokens_B = scores_WV.argmax(dim=-1)
        if int(self.written_B.max()) == self.ids_BT.shape[1]:
            self.ids_BT = torch.cat([self.ids_BT, torch.full_like(self.ids_BT, self.fill)], dim=1)
        self.ids_BT.scatter_(1, self.written_B[:, None], tokens_B[:, None])
        # the model's own logits: what a processor rules out does not make the rest likelier
        self.scores_B = self.scores_B + logits_WV.log_softmax(dim=-1).gather(1, tokens_B[:, None])[:, 0]
        self.written_B = self.written_B + 1
        done_B = self.written_B >= self.most_B
        if self.ends is not None:
            done_B = done_B | torch.isin(tokens_B, self.ends)
        return torch.arange(len(tokens_B)), done_B.tolist()

    def found(self, source: int) -> tuple[list[list[int]], list[float]]:
        """Return the sequences of a source, and their scores."""
        return [self.ids_BT[source, : int(self.written_B[source])].tolist()], [float(self.scores_B[source])]


class Beams:
    """The beams of a search, as `decoding_search.Beams`, with the lengths of each source.

    Only the tokens that were written are here, so lengths are without the prompt. transformers' functions take lengths of
    shape (B, 1) as well as numbers.

    Args:
        model: the model.
        settings: the settings of the search.
    """

    def __init__(self, model: Any, settings: GenerationConfig):
        self.model, self.settings, self.count = model, settings, settings.num_beams
        self.ends: torch.Tensor | None = settings._eos_token_tensor
        pad: torch.Tensor | None = settings._pad_token_tensor
        self.fill = int(pad) if pad is not None else -1
        self.candidates = max(2, 1 + (0 if self.ends is None else len(self.ends))) * self.count
        self.written_B, self.most_B = torch.zeros(2, 0, dtype=torch.long)
        self.running = self.best = torch.zeros(0, self.count, _TOKENS, dtype=torch.long)
        self.running_scores = self.best_scores = torch.zeros(0, self.count)
        self.has_ended = torch.zeros(0, self.count, dtype=torch.bool)
        self.can_improve = torch.zeros(0, 1, dtype=torch.bool)

    def add(self, most: list[int]) -> None:
        """Add sources with their largest numbers of tokens."""
        new = len(most)
        first = torch.full((new, self.count), OUT)
        first[:, 0] = 0.0  # all beams are equal at first
        empty = torch.full((new, *self.running.shape[1:]), self.fill)
        self.written_B = torch.cat([self.written_B, torch.zeros(new, dtype=torch.long)])
        self.most_B = torch.cat([self.most_B, torch.tensor(most)])
        self.running, self.best = torch.cat([self.running, empty]), torch.cat([self.best, empty])
        self.running_scores = torch.cat([self.running_scores, first])
        self.best_scores = torch.cat([self.best_scores, torch.full_like(first, OUT)])
        self.has_ended = torch.cat([self.has_ended, torch.zeros(new, self.count, dtype=torch.bool)])
        self.can_improve = torch.cat([self.can_improve, torch.ones(new, 1, dtype=torch.bool)])

    def keep(self, sources: list[int]) -> None:
        for name in (
            "written_B", "most_B", "running", "best", "running_scores", "best_scores", "has_ended", "can_improve",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name)[sources])

    def last(self) -> torch.Tensor:
        """Return the last token of each row (W,)."""
        columns = (self.written_B - 1).clamp(min=0)[:, None, None].expand(-1, self.count, 1)
        return self.running.gather(2, columns).flatten()

    def extend(self, scores_WV: torch.Tensor, logits_WV: torch.Tensor) -> tuple[torch.Tensor, list[bool]]:
        """Add a token to each beam. Return the row that each continues (W,), and whether each source is done."""
        if int(self.written_B.max()) == self.running.shape[2]:
            more = torch.full_like(self.running, self.fill)
            self.running, self.best = torch.cat([self.running, more], dim=2), torch.cat([self.best, more], dim=2)
        vocabulary = scores_WV.shape[-1]
        totals = scores_WV.view(-1, self.count, vocabulary) + self.running_scores[:, :, None]
        top = totals.flatten(1).topk(self.candidates)
        parents_BC = top.indices.div(vocabulary, rounding_mode="floor")
        tokens_BC = top.indices - parents_BC * vocabulary
        ends_BC = (self.written_B + 1 >= self.most_B)[:, None].expand(tokens_BC.shape)
        if self.ends is not None:
            ends_BC = ends_BC | torch.isin(tokens_BC, self.ends)
        order_BS = (top.values + ends_BC.to(torch.float32) * OUT).topk(self.count).indices
        parents_BS = parents_BC.gather(1, order_BS)
        some = ends_BC.any(dim=1).nonzero()[:, 0]
        if len(some):
            self._end_some(some, top.values[some], parents_BC[some], tokens_BC[some], ends_BC[some])
        running_scores = top.values.gather(1, order_BS)
        self.running_scores = running_scores + ends_BC.gather(1, order_BS).to(torch.float32) * OUT
        self.running = self._grown(self.running, self.written_B, parents_BS, tokens_BC.gather(1, order_BS))
        self.written_B = self.written_B + 1
        rows_BS = parents_BS + torch.arange(len(parents_BS))[:, None] * self.count
        return rows_BS.flatten(), self._done(ends_BC)

    @staticmethod
    def _grown(sequences, written_B, parents, tokens) -> torch.Tensor:
        """Return the sequences that continue `parents` with `tokens`."""
        grown = sequences.gather(1, parents[:, :, None].expand(-1, -1, sequences.shape[2]))
        return grown.scatter_(2, written_B[:, None, None].expand(-1, tokens.shape[1], 1), tokens[:, :, None])

    def _end_some(self, some, top_BC, parents_BC, tokens_BC, ends_BC) -> None:
        """Update the best sequences of some sources, of which candidates end, with transformers' own function."""
        settings, written_B = self.settings, self.written_B[some]
        places = torch.zeros(len(some), self.count, 1, dtype=torch.long)
        self.best[some], self.best_scores[some], _, self.has_ended[some] = self.model._update_finished_beams(
            sequences=self.best[some], beam_scores=self.best_scores[some], beam_indices=places,
            is_sent_finished=self.has_ended[some], is_early_stop_heuristic_unsatisfied=self.can_improve[some],
            topk_running_sequences=self._grown(self.running[some], written_B, parents_BC, tokens_BC),
            topk_log_probs=top_BC, topk_running_beam_indices=parents_BC[:, :, None],
            next_token_hits_stopping_criteria=ends_BC,
            top_num_beam_mask=torch.arange(self.candidates) < self.count, num_beams=self.count,
            cur_len=written_B[:, None], decoder_prompt_len=0,
            length_penalty=settings.length_penalty, early_stopping=settings.early_stopping,
        )  # fmt: skip

    def _done(self, ends_BC: torch.Tensor) -> list[bool]:
        """Return whether each source is done, by transformers' conditions."""
        settings = self.settings
        asked_B = ends_BC.any(dim=1) | self.has_ended.any(dim=1)
        if not asked_B.any():
            return [False] * len(asked_B)
        can_improve = self.model._check_early_stop_heuristic(
            is_early_stop_heuristic_unsatisfied=self.can_improve, running_beam_scores=self.running_scores,
            beam_scores=self.best_scores, is_sent_finished=self.has_ended, cur_len=self.written_B[:, None],
            max_length=self.most_B[:, None], decoder_prompt_len=0, early_stopping=settings.early_stopping,
            length_penalty=settings.length_penalty,
        )  # fmt: skip
        self.can_improve = torch.where(asked_B[:, None], can_improve, self.can_improve)
        is_full_B = self.has_ended.all(dim=1) & (settings.early_stopping is True)
        return (asked_B & (~self.can_improve[:, 0] | is_full_B | ends_BC.all(dim=1))).tolist()

    def found(self, source: int) -> tuple[list[list[int]], list[float]]:
        """Return the sequences of a source, best first, and their scores."""
        written = int(self.written_B[source])
        return self.best[source, :, :written].tolist(), self.best_scores[source].tolist()

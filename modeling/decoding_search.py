"""transformers' greedy search, sampling and beam search on the fast path, with fewer operations per token.

transformers' own functions handle the rare steps, in which a sequence ends or the search may end.

Shape suffixes: B sources, S beams of each, W = B * S rows, C candidates of each source, V tokens of the vocabulary, T
tokens so far.
"""

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput

from .decoding_leaving import may_leave, move, only_sequences, places, renumbered
from .decoding_stepper import Stepper

# The score of a beam that must not win, as in transformers.
OUT = -1e9


def processed(processors: LogitsProcessorList, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    for processor in processors:
        scores = processor(ids, scores)
    return scores


class Recorder:
    """Keeps the scores and logits of each step, if `generate` is to return them."""

    def __init__(self, settings: GenerationConfig):
        wants = settings.return_dict_in_generate and not only_sequences(settings)
        self.scores: tuple[torch.Tensor, ...] | None = () if wants and settings.output_scores else None
        self.logits: tuple[torch.Tensor, ...] | None = () if wants and settings.output_logits else None

    def add(self, scores: torch.Tensor, logits: torch.Tensor) -> None:
        if self.scores is not None:
            self.scores += (scores.clone(),)
        if self.logits is not None:
            self.logits += (logits.clone(),)


def sample(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    streamer: Any = None,
    **model_kwargs,
) -> GenerateEncoderDecoderOutput | torch.Tensor:
    """Do what `GenerationMixin._sample` does: choose one token per row and step, the likeliest or a sampled one."""
    settings, recorder = generation_config, Recorder(generation_config)
    has_ends = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria)
    stepper = Stepper(model, input_ids, settings, model_kwargs)
    ids: torch.Tensor = input_ids
    running_W = torch.ones(len(ids), dtype=torch.long, device=ids.device)
    observers = [*logits_processor, *stopping_criteria]
    leave = has_ends and streamer is None and may_leave(settings, stepper, observers)
    rows = Rows(ids) if leave else None
    while True:
        scores_WV = processed(logits_processor, ids, stepper.logits)
        recorder.add(scores_WV, stepper.logits)
        if settings.do_sample:
            tokens_W = torch.multinomial(scores_WV.softmax(dim=-1), num_samples=1).squeeze(1)
        else:
            tokens_W = scores_WV.argmax(dim=-1)
        if has_ends:
            tokens_W = tokens_W * running_W + settings._pad_token_tensor * (1 - running_W)
        ids = torch.cat([ids, tokens_W[:, None]], dim=-1)
        if streamer is not None:
            streamer.put(tokens_W.cpu())
        running_W = running_W & ~stopping_criteria(ids, recorder.scores)
        if not running_W.any():
            break
        if rows is not None and (kept := places((running_W == 0).tolist())) is not None:
            ids, running_W = rows.keep(kept, ids), running_W[kept]
            keep_sources(kept, 1, stepper, observers)
        stepper.advance(ids)
    if rows is not None:
        ids = rows.whole(ids, settings._pad_token_tensor)
    if streamer is not None:
        streamer.end()
    if not settings.return_dict_in_generate:
        return ids
    return GenerateEncoderDecoderOutput(
        sequences=ids, scores=recorder.scores, logits=recorder.logits, past_key_values=stepper.final_cache()
    )


def keep_sources(sources: list[int], beams: int, stepper: Any, observers: list[Any]) -> None:
    """Tell all that know the rows of a search that some sources go on, and at which places."""
    stepper.keep_sources(sources)
    for observer in observers:
        if hasattr(observer, "keep_sources"):
            observer.keep_sources(sources, beams)


class Rows:
    """The ids of rows, some of which leave before the others.

    Args:
        ids_WT: the ids of all rows.
    """

    def __init__(self, ids_WT: torch.Tensor):
        self.numbers = list(range(len(ids_WT)))
        self.left: dict[int, torch.Tensor] = {}

    def keep(self, kept: list[int], ids_WT: torch.Tensor) -> torch.Tensor:
        """Keep some rows, and return their ids."""
        stays = set(kept)
        self.left |= {number: ids_WT[row] for row, number in enumerate(self.numbers) if row not in stays}
        self.numbers = [self.numbers[row] for row in kept]
        return ids_WT[kept]

    def whole(self, ids_WT: torch.Tensor, pad: torch.Tensor | None) -> torch.Tensor:
        """Return the ids of all rows, in the order of the beginning."""
        if not self.left:
            return ids_WT
        assert pad is not None  # rows end at an end token, and then pads follow
        found = pad.to(ids_WT).repeat(len(self.numbers) + len(self.left), ids_WT.shape[1])
        found[self.numbers] = ids_WT
        for row, ids in self.left.items():
            found[row, : len(ids)] = ids
        return found


class Beams:
    """The sequences of a beam search: the running beams, and the best sequences that have ended.

    This class handles end tokens and the maximum length itself, where `generate` has made their stopping criteria. It
    calls other stopping criteria at every step.
    """

    def __init__(self, model: Any, ids_WT: torch.Tensor, settings: GenerationConfig, criteria: StoppingCriteriaList):
        self.model, self.settings, self.count = model, settings, settings.num_beams
        self.prompt = self.length = ids_WT.shape[1]
        ends: torch.Tensor | None = settings._eos_token_tensor
        # a user's criterion of one of these classes replaces the one that `generate` makes
        own_ends = [one for one in criteria if type(one) is EosTokenCriteria and one.eos_token_id is ends]
        known = [
            *own_ends,
            *(one for one in criteria if type(one) is MaxLengthCriteria and one.max_length >= settings.max_length),
        ]
        self.criteria = StoppingCriteriaList(one for one in criteria if one not in known)
        self.ends = ends if own_ends else None
        self.candidates = max(2, 1 + (0 if ends is None else len(ends))) * self.count
        batch, device = len(ids_WT) // self.count, ids_WT.device
        self.first_row_B1 = torch.arange(batch, device=device)[:, None] * self.count
        pad = settings._pad_token_tensor
        fill = -1 if ends is None else pad or ends[0]
        shape = (batch, self.count, settings.max_length)
        self.running = torch.full(shape, int(fill), device=device)
        self.running[:, :, : self.length] = ids_WT.view(batch, self.count, -1)
        # each token's row among the logits of its step
        self.running_rows = torch.full(
            (*shape[:2], settings.max_length - self.length), -1, dtype=torch.int32, device=device
        )
        self.running_scores = torch.zeros(shape[:2], device=device)
        self.running_scores[:, 1:] = OUT  # all beams are equal at first
        self.best, self.best_rows = self.running.clone(), self.running_rows.clone()
        self.best_scores = torch.full(shape[:2], OUT, device=device)
        self.has_ended = torch.zeros(shape[:2], dtype=torch.bool, device=device)
        self.any_ended = False
        self.can_improve = torch.ones((batch, 1), dtype=torch.bool, device=device)
        self.is_over = False
        # the numbers of the sources that are still searched, and what was found for all, once some have left
        self.numbers = list(range(batch))
        self.found: tuple[torch.Tensor, ...] | None = None

    @property
    def flat(self) -> torch.Tensor:
        return self.running[:, :, : self.length].flatten(0, 1)

    def extend(self, scores_WV: torch.Tensor, recorded: tuple[torch.Tensor, ...] | None) -> torch.Tensor:
        """Add a token to each beam.

        Return the row that each beam continues (W,), also after the last step (`is_over`).

        `recorded` are the scores of the steps so far, if they are kept. Stopping criteria get them.
        """
        vocabulary = scores_WV.shape[-1]
        totals = scores_WV.view(-1, self.count, vocabulary) + self.running_scores[:, :, None]
        top_BC, picks_BC = self._pick(totals.flatten(1))
        parents_BC = picks_BC.div(vocabulary, rounding_mode="floor")
        tokens_BC = picks_BC - parents_BC * vocabulary
        is_last = self.length + 1 >= self.settings.max_length
        ends_BC = (
            torch.zeros_like(tokens_BC, dtype=torch.bool) if self.ends is None else torch.isin(tokens_BC, self.ends)
        )
        if self.criteria:
            candidates = self._grown(parents_BC, tokens_BC)[0][:, :, : self.length + 1].flatten(0, 1)
            ends_BC = ends_BC | self.criteria(candidates, recorded).view_as(ends_BC)
        if is_last or ends_BC.any():
            self.is_over = self._end_some(top_BC, parents_BC, tokens_BC, ends_BC | is_last)
        else:
            order_BS = top_BC.topk(self.count).indices
            self.running_scores = top_BC.gather(1, order_BS)
            parents_BS = parents_BC.gather(1, order_BS)
            self.running, self.running_rows = self._grown(parents_BS, tokens_BC.gather(1, order_BS))
            self.length += 1
            self.is_over = self.any_ended and self._is_over(ends_BC)
        rows_BS = self.running_rows[:, :, self.length - 1 - self.prompt]
        if self.found is not None:  # from the numbers of the beginning to those of the rows that are left
            rows_BS = (
                rows_BS - self.first_row_B1 + torch.arange(len(rows_BS), device=rows_BS.device)[:, None] * self.count
            )
        return rows_BS.flatten()

    def places(self) -> list[int] | None:
        """Return the source that takes each place if some leave now, else None.

        A source may leave if all its sequences have ended and transformers' functions would put no other in their places.
        """
        if not self.any_ended:
            return None
        is_full_B = self.has_ended.all(dim=1) & (self.best_scores.amin(dim=1) > OUT / 2)
        done_B = is_full_B if self.settings.early_stopping is True else is_full_B & ~self.can_improve[:, 0]
        return places(done_B.tolist())

    def keep(self, sources: list[int]) -> None:
        """Search on for some sources, and store what was found for the others: source i is what was `sources[i]`."""
        if self.found is None:
            self.found = (self.best.clone(), self.best_scores.clone(), self.best_rows.clone())
        self._store()
        self.numbers = [self.numbers[source] for source in sources]
        for name in (
            "running", "running_rows", "running_scores", "best", "best_rows", "best_scores", "has_ended", "can_improve",
            "first_row_B1",
        ):  # fmt: skip
            setattr(self, name, move(getattr(self, name), 0, sources))
        self.any_ended = bool(self.has_ended.any())

    def _store(self) -> None:
        assert self.found is not None
        for found, states in zip(self.found, (self.best, self.best_scores, self.best_rows), strict=True):
            found[self.numbers] = states

    def results(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the best sequences of all sources, their scores, and the row of each token."""
        if self.found is None:
            return self.best, self.best_scores, self.best_rows
        self._store()
        sequences, scores, rows = self.found
        return sequences, scores, rows

    def _pick(self, totals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.settings.do_sample:
            top = totals.topk(self.candidates)
            return top.values, top.indices
        picks = torch.multinomial(totals.softmax(dim=-1), num_samples=self.candidates)
        return totals.gather(1, picks), picks

    def _grown(self, parents: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sequences that continue `parents` with `tokens`, and the rows of their tokens."""
        sequences, rows = (
            states.gather(1, parents[:, :, None].expand(-1, -1, states.shape[2]))
            for states in (self.running, self.running_rows)
        )
        sequences[:, :, self.length] = tokens
        rows[:, :, self.length - self.prompt] = parents + self.first_row_B1
        return sequences, rows

    def _end_some(self, top_BC, parents_BC, tokens_BC, ends_BC) -> bool:
        """Take a step in which candidates end, with transformers' own functions. Return whether the search is over."""
        settings, sequences_and_rows = self.settings, self._grown(parents_BC, tokens_BC)
        candidates = dict(
            zip(("topk_running_sequences", "topk_running_beam_indices"), sequences_and_rows, strict=True),
            topk_log_probs=top_BC, next_token_hits_stopping_criteria=ends_BC, num_beams=self.count,
        )  # fmt: skip
        self.running, self.running_scores, self.running_rows = self.model._get_running_beams_for_next_iteration(
            **candidates
        )
        in_front = torch.arange(self.candidates, device=top_BC.device) < self.count
        self.best, self.best_scores, self.best_rows, self.has_ended = self.model._update_finished_beams(
            sequences=self.best, beam_scores=self.best_scores, beam_indices=self.best_rows,
            is_sent_finished=self.has_ended, is_early_stop_heuristic_unsatisfied=self.can_improve,
            top_num_beam_mask=in_front, cur_len=self.length, decoder_prompt_len=self.prompt,
            length_penalty=settings.length_penalty, early_stopping=settings.early_stopping, **candidates,
        )  # fmt: skip
        self.any_ended = bool(self.has_ended.any())
        self.length += 1
        return self._is_over(ends_BC)

    def _is_over(self, ends_BC: torch.Tensor) -> bool:
        settings = self.settings
        self.can_improve = self.model._check_early_stop_heuristic(
            is_early_stop_heuristic_unsatisfied=self.can_improve, running_beam_scores=self.running_scores,
            beam_scores=self.best_scores, is_sent_finished=self.has_ended, cur_len=self.length,
            max_length=settings.max_length, decoder_prompt_len=self.prompt, early_stopping=settings.early_stopping,
            length_penalty=settings.length_penalty,
        )  # fmt: skip
        return not self.model._beam_search_has_unfinished_sequences(
            self.can_improve, self.has_ended, ends_BC, settings.early_stopping
        )


def beam_search(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **model_kwargs,
) -> GenerateBeamEncoderDecoderOutput | torch.Tensor:
    """Return the best sequences of each source, best first, as `GenerationMixin._beam_search` does."""
    settings, recorder = generation_config, Recorder(generation_config)
    beams = Beams(model, input_ids, settings, stopping_criteria)
    stepper = Stepper(model, input_ids, settings, model_kwargs)
    observers = [*logits_processor, *stopping_criteria]
    leave = may_leave(settings, stepper, observers)
    while True:
        scores_WV = processed(logits_processor, beams.flat, stepper.logits.log_softmax(dim=-1))
        recorder.add(scores_WV, stepper.logits)
        rows_W = beams.extend(scores_WV, recorder.scores)
        if beams.is_over:
            break
        if leave and (sources := beams.places()) is not None:
            rows_W = renumbered(rows_W, sources, beams.count)
            beams.keep(sources)
            keep_sources(sources, beams.count, stepper, observers)
        stepper.advance(beams.flat, rows_W)
    kept = settings.num_return_sequences
    sequences, scores, rows = (states[:, :kept].flatten(0, 1) for states in beams.results())
    written = int((rows >= 0).sum(dim=1).max())
    sequences = sequences[:, : beams.prompt + written]
    if not settings.return_dict_in_generate:
        return sequences
    return GenerateBeamEncoderDecoderOutput(
        sequences=sequences,
        sequences_scores=scores if settings.output_scores else None,
        beam_indices=rows[:, :written],
        past_key_values=stepper.final_cache(rows_W),
        scores=recorder.scores,
        logits=recorder.logits,
    )

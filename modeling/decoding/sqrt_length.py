"""DirectMultiStep's ranking of beams: `model.generate(..., custom_generate="sqrt_length")`.

Shape suffixes: B sources, S beams, W = B * S rows, V tokens of the vocabulary, K tokens of each beam.
"""

from copy import copy
from typing import Any, cast

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, LogitNormalization

from ..transformers_names import special_tokens

# Scores below those that transformers gives to beams that have not ended (-1e9).
_LAST = -4e9


def sqrt_length_score(log_probs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return DirectMultiStep's score of a sequence, log p / (sqrt(length) + 1e-6).

    Args:
        log_probs: the sums of the log-probabilities of the written tokens.
        lengths: the numbers of non-pad tokens, including those of the start and of a forced prefix.

    Returns:
        The scores.
    """
    return log_probs / (lengths.float().sqrt() + 1e-6)


def sqrt_length_search(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **model_kwargs,
) -> Any:
    """Search with `num_beams` beams that are ranked at every step by log p / sqrt(length).

    The length includes a forced prefix. A beam that has ended competes with the running beams at every step, until all
    beams of its source have ended. It loses its place if `num_beams` other beams have better scores.

    The sources of a batch are independent. In DirectMultiStep's own `BeamSearchOptimized` they are not: from the
    second source on, it continues the beams of the first. So the two searches agree only for one source at a time.

    Do not call this function. Call `model.generate(..., num_beams=5, num_return_sequences=5,
    custom_generate="sqrt_length", return_dict_in_generate=True)` instead.

    Raises:
        ValueError: sampling was requested.
    """
    if generation_config.do_sample:
        raise ValueError("`do_sample=True` is not supported: this search is deterministic.")
    settings = copy(generation_config)
    settings.length_penalty, settings.early_stopping = 0.0, True
    ranking = SqrtLengthRanking(input_ids, settings)
    # the ranking handles end tokens, because beams that have ended stay among the others
    criteria = StoppingCriteriaList(rule for rule in stopping_criteria if type(rule) is not EosTokenCriteria)
    processors = [*logits_processor, ranking]
    if ranking.beams == 1:  # greedy search has logits, beam search log-probabilities
        processors.insert(0, LogitNormalization())
    search = model._sample if ranking.beams == 1 else model._beam_search
    output = search(
        input_ids,
        logits_processor=LogitsProcessorList(processors),
        stopping_criteria=StoppingCriteriaList([AllBeamsEnded(ranking, criteria)]),
        generation_config=settings,
        **model_kwargs,
    )
    if generation_config.return_dict_in_generate:
        scores_BS = sqrt_length_score(ranking.totals_BS, ranking.lengths_BS)
        output["sequences_scores"] = scores_BS[:, : generation_config.num_return_sequences or 1].flatten()
    return output


class SqrtLengthRanking(LogitsProcessor):
    """Leaves of all tokens those of the best beams of each source, and makes their scores such that a beam's is minus
    its rank.

    Small integers are exact in float32, so a search keeps the beams in this order. A beam that has ended continues
    with pads and keeps its score.

    Args:
        input_ids: ids of the prefix of each row.
        settings: the settings of the request.
    """

    def __init__(self, input_ids: torch.LongTensor, settings: GenerationConfig):
        self.beams = settings.num_beams or 1
        _, self.ends, self.pad = special_tokens(settings)
        ids_BST = input_ids.view(-1, self.beams, input_ids.shape[1])
        self.totals_BS = torch.zeros(ids_BST.shape[:2], device=input_ids.device)
        self.totals_BS[:, 1:] = float("-inf")  # all beams are still equal
        self.has_ended_BS = torch.zeros_like(self.totals_BS, dtype=torch.bool)
        self.lengths_BS = (ids_BST != self.pad).sum(dim=-1)
        # sources whose search is over
        self.is_done_B1 = self.has_ended_BS[:, :1]
        self.ranks_S = torch.arange(self.beams, device=input_ids.device, dtype=torch.float32)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        parents_BS, tokens_BS, totals_BS = self._best_steps(scores.view(len(self.totals_BS), self.beams, -1))
        ranked_BSV = torch.full_like(scores, float("-inf")).view(len(self.totals_BS), self.beams, -1)
        ranked_BSV[..., self.pad] = ranked_BSV[..., self.pad].masked_fill(self.is_done_B1, _LAST)
        # if processors allow too few tokens, some beams stay empty
        sources, ranks = (totals_BS.isfinite() & ~self.is_done_B1).nonzero(as_tuple=True)
        parents = parents_BS[sources, ranks]
        ranked_BSV[sources, parents, tokens_BS[sources, ranks]] = self.ranks_S[parents] - self.ranks_S[ranks]
        has_ended_BS = self.has_ended_BS.gather(1, parents_BS) | totals_BS.isneginf()
        if self.ends is not None:
            has_ended_BS = has_ended_BS | torch.isin(tokens_BS, self.ends)
        lengths_BS = self.lengths_BS.gather(1, parents_BS) + (tokens_BS != self.pad)
        self.totals_BS = self.totals_BS.where(self.is_done_B1, totals_BS)
        self.has_ended_BS = self.has_ended_BS.where(self.is_done_B1, has_ended_BS)
        self.lengths_BS = self.lengths_BS.where(self.is_done_B1, lengths_BS)
        return cast(torch.FloatTensor, ranked_BSV.view_as(scores))

    def _best_steps(self, log_probs_BSV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """For each beam of the next step, return the beam that it continues, the added token and the log-probability.

        The candidates of the running beams are first reduced to S, by their lengths without the new token. Then these
        and the ended beams are ranked by their lengths with the new token.
        """
        beams, ended_BS, lengths_BS = self.beams, self.has_ended_BS, self.lengths_BS
        totals_BSV = (self.totals_BS[..., None] + log_probs_BSV).masked_fill(ended_BS[..., None], float("-inf"))
        totals_BSK, tokens_BSK = totals_BSV.topk(min(beams, totals_BSV.shape[-1]), dim=-1)
        best = sqrt_length_score(totals_BSK, lengths_BS[..., None]).flatten(1).topk(beams, dim=-1).indices
        parents = best // totals_BSK.shape[-1]
        tokens, totals = tokens_BSK.flatten(1).gather(1, best), totals_BSK.flatten(1).gather(1, best)
        lengths = lengths_BS.gather(1, parents) + (tokens != self.pad)

        ranks = self.ranks_S.long().expand_as(tokens)
        parents, tokens = torch.cat([parents, ranks], 1), torch.cat([tokens, torch.zeros_like(tokens) + self.pad], 1)
        totals = torch.cat([totals, self.totals_BS.masked_fill(~ended_BS, float("-inf"))], 1)
        best = sqrt_length_score(totals, torch.cat([lengths, lengths_BS], 1)).topk(beams, dim=-1).indices
        return parents.gather(1, best), tokens.gather(1, best), totals.gather(1, best)


class AllBeamsEnded(StoppingCriteria):
    """Ends a source when all of its beams have ended, or meet one of the other criteria."""

    def __init__(self, ranking: SqrtLengthRanking, criteria: StoppingCriteriaList):
        self.ranking, self.criteria = ranking, criteria

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs) -> torch.Tensor:
        ranking = self.ranking
        # in beam search the rows are more candidates than beams, best first
        stops_BC = self.criteria(input_ids, scores, **kwargs).view(len(ranking.totals_BS), -1)
        is_over_B1 = (ranking.has_ended_BS | stops_BC[:, : ranking.beams]).all(dim=1, keepdim=True)
        ranking.is_done_B1 = ranking.is_done_B1 | is_over_B1
        return ranking.is_done_B1.expand_as(stops_BC).flatten()

"""DirectMultiStep's beam search: `model.generate(..., custom_generate="sqrt_length")`.

Shape suffixes: B sources, S beams, V tokens of the vocabulary, T tokens written so far.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from ...modeling.decoding import Stepper, processed
from ...modeling.generation import WeftGenerateBeamOutput
from ...modeling.transformers_names import CACHE


@dataclass
class SqrtLengthBeamOutput(WeftGenerateBeamOutput):
    """
    The output of the search.

    Args:
        sequences_log_probs (`torch.FloatTensor` of shape `(batch_size * num_return_sequences,)`, *optional*):
            The log-probability of each sequence. `sequences_scores` is the log-probability divided by sqrt(length).
            Both leave out the log-probability of a forced prefix.
    """

    sequences_log_probs: torch.FloatTensor | None = None


def sqrt_length_score(log_probs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """
    Return DirectMultiStep's score of a sequence, log p / (sqrt(length) + 1e-6).

    Args:
        log_probs (`torch.Tensor`):
            The sums of the log-probabilities of the written tokens.
        lengths (`torch.Tensor`):
            The numbers of non-pad tokens, including those of the start and of a forced prefix.

    Returns:
        `torch.Tensor`: the scores.
    """
    return log_probs / (lengths.float().sqrt() + 1e-6)


@torch.no_grad()
def sqrt_length_beam_search(
    model: Any,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **model_kwargs,
) -> SqrtLengthBeamOutput | torch.Tensor:
    """Search with `num_beams` beams that are ranked at every step by log p / sqrt(length).

    The length includes a forced prefix. The search differs from transformers' search in more than the score: a beam
    that has ended competes with the running beams at every step, until all beams have ended. It loses its place if
    `num_beams` other beams have better scores.

    The sources of a batch are independent. In DirectMultiStep's own `BeamSearchOptimized` they are not: from the
    second source on, it continues the beams of the first. So the two searches agree only for one source at a time.

    Do not call this function. Call `model.generate(..., num_beams=5, num_return_sequences=5,
    custom_generate="sqrt_length", return_dict_in_generate=True)` instead.

    Raises:
        ValueError: sampling was requested.
    """
    if generation_config.do_sample:
        raise ValueError("`do_sample=True` is not supported: this search is deterministic.")
    beams = generation_config.num_beams or 1
    pad, ends = generation_config._pad_token_tensor, generation_config._eos_token_tensor
    batch = input_ids.shape[0] // beams
    offsets_B1 = torch.arange(batch, device=input_ids.device)[:, None] * beams
    ids_BST = input_ids.view(batch, beams, -1)
    scores_BS = torch.zeros(batch, beams, device=input_ids.device)
    scores_BS[:, 1:] = float("-inf")  # all beams are still equal
    ended_BS = torch.zeros_like(scores_BS, dtype=torch.bool)
    lengths_BS = (ids_BST != pad).sum(dim=-1)
    stepper = Stepper(model, input_ids, generation_config, model_kwargs)
    while True:
        log_probs = processed(logits_processor, ids_BST.flatten(0, 1), stepper.logits.log_softmax(dim=-1))
        parents_BS, tokens_BS, scores_BS = _best_steps(
            scores_BS, log_probs.view(batch, beams, -1), lengths_BS, ended_BS, pad
        )
        ids_BST = torch.cat(
            [ids_BST.gather(1, parents_BS[..., None].expand(-1, -1, ids_BST.shape[2])), tokens_BS[..., None]], -1
        )
        ended_BS = ended_BS.gather(1, parents_BS)
        if ends is not None:
            ended_BS = ended_BS | torch.isin(tokens_BS, ends)
        # if processors allow too few tokens, some beams stay empty and are not continued
        ended_BS = ended_BS | scores_BS.isneginf()
        lengths_BS = (ids_BST != pad).sum(dim=-1)
        rows = (parents_BS + offsets_B1).flatten()
        flat_ids = ids_BST.flatten(0, 1)
        if ended_BS.all() or (stopping_criteria(flat_ids, None) | ended_BS.flatten()).all():
            break
        stepper.advance(flat_ids, rows)
    kept = generation_config.num_return_sequences or 1
    sequences = ids_BST[:, :kept].flatten(0, 1)
    if not generation_config.return_dict_in_generate:
        return sequences
    return SqrtLengthBeamOutput(
        sequences=sequences,
        sequences_scores=sqrt_length_score(scores_BS, lengths_BS)[:, :kept].flatten(),
        sequences_log_probs=scores_BS[:, :kept].flatten(),
        **{CACHE: stepper.final_cache(rows)},
    )


def _best_steps(scores_BS, log_probs_BSV, lengths_BS, ended_BS, pad):
    """For each beam of the next step, return the beam that it continues, the added token and the log-probability.

    The candidates of the running beams are first reduced to S, by their lengths without the new token. Then these and
    the ended beams are ranked by their lengths with the new token. A beam that has ended is "continued" by a pad.
    """
    beams = scores_BS.shape[1]
    totals_BSV = (scores_BS[..., None] + log_probs_BSV).masked_fill(ended_BS[..., None], float("-inf"))
    totals_BSK, tokens_BSK = totals_BSV.topk(min(beams, totals_BSV.shape[-1]), dim=-1)
    ranks = sqrt_length_score(totals_BSK, lengths_BS[..., None]).flatten(1).topk(beams, dim=-1).indices
    parents = ranks // totals_BSK.shape[-1]
    tokens, totals = tokens_BSK.flatten(1).gather(1, ranks), totals_BSK.flatten(1).gather(1, ranks)
    lengths = lengths_BS.gather(1, parents) + (tokens != pad)

    places = torch.arange(beams, device=tokens.device).expand_as(tokens)
    parents, tokens = torch.cat([parents, places], 1), torch.cat([tokens, torch.zeros_like(tokens) + pad], 1)
    totals = torch.cat([totals, scores_BS.masked_fill(~ended_BS, float("-inf"))], 1)
    best = sqrt_length_score(totals, torch.cat([lengths, lengths_BS], 1)).topk(beams, dim=-1).indices
    return parents.gather(1, best), tokens.gather(1, best), totals.gather(1, best)

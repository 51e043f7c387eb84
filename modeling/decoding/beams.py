"""The rules of beam search, which the search in Python and the compiled one have in common.

Shape suffixes: B sources, S beams of each, C candidates of each source.
"""

from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, GenerationMixin

from ..transformers_names import check_early_stop, special_tokens, update_finished_beams

# The score of a beam that must not win, as in transformers.
NEG_SCORE = -1e9


def gather_beams(states: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
    """Return the picked beams (B, X) of states (B, S, ...)."""
    index = picks if states.ndim == 2 else picks[:, :, None].expand(-1, -1, states.shape[2])
    return states.gather(1, index)


class _Search(GenerationMixin):
    """transformers' functions. Their own `_gather_beams` cannot be exported for any size."""

    _gather_beams = staticmethod(gather_beams)


class BeamRules(NamedTuple):
    """transformers' rules of beam search, with the settings that they read and the number of end tokens."""

    num_beams: int
    num_ends: int
    length_penalty: float
    early_stopping: bool | str

    @property
    def num_candidates(self) -> int:
        return max(2, 1 + self.num_ends) * self.num_beams

    def ended(
        self, best: Any, candidates: Any, ends_BC: torch.Tensor, can_improve: torch.Tensor, length, start
    ) -> Any:
        """Return the best ended texts: ids, scores, a tensor for each text, and whether they have ended.

        Args:
            best: those before this step.
            candidates: ids, scores and such a tensor of the candidates, of which `ends_BC` end.
            can_improve: whether the search of each source may find better texts (B, 1).
            length, start: the numbers of tokens in a text before this step, and in its prefix.
        """
        texts, scores, others, has_ended_BS = best
        return update_finished_beams(
            _Search(), sequences=texts, beam_scores=scores, beam_indices=others, is_sent_finished=has_ended_BS,
            topk_running_sequences=candidates[0], topk_log_probs=candidates[1],
            topk_running_beam_indices=candidates[2], next_token_hits_stopping_criteria=ends_BC,
            top_num_beam_mask=torch.arange(self.num_candidates, device=ends_BC.device) < self.num_beams,
            num_beams=self.num_beams, is_early_stop_heuristic_unsatisfied=can_improve, cur_len=length,
            decoder_prompt_len=start, length_penalty=self.length_penalty, early_stopping=self.early_stopping,
        )  # fmt: skip

    def is_done(self, running_BS, best: Any, ends_BC, can_improve, length, start, longest) -> torch.Tensor:
        """Return which sources are done (B,), by the scores of the running beams, of at most `longest` tokens.

        The other arguments are as in [`ended`], but after the step.
        """
        _, scores_BS, _, has_ended_BS = best
        may_improve_B1 = check_early_stop(
            _Search(), is_early_stop_heuristic_unsatisfied=can_improve, running_beam_scores=running_BS,
            beam_scores=scores_BS, is_sent_finished=has_ended_BS, cur_len=length, max_length=longest,
            decoder_prompt_len=start, early_stopping=self.early_stopping, length_penalty=self.length_penalty,
        )  # fmt: skip
        may_end_B = ends_BC.any(dim=1) | has_ended_BS.any(dim=1)
        is_full_B = has_ended_BS.all(dim=1) & (self.early_stopping is True)
        return may_end_B & (~may_improve_B1[:, 0] | is_full_B | ends_BC.all(dim=1))


def kind_of(settings: GenerationConfig) -> tuple:
    """Return the [`BeamRules`] of settings, and nothing for greedy search."""
    if (settings.num_beams or 1) == 1:
        return ()
    ends = special_tokens(settings).ends
    num_ends = 0 if ends is None else len(ends)
    return BeamRules(settings.num_beams, num_ends, settings.length_penalty, settings.early_stopping)

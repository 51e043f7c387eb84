"""One search for routes: encode targets, force the beginning of their routes, read what comes out as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from ...tokenization import encode_source
from ..molecules import canonical_route
from ..plans import Candidate
from ..tree import Route
from .grammar import RouteGrammar

# How beams are searched and scored: settings of `generate`. A length_penalty of 0 ranks by the whole log-probability: any
# division by the length would prefer longer routes.
RANKINGS: dict[str, dict[str, Any]] = {
    "log_probability": {"length_penalty": 0.0},
    "sqrt_length": {"custom_generate": "sqrt_length"},
}


@dataclass(frozen=True)
class Job:
    """A target, and what the model is told of the wanted routes: their longest path in reactions, a molecule to begin from."""

    smiles: str
    n_steps: int | None = None
    starting_material: str | None = None


class RouteSearch:
    """Finds candidates for targets, a batch at a time.

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
        beams: width of the search, and candidates of each job.
        ranking: one of `RANKINGS`.
        grammar: let only tokens through that continue a well-formed route, no deeper than `Job.n_steps`.
        max_new_tokens: bound on what the model writes (default: what its positions allow).
        logits_processor: more processors for `generate`; one that raises ends a search from outside.

    Raises:
        ValueError: a setting is not allowed; the message says what is.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        beams: int,
        ranking: str = "log_probability",
        grammar: bool = True,
        max_new_tokens: int | None = None,
        logits_processor: Sequence[Any] = (),
    ):
        if ranking not in RANKINGS:
            raise ValueError(f"ranking={ranking!r} is not allowed: choose one of {', '.join(RANKINGS)}.")
        for name, value in (("beams", beams), ("max_new_tokens", max_new_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give at least 1.")
        self.model, self.tokenizer = model, tokenizer
        self.beams, self.ranking, self.grammar, self.max_new_tokens = beams, ranking, grammar, max_new_tokens
        self.logits_processor = list(logits_processor)

    def __call__(self, jobs: list[Job]) -> list[list[Candidate]]:
        """The candidates of each job, best first."""
        tokenizer, config, device = self.tokenizer, self.model.config, self.model.device
        sources = [encode_source(tokenizer, job.smiles, job.starting_material) for job in jobs]
        starts = [self._beginning(job.smiles) for job in jobs]
        source_ids = _pad(sources, tokenizer.pad_token_id, side="right").to(device)
        start_ids = _pad(starts, tokenizer.pad_token_id, side="left").to(device)
        start_mask = _pad([[1] * len(start) for start in starts], 0, side="left").to(device)
        length = start_ids.shape[1]
        room = self._room(length)
        inputs: dict[str, torch.Tensor] = {}
        if config.num_condition_features:
            inputs["condition_values"] = torch.tensor([[float(job.n_steps or 0)] for job in jobs], device=device)
        grammar = [RouteGrammar(tokenizer, [job.n_steps for job in jobs])] if self.grammar else []
        output = self.model.generate(
            input_ids=source_ids,
            decoder_input_ids=start_ids,
            decoder_attention_mask=start_mask,
            num_beams=self.beams,
            num_return_sequences=self.beams,
            do_sample=False,
            **({} if self.beams == 1 and self.ranking == "log_probability" else RANKINGS[self.ranking]),
            max_new_tokens=room if self.max_new_tokens is None else min(self.max_new_tokens, room),
            max_length=None,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
            logits_processor=self.logits_processor + grammar,
            **inputs,
        )
        texts = [self._read(row) for row in output.sequences.tolist()]
        candidates = [
            self._candidate(text, score, jobs[index // self.beams].n_steps)
            for index, (text, score) in enumerate(zip(texts, self._scores(output, length).tolist(), strict=True))
        ]
        return [candidates[start : start + self.beams] for start in range(0, len(candidates), self.beams)]

    def room(self, smiles: str) -> int:
        """Most tokens that the model's positions leave for a route of this target; in a batch, the longest target's count."""
        return self._room(len(self._beginning(smiles)))

    def _room(self, length: int) -> int:
        return self.model.config.max_target_positions + 1 - length  # the last token is written and never read

    def _scores(self, output: Any, length: int) -> torch.Tensor:
        """Log-probability of each sequence after its forced beginning."""
        if getattr(output, "sequences_scores", None) is not None:
            return output.sequences_scores
        # the model's own logits: what the grammar rules out is not to make the rest likelier
        steps = self.model.compute_transition_scores(output.sequences, output.logits, normalize_logits=True)
        # what stands behind the end is padding
        ended = (output.sequences[:, length:] == self.tokenizer.eos_token_id).cumsum(dim=1)
        after = torch.nn.functional.pad(ended[:, :-1], (1, 0)).bool()
        return steps.masked_fill(after, 0.0).sum(dim=1)

    def _beginning(self, smiles: str) -> list[int]:
        """What every route of this target begins with: forced, so that the search spends itself on the reactants."""
        whole = Route(smiles, (Route("C"),)).to_string()
        text = whole[: whole.rindex("C'")]
        return [self.tokenizer.bos_token_id, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def _read(self, ids: list[int]) -> str:
        """Ids to text: without pads and start in front, up to the end."""
        while ids and ids[0] in (self.tokenizer.pad_token_id, self.tokenizer.bos_token_id):
            ids = ids[1:]
        if self.tokenizer.eos_token_id in ids:
            ids = ids[: ids.index(self.tokenizer.eos_token_id)]
        return "".join(self.tokenizer.convert_ids_to_tokens(ids))

    @staticmethod
    def _candidate(text: str, score: float, n_steps: int | None) -> Candidate:
        try:
            return Candidate(text, score, n_steps, route=canonical_route(Route.from_string(text)))
        except ValueError as error:
            return Candidate(text, score, n_steps, problem=str(error))


def _pad(rows: list[list[int]], value: int, side: str) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value, padding_side=side)

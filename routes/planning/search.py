"""One search for routes: encode targets, force the beginning of their routes, read what comes out as data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessor

from ...modeling.decoding import ContinuousSearch, Found, reason_against
from ...tokenization import encode_source
from ..molecules import canonical_route
from ..plans import NOTHING_FOUND, Candidate
from ..tree import Route
from .constraints import GIVEN_UP, NO_CONSTRAINTS, ConstrainedGrammar, Constraints
from .grammar import RouteGrammar

if TYPE_CHECKING:
    from ..stock import Stock

# How beams are searched and scored: settings of `generate`. A length_penalty of 0 ranks by the whole log-probability: any
# division by the length would prefer longer routes.
RANKINGS: dict[str, dict[str, Any]] = {
    "log_probability": {"length_penalty": 0.0},
    "sqrt_length": {"custom_generate": "sqrt_length"},
}


# A ranking may divide a score by the root of the length, some ten at most: no text of a model is as improbable as this.
_LOST = GIVEN_UP / 100


class Deadline(LogitsProcessor):
    """Ends a search at a time: texts that have ended stay what they are, and all others are given up.

    transformers' `MaxTimeCriteria` would take the texts that have not ended for finished ones. They are shorter, and so more
    probable than the routes, and would put them out of their places. Here each of them ends with [`GIVEN_UP`] added to its
    score, so that all that has ended before is above it. One that is whole, and lacks only its end token, gets it as ever.

    Args:
        at: when, by `time.monotonic()`.
        end: the end token.
        has_grammar: whether the end token is let through behind a whole route only.

    Attributes:
        is_over: whether a search was ended.
    """

    def __init__(self, at: float, end: int, has_grammar: bool):
        self.at, self.end, self.has_grammar = at, end, has_grammar
        self.is_over = False

    def keep_sources(self, sources: list[int], beams: int) -> None:
        """Sources may leave the batch: the time is the same for all."""

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self.at

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if not self.has_passed:
            return scores
        self.is_over = True
        found = torch.full_like(scores, float("-inf"))
        ends = scores[:, self.end]
        is_whole = ends.isfinite() & (ends > _LOST) if self.has_grammar else torch.zeros_like(ends, dtype=torch.bool)
        found[:, self.end] = ends.where(is_whole, torch.full_like(ends, GIVEN_UP))
        return cast(torch.FloatTensor, found)


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
        constraints: what else routes have to be; without the grammar there are none (default: [`Constraints`] as they are).
        stock: what can be bought, where the constraints ask for it.
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
        constraints: Constraints | None = None,
        stock: Stock | None = None,
        max_new_tokens: int | None = None,
        logits_processor: Sequence[Any] = (),
    ):
        if ranking not in RANKINGS:
            raise ValueError(f"ranking={ranking!r} is not allowed: choose one of {', '.join(RANKINGS)}.")
        for name, value in (("beams", beams), ("max_new_tokens", max_new_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give at least 1.")
        if not grammar and constraints is not None and constraints != NO_CONSTRAINTS:
            raise ValueError("Constraints need the grammar: leave `grammar=False` or the constraints out.")
        self.grammar: RouteGrammar | ConstrainedGrammar | None = None
        if grammar and constraints != NO_CONSTRAINTS:
            self.grammar = ConstrainedGrammar(tokenizer, [], constraints or Constraints(), stock)
        elif grammar:
            self.grammar = RouteGrammar(tokenizer, [])
        self.model, self.tokenizer = model, tokenizer
        self.beams, self.ranking, self.max_new_tokens = beams, ranking, max_new_tokens
        self.logits_processor = list(logits_processor)

    def deadline(self, seconds: float | None) -> Deadline | None:
        """A time to hand to searches, that many seconds from now."""
        if seconds is None:
            return None
        return Deadline(time.monotonic() + seconds, self.tokenizer.eos_token_id, self.grammar is not None)

    def __call__(self, jobs: list[Job], deadline: Deadline | None = None) -> list[list[Candidate]]:
        """The candidates of each job, best first; what was not finished when the deadline passed is none."""
        inputs, _ = self._inputs(jobs)
        length = inputs["decoder_input_ids"].shape[1]
        most = self._most(length)
        grammar = [] if self.grammar is None else [self.grammar.begin([job.n_steps for job in jobs])]
        output = self.model.generate(
            **inputs,
            **self._settings,
            do_sample=False,
            max_new_tokens=most,
            max_length=None,
            return_dict_in_generate=True,
            output_scores=self.beams > 1,
            output_logits=self.beams == 1,  # of beams there is a score
            only_sequences=self.beams > 1,
            logits_processor=[*self.logits_processor, *grammar, *([] if deadline is None else [deadline])],
        )
        sequences, scores = output.sequences.tolist(), self._scores(output, length).tolist()
        is_over = deadline is not None and deadline.is_over
        found = []
        for index, job in enumerate(jobs):
            chosen = slice(index * self.beams, (index + 1) * self.beams)
            texts = [self._read(row) for row in sequences[chosen]]
            found.append(self._candidates(job, index, list(zip(texts, scores[chosen], strict=True)), most, is_over))
        return found

    @property
    def _settings(self) -> dict[str, Any]:
        """Settings of `generate` for the search."""
        ranking = {} if self.beams == 1 and self.ranking == "log_probability" else RANKINGS[self.ranking]
        return ranking | {"num_beams": self.beams, "num_return_sequences": self.beams}

    def _inputs(self, jobs: list[Job]) -> tuple[dict[str, torch.Tensor], list[list[int]]]:
        """Inputs of `generate`, and the forced beginning of each route."""
        tokenizer, device = self.tokenizer, self.model.device
        sources = [encode_source(tokenizer, job.smiles, job.starting_material) for job in jobs]
        starts = [self._beginning(job.smiles) for job in jobs]
        inputs = {
            "input_ids": _pad(sources, tokenizer.pad_token_id, side="right").to(device),
            "decoder_input_ids": _pad(starts, tokenizer.pad_token_id, side="left").to(device),
            "decoder_attention_mask": _pad([[1] * len(start) for start in starts], 0, side="left").to(device),
        }
        if self.model.config.num_condition_features:
            inputs["condition_values"] = torch.tensor([[float(job.n_steps or 0)] for job in jobs], device=device)
        return inputs, starts

    def _most(self, length: int) -> int:
        """Tokens that are written at most behind a beginning of this length."""
        room = self._room(length)
        return room if self.max_new_tokens is None else min(self.max_new_tokens, room)

    def _candidates(
        self, job: Job, number: int, found: list[tuple[tuple[str, bool], float]], most: int, is_over: bool
    ) -> list[Candidate]:
        """The candidates of a job.

        Args:
            job: the job.
            number: its number in the grammar.
            found: its texts, whether each has ended, and their scores.
            most: the tokens that it could write.
            is_over: whether the time ended the search.
        """
        candidates = [self._candidate(*one, job.n_steps, None if is_over else most) for one in found]
        kept = [candidate for candidate in candidates if candidate is not None]
        if isinstance(self.grammar, ConstrainedGrammar) and self.grammar.refusals[number]:
            kept = _with_reason(kept, self.grammar.why_nothing(number))
        return kept or [self._nothing(job, "the time was up" if is_over else self._why_nothing(number))]

    def running(self) -> RunningRoutes | None:
        """A search that jobs join and leave, or None where only one batch after the other is possible.

        There may be one at a time, and no other search meanwhile.
        """
        if self.ranking != "log_probability" or any(getattr(one, "reads_rows", True) for one in self.logits_processor):
            return None
        return None if reason_against(self.model, **self._settings) else RunningRoutes(self)

    def out_of_time(self, jobs: Sequence[Job]) -> list[list[Candidate]]:
        """What the searches give that are not begun, because the time is up."""
        return [[self._nothing(job, "the time was up")] for job in jobs]

    def _nothing(self, job: Job, why: str) -> Candidate:
        return Candidate("", float("-inf"), job.n_steps, problem=NOTHING_FOUND + why)

    def _why_nothing(self, index: int) -> str:
        if isinstance(self.grammar, ConstrainedGrammar):
            return self.grammar.why_nothing(index)
        return "no text came to its end"

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

    def _read(self, ids: list[int]) -> tuple[str, bool]:
        """Ids to text, without pads and start in front, up to the end; and whether it has ended."""
        while ids and ids[0] in (self.tokenizer.pad_token_id, self.tokenizer.bos_token_id):
            ids = ids[1:]
        has_ended = self.tokenizer.eos_token_id in ids
        if has_ended:
            ids = ids[: ids.index(self.tokenizer.eos_token_id)]
        return "".join(self.tokenizer.convert_ids_to_tokens(ids)), has_ended

    def _candidate(
        self, read: tuple[str, bool], score: float, n_steps: int | None, most: int | None
    ) -> Candidate | None:
        """What a beam found; None for one that was given up, and for a place that no beam took.

        `most` are the tokens that it could write, None where the time ended it.
        """
        text, has_ended = read
        if most is None and score < _LOST:
            return None
        try:
            return Candidate(text, score, n_steps, route=canonical_route(Route.from_string(text)))
        except ValueError as error:
            if most is None or (isinstance(self.grammar, ConstrainedGrammar) and (has_ended or score < _LOST)):
                return None
            problem = str(error) if has_ended else f"the text was not finished within {most} tokens"
            return Candidate(text, score, n_steps, problem=problem)


class RunningRoutes:
    """A search for routes that jobs join and leave between steps. Each gets what it gets alone.

    Args:
        search: how routes are searched.
    """

    def __init__(self, search: RouteSearch):
        self.search, self.grammar = search, search.grammar
        followers = [] if self.grammar is None else [self.grammar.begin([])]
        self._continuous = ContinuousSearch(search.model, followers=followers, **search._settings)
        # of each ticket: the job, its number in the grammar, its beginning, its most tokens and its time
        self._jobs: dict[int, tuple[Job, int, list[int], int, Deadline | None]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._jobs

    def add(
        self, jobs: list[Job], deadlines: Sequence[Deadline | None], most: Sequence[int | None] | None = None
    ) -> list[int]:
        """Let jobs join, and return a ticket for each.

        Args:
            jobs: what is searched.
            deadlines: when the search for each ends.
            most: the largest number of tokens of each (default: that of the search).
        """
        inputs, starts = self.search._inputs(jobs)
        own = [None] * len(jobs) if most is None else most
        limits = [min(self.search._most(len(start)), one or 1 << 30) for start, one in zip(starts, own, strict=True)]
        if min(limits) < 1:
            raise ValueError(f"The model has no room for a route to {jobs[limits.index(min(limits))].smiles!r}.")
        tickets = self._continuous.add(inputs, limits, deadlines)
        numbers = [0] * len(jobs)
        if isinstance(self.grammar, ConstrainedGrammar):
            numbers = self.grammar.join([job.n_steps for job in jobs])
        elif self.grammar is not None:
            self.grammar.join([job.n_steps for job in jobs])
        self._jobs |= dict(zip(tickets, zip(jobs, numbers, starts, limits, deadlines, strict=True), strict=True))
        return tickets

    def step(self) -> list[tuple[int, list[Candidate]]]:
        """Write a token of each text. Return the tickets of the jobs that are done, and their candidates."""
        for processor in self.search.logits_processor:
            processor(None, None)
        return [(found.ticket, self._read(found)) for found in self._continuous.step()]

    def remove(self, tickets: Sequence[int]) -> None:
        """Let jobs leave that nobody wants any more."""
        self._continuous.remove(tickets)
        for ticket in tickets:
            self._forget(self._jobs.pop(ticket)[1])

    def _forget(self, number: int) -> None:
        if isinstance(self.grammar, ConstrainedGrammar):
            self.grammar.refusals.pop(number)

    def _read(self, found: Found) -> list[Candidate]:
        search = self.search
        job, number, start, most, deadline = self._jobs.pop(found.ticket)
        texts = [search._read([*start, *ids]) for ids in found.sequences]
        is_over = deadline is not None and deadline.is_over
        candidates = search._candidates(job, number, list(zip(texts, found.scores, strict=True)), most, is_over)
        self._forget(number)
        return candidates


def _with_reason(candidates: list[Candidate], why: str) -> list[Candidate]:
    """Candidates none of which is a route, each told why the rules let nothing better through; others as they are."""
    if any(candidate.route is not None for candidate in candidates):
        return candidates
    return [replace(candidate, problem=f"{candidate.problem}; {why}") for candidate in candidates]


def _pad(rows: list[list[int]], value: int, side: str) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value, padding_side=side)

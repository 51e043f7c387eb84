"""Searches for routes: encode targets, force the beginning of their routes, and read the output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessor

from ..chemistry.molecules import canonical_route
from ..family import BatchSearch, ContinuousSearch, encode_checked, encode_source, is_continuous
from ..judging import Library
from ..plans import TIME_IS_OVER, Candidate, nothing_found
from ..stock.stock import Stock
from ..tree import Route
from .constraints import GIVEN_UP, ConstrainedGrammar
from .retro_star import Proposal
from .settings import RANKINGS, PlanSettings

# A ranking may divide a score by the root of the length, some tens at most. No text of a model is that improbable.
_LOST = GIVEN_UP / 100


class Deadline(LogitsProcessor):
    """Ends a search at a given time. Finished texts stay as they are, and all others are given up.

    transformers' `MaxTimeCriteria` would treat unfinished texts as finished ones. They are shorter than the routes, so
    they are more probable and would displace them. Here each of them ends with [`GIVEN_UP`] added to its score, below
    everything that has ended before. A text that lacks only its end token gets it.

    Args:
        at: the time, by `time.monotonic()`.
        end: the end token.
        has_grammar: whether the end token is allowed after a whole route only.

    Attributes:
        is_over: whether it has ended a search.
    """

    def __init__(self, at: float, end: int, has_grammar: bool):
        self.at, self.end, self.has_grammar = at, end, has_grammar
        self.is_over = False

    def select_sources(self, sources: list[int], beams: int) -> None:
        """Do nothing. Sources may leave the batch, and the time is the same for all."""

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self.at

    def ends(self) -> bool:
        """Return whether the time is up before a search has begun. If so, the search counts as ended."""
        self.is_over = self.is_over or self.has_passed
        return self.is_over

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if not self.has_passed:
            return scores
        self.is_over = True
        mask = torch.full_like(scores, float("-inf"))
        ends = scores[:, self.end]
        is_whole = ends.isfinite() & (ends > _LOST) if self.has_grammar else torch.zeros_like(ends, dtype=torch.bool)
        mask[:, self.end] = ends.where(is_whole, torch.full_like(ends, GIVEN_UP))
        return cast(torch.FloatTensor, mask)


@dataclass(frozen=True)
class Job:
    """A search of the model.

    Args:
        smiles: the target, as given to the model.
        n_steps: the longest path of its routes in reactions, as given to the model.
        starting_material: a molecule to begin from, as given to the model.
        max_new_tokens: the largest number of tokens of a text, or None for as many as the model has positions.
        deadline: ends the search. Searches may share it.
    """

    smiles: str
    n_steps: int | None = None
    starting_material: str | None = None
    max_new_tokens: int | None = None
    deadline: Deadline | None = None


@dataclass
class Shared:
    """What the targets of a pool share.

    Args:
        search: the search of the model.
        stock: the purchasable molecules.
        library: the recorded transformations.
        expanded: the reactions of molecules that the model has searched. It grows.
    """

    search: RouteSearch
    stock: Stock | None
    library: Library
    expanded: dict[str, Sequence[Proposal]] = field(default_factory=dict)


def step_job(model: Any, smiles: str, max_new_tokens: int | None = None) -> Job:
    """Return the search for single reactions to a molecule."""
    return Job(smiles, 1 if model.config.num_condition_features else None, max_new_tokens=max_new_tokens)


def beginning(tokenizer: Any, smiles: str) -> list[int]:
    """Return the forced tokens that every route to this target begins with. The search is about the reactants only."""
    whole = Route(smiles, (Route("C"),)).to_string()
    text = whole[: whole.rindex("C'")]
    return [tokenizer.bos_token_id, *encode_checked(tokenizer, text, add_special_tokens=False)]


class RouteSearch:
    """Searches for the candidates of jobs, which join and leave between steps. Each job gets the same as alone.

    If the model or the ranking does not allow that, a step searches for a batch of jobs from beginning to end (see
    [`BatchSearch`]).

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
        settings: the settings of the search: beams, ranking, grammar and constraints.
        stock: the purchasable molecules, if the constraints need them.
        watch: a function that is called before each token. An exception in it ends the search.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        settings: PlanSettings,
        stock: Stock | None = None,
        watch: Callable[[], None] | None = None,
    ):
        self.model, self.tokenizer, self.watch = model, tokenizer, watch
        self.beams, self.ranking, self.has_rules = settings.beams, settings.ranking, not settings.rules.is_empty
        self.grammar = ConstrainedGrammar(tokenizer, [], settings.rules, stock) if settings.grammar else None
        # with a single beam, the log-probability is the score, whatever the length
        ranking = {} if self.beams == 1 and self.ranking == "log_probability" else RANKINGS[self.ranking]
        options = ranking | {"num_beams": self.beams, "num_return_sequences": self.beams}
        self.is_continuous = is_continuous(model, **options)  # whether jobs join and leave between steps
        self._search: ContinuousSearch | BatchSearch
        if self.is_continuous:
            self._search = ContinuousSearch(model, processors=[self.grammar] if self.grammar else [], **options)
        else:
            self._search = BatchSearch(model, processors=self._processors, watch=watch, **options)
        self._jobs: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def _processors(self, tickets: list[int]) -> list[ConstrainedGrammar]:
        """Return the grammar for a batch of jobs."""
        return [] if self.grammar is None else [self.grammar.begin([self._jobs[ticket].n_steps for ticket in tickets])]

    def deadline(self, seconds: float | None) -> Deadline | None:
        """Return a deadline this many seconds from now."""
        if seconds is None:
            return None
        return Deadline(time.monotonic() + seconds, self.tokenizer.eos_token_id, self.grammar is not None)

    def add(self, jobs: Sequence[Job]) -> list[int]:
        """Let jobs join, and return a ticket for each."""
        capacities = [self._most(len(beginning(self.tokenizer, job.smiles))) for job in jobs]
        jobs = [
            replace(job, max_new_tokens=job.max_new_tokens and min(job.max_new_tokens, capacity))
            for job, capacity in zip(jobs, capacities, strict=True)
        ]
        limits: list[Any] = [job.max_new_tokens for job in jobs]
        if self.is_continuous:
            limits = [limit or capacity for limit, capacity in zip(limits, capacities, strict=True)]
        tickets = self._search.add(self._inputs(jobs), limits, [job.deadline for job in jobs])
        if self.is_continuous and self.grammar is not None:
            self.grammar.join([job.n_steps for job in jobs])
        self._jobs |= zip(tickets, jobs, strict=True)
        return tickets

    def remove(self, tickets: Sequence[int]) -> None:
        """Remove jobs whose results are no longer needed."""
        self._search.remove(tickets)
        for ticket in tickets:
            del self._jobs[ticket]

    def step(self) -> list[tuple[int, list[Candidate]]]:
        """Write a token of each text. Return the tickets of the jobs that are done, and their candidates, best
        first.
        """
        if self.watch is not None:
            self.watch()
        results = []
        for result in self._search.step():
            job = self._jobs.pop(result.ticket)
            start = beginning(self.tokenizer, job.smiles)
            texts = zip([self._read([*start, *ids]) for ids in result.sequences], result.scores, strict=True)
            results.append((result.ticket, self._candidates(job, texts, self._most(len(start)))))
        return results

    def _inputs(self, jobs: Sequence[Job]) -> dict[str, torch.Tensor]:
        """Return the inputs of `generate`, with the forced beginning of each route."""
        tokenizer, device = self.tokenizer, self.model.device
        room = self.model.config.max_source_positions
        sources = [encode_source(tokenizer, job.smiles, job.starting_material, source_length=room) for job in jobs]
        starts = [beginning(tokenizer, job.smiles) for job in jobs]
        inputs = {
            "input_ids": _pad(sources, tokenizer.pad_token_id, side="right").to(device),
            "decoder_input_ids": _pad(starts, tokenizer.pad_token_id, side="left").to(device),
            "decoder_attention_mask": _pad([[1] * len(start) for start in starts], 0, side="left").to(device),
        }
        if self.model.config.num_condition_features:
            inputs["condition_values"] = torch.tensor([[float(job.n_steps or 0)] for job in jobs], device=device)
        return inputs

    def _most(self, length: int) -> int:
        """Return how many tokens may follow a beginning of this length. The last one is written and never read."""
        return self.model.config.max_target_positions + 1 - length

    def _candidates(self, job: Job, texts: Iterable[tuple[tuple[str, bool], float]], most: int) -> list[Candidate]:
        """Return the candidates of a job.

        Args:
            job: the job.
            texts: each text, whether it has ended, and its score.
            most: the number of tokens that a text could have, unless the job has a limit of its own.
        """
        is_over = job.deadline is not None and job.deadline.is_over
        limit = None if is_over else job.max_new_tokens or most
        candidates = [self._candidate(*text, job.n_steps, limit) for text in texts]
        routes = [candidate for candidate in candidates if candidate is not None]
        why = "no text that keeps the rules was completed" if self.has_rules else "no text was completed"
        return routes or [nothing_found(TIME_IS_OVER if is_over else why, job.n_steps)]

    def _read(self, ids: list[int]) -> tuple[str, bool]:
        """Return ids as text, without leading pads and start, up to the end token, and whether the text has ended."""
        while ids and ids[0] in (self.tokenizer.pad_token_id, self.tokenizer.bos_token_id):
            ids = ids[1:]
        has_ended = self.tokenizer.eos_token_id in ids
        if has_ended:
            ids = ids[: ids.index(self.tokenizer.eos_token_id)]
        return "".join(self.tokenizer.convert_ids_to_tokens(ids)), has_ended

    def _candidate(
        self, read: tuple[str, bool], score: float, n_steps: int | None, most: int | None
    ) -> Candidate | None:
        """Return the candidate of a beam, or None if the beam was given up or never used.

        `most` is the number of tokens that it could write, None if the deadline ended it.
        """
        text, has_ended = read
        if most is None and score < _LOST:
            return None
        try:
            return Candidate(text, score, n_steps, route=canonical_route(Route.from_string(text)))
        except ValueError as error:
            if most is None or (self.has_rules and (has_ended or score < _LOST)):
                return None
            problem = str(error) if has_ended else f"the text was not finished within {most} tokens"
            return Candidate(text, score, n_steps, problem=problem)


def _pad(rows: list[list[int]], value: int, side: str) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value, padding_side=side)

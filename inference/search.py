"""The search of a pool: sources join and leave it between steps, or else are searched in whole batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch

from ..common.watching import Watch
from ..modeling.decoding import Found, reason_against
from ..modeling.losses import text_scores, token_scores


def is_continuous(model: Any, **settings: Any) -> bool:
    """Return whether a [`ContinuousSearch`] can run a model with these settings of `generate`."""
    return "custom_generate" not in settings and reason_against(model, **settings) is None


class BatchSearch:
    """Takes the place of a [`ContinuousSearch`] for other models and settings: a step searches for a whole batch.

    Args:
        model: a `WeftForConditionalGeneration`.
        processors: returns the logits processors for a batch of sources with these tickets.
        watch: called before each token; an exception in it ends the batch.
        has_scores: whether the results have scores.
        settings: settings of `generate`, such as `num_beams`.
    """

    def __init__(
        self,
        model: Any,
        *,
        processors: Callable[[list[int]], Sequence[Any]] = lambda tickets: (),
        watch: Callable[[], None] | None = None,
        has_scores: bool = True,
        **settings: Any,
    ):
        self.model, self.processors, self.settings, self.has_scores = model, processors, settings, has_scores
        self.watch = [] if watch is None else [Watch(watch)]
        self._numbers = count()
        self._tickets: dict[int, None] = {}
        # the tickets and inputs of sources with the same largest number of tokens and the same watch
        self._batches: deque[tuple[list[int], dict[str, torch.Tensor], tuple[int | None, Any]]] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def add(
        self,
        inputs: dict[str, torch.Tensor],
        max_new_tokens: Sequence[int | None],
        watches: Sequence[Any] | None = None,
    ) -> list[int]:
        """Add sources, as in [`ContinuousSearch.add`].

        The watches are logits processors here. Without a largest number of new tokens, sources may have as many as the
        model has positions, and those of any length share a batch.
        """
        tickets = [next(self._numbers) for _ in max_new_tokens]
        limits = list(zip(max_new_tokens, watches or [None] * len(tickets), strict=True))
        for limit in dict.fromkeys(limits):
            rows = [row for row, row_limit in enumerate(limits) if row_limit == limit]
            batch = {name: value[rows] for name, value in inputs.items()}
            self._batches.append(([tickets[row] for row in rows], batch, limit))
        self._tickets |= dict.fromkeys(tickets)
        return tickets

    def remove(self, tickets: Sequence[int]) -> None:
        """Remove sources whose results nobody needs any more."""
        for ticket in tickets:
            del self._tickets[ticket]

    def step(self) -> list[Found]:
        """Search for the sources of the oldest batch, and return their results."""
        if not self._tickets:
            return []
        tickets, inputs, (max_new_tokens, watch) = self._batches.popleft()
        rows = [row for row, ticket in enumerate(tickets) if ticket in self._tickets]
        if not rows:
            return self.step()
        tickets, beams = [tickets[row] for row in rows], self.settings["num_beams"]
        inputs = {name: value[rows] for name, value in inputs.items()}
        length = inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in inputs else 1
        if max_new_tokens is None:  # the last token is written and never read
            max_new_tokens = self.model.config.max_target_positions + 1 - length
        output = self.model.generate(
            **inputs, **self.settings, do_sample=False, max_new_tokens=max_new_tokens, max_length=None,
            return_dict_in_generate=self.has_scores, only_sequences=beams > 1,
            output_scores=self.has_scores and beams > 1,
            output_logits=self.has_scores and beams == 1,  # several beams have scores
            logits_processor=[*self.watch, *self.processors(tickets), *([] if watch is None else [watch])],
        )  # fmt: skip
        self.remove(tickets)
        sequences = output.sequences if self.has_scores else output
        ids = sequences.view(len(tickets), -1, sequences.shape[1])
        scores = self._scores(output, length).view(ids.shape[:2]) if self.has_scores else torch.zeros(ids.shape[:2])
        return [
            Found(ticket, texts[0, :length].tolist(), texts[:, length:].tolist(), row_scores.tolist())
            for ticket, texts, row_scores in zip(tickets, ids, scores, strict=True)
        ]

    def _scores(self, output: Any, length: int) -> torch.Tensor:
        """Return the score of each sequence after its prompt."""
        if getattr(output, "sequences_scores", None) is not None:
            return output.sequences_scores
        # the model's own logits, because the rest does not become likelier when processors rule tokens out
        ids, ends = output.sequences[:, length:], self.model.generation_config.eos_token_id
        return text_scores(token_scores(torch.stack(output.logits, dim=1), ids), ids, ends)

"""Which sources leave a running search: those that are done, where nobody would notice.

The rows of a source that is done are computed for nothing. When it leaves, the last source takes its place, so the keys and
values of one source at most are copied. What is returned is the same. But whoever sees the rows from outside would see others: so none
leaves where the request returns what belongs to rows (scores and logits of each step, the cache), or has a processor or
stopping criterion that may know rows by their numbers.
"""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation import (
    EosTokenCriteria,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    MaxLengthCriteria,
    MaxTimeCriteria,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    StopStringCriteria,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

# Processors and criteria of transformers that look at each row by itself, whatever its number.
_ROW_BY_ROW = frozenset(
    [
        EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria, StopStringCriteria,
        ExponentialDecayLengthPenalty, ForcedBOSTokenLogitsProcessor, ForcedEOSTokenLogitsProcessor,
        InfNanRemoveLogitsProcessor, MinLengthLogitsProcessor, MinNewTokensLengthLogitsProcessor,
        NoBadWordsLogitsProcessor, NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor,
        SequenceBiasLogitsProcessor, SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor,
    ]
)  # fmt: skip


def only_sequences(settings: GenerationConfig) -> bool:
    """Return whether a request wants only sequences and their scores, as `generate(only_sequences=True)` says."""
    return getattr(settings, "only_sequences", False)


def follows(one: Any) -> bool:
    """Return whether a processor or a criterion gives each row the same when others have left.

    It does if it is one of transformers' own that reads single rows, or if it has a method `keep_sources(sources, beams)`.
    The search then calls this method: from now on its source number i is what was its source number `sources[i]`, with
    `beams` rows each.
    """
    # a penalty that ignores pads on the left knows their number for each row of the beginning
    has_numbers_of_rows = isinstance(getattr(one, "prompt_ignore_length", None), torch.Tensor)
    return (type(one) in _ROW_BY_ROW and not has_numbers_of_rows) or hasattr(one, "keep_sources")


def may_leave(settings: GenerationConfig, stepper: Any, observers: Iterable[Any]) -> bool:
    """Return whether sources may leave this request before its end.

    Args:
        settings: the settings of the request.
        stepper: what runs the decoder.
        observers: processors and stopping criteria.
    """
    returns_rows = settings.return_dict_in_generate and not only_sequences(settings)
    # sampling draws for all rows together
    return not returns_rows and not settings.do_sample and stepper.can_keep_sources and all(map(follows, observers))


def places(done: list[bool]) -> list[int] | None:
    """Return the source that takes each place when those that are done leave, or None if none does or all do.

    A source behind takes the place of one that leaves. All others stay where they are.
    """
    left = len(done) - sum(done)
    if left in (0, len(done)):
        return None
    behind = (source for source in range(left, len(done)) if not done[source])
    return [next(behind) if done[source] else source for source in range(left)]


def move(states: torch.Tensor, dim: int, sources: list[int], rows: int = 1) -> torch.Tensor:
    """Return the states of some sources, of `rows` rows each: a view, in which those that change their place were copied."""
    states_by_row = states.movedim(dim, 0)
    for place, source in enumerate(sources):
        if place != source:
            states_by_row[place * rows : (place + 1) * rows] = states_by_row[source * rows : (source + 1) * rows]
    return states.narrow(dim, 0, len(sources) * rows)


def rows_of(sources: list[int], rows: int) -> list[int]:
    """Return the numbers of the rows of some sources."""
    return [source * rows + row for source in sources for row in range(rows)]


def renumbered(rows_W: torch.Tensor, sources: list[int], beams: int) -> torch.Tensor:
    """Return the entries for the rows of some sources. Each is the number of a row of the same source, its new one."""
    origins = torch.tensor(sources, device=rows_W.device)
    shifts = torch.arange(len(sources), device=rows_W.device) - origins
    return (rows_W.view(-1, beams)[origins] + shifts[:, None] * beams).flatten()

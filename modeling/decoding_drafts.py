"""Guesses of the tokens that follow a text, which the fast path of decoding verifies several at a time.

A guess costs little and may be wrong: `decoding_ahead.py` uses only the model's own logits. A new source of guesses is
one more subclass of `DraftSource`.

Texts are strings with one character for each token, `chr(id)`, because Python searches strings fast.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from transformers import LogitsProcessorList, PrefixConstrainedLogitsProcessor


def as_text(ids: Iterable[int]) -> str:
    """Return ids as a string with one character for each."""
    return "".join(map(chr, ids))


class DraftSource(ABC):
    """Guesses what follows a text."""

    @abstractmethod
    def draft(self, source: int, text: str, most: int) -> str:
        """Return a guess of the next tokens of a text, at most `most`, or "" for none.

        Args:
            source: the index of the text's source in the batch.
            text: the tokens so far, with those of the prefix.
            most: the largest number of tokens, at least 1.
        """


class Lookup(DraftSource):
    """Continues the last tokens as the same tokens were continued before.

    It looks for the longest run of last tokens, first in the text itself, nearest to its end, and then in the source.

    Args:
        sources: the tokens of each source, None where the source has another vocabulary.
        longest: the largest number of last tokens that are compared.
    """

    def __init__(self, sources: Sequence[str] | None, longest: int):
        self.sources, self.longest = sources, longest

    def draft(self, source: int, text: str, most: int) -> str:
        read = "" if self.sources is None else self.sources[source]
        for length in range(min(self.longest, len(text) - 1), 0, -1):
            last = text[-length:]
            for place, where in ((text.rfind(last, 0, len(text) - 1), text), (read.find(last), read)):
                if place >= 0 and (found := where[place + length : place + length + most]):
                    return found
        return ""


class Forced(DraftSource):
    """Continues a text while only one token is allowed.

    Args:
        allowed: returns the tokens that are allowed after a text of a source.
    """

    def __init__(self, allowed: Callable[[int, Sequence[int]], Sequence[int]]):
        self.allowed = allowed

    def draft(self, source: int, text: str, most: int) -> str:
        found = ""
        while len(found) < most and len(only := self.allowed(source, [ord(one) for one in text + found])) == 1:
            found += chr(only[0])
        return found


class InTurn(DraftSource):
    """Asks several sources in turn, and goes on after what one of them has guessed.

    Args:
        parts: the sources, the surest first.
    """

    def __init__(self, parts: Sequence[DraftSource]):
        self.parts = parts

    def draft(self, source: int, text: str, most: int) -> str:
        found = ""
        while len(found) < most:
            guesses = (part.draft(source, text + found, most - len(found)) for part in self.parts)
            if not (guess := next((guess for guess in guesses if guess), "")):
                break
            found += guess
        return found


def forced_by(processors: LogitsProcessorList) -> list[DraftSource]:
    """Return a source for each processor that may allow a single token.

    These are the function `prefix_allowed_tokens_fn` of `generate`, and processors with a method `forced_tokens(source,
    ids, most)`.
    """
    found: list[DraftSource] = []
    for processor in processors:
        if type(processor) is PrefixConstrainedLogitsProcessor:
            found.append(Forced(_on_lists(processor._prefix_allowed_tokens_fn)))
        elif hasattr(processor, "forced_tokens"):
            found.append(_ForcedByProcessor(processor))
    return found


def _on_lists(function: Callable[[int, torch.Tensor], Sequence[int]]) -> Callable[[int, Sequence[int]], Sequence[int]]:
    return lambda source, ids: function(source, torch.tensor(ids))


class _ForcedByProcessor(DraftSource):
    def __init__(self, processor: Any):
        self.processor = processor

    def draft(self, source: int, text: str, most: int) -> str:
        return as_text(self.processor.forced_tokens(source, [ord(one) for one in text], most))

"""The grammar of routes: which tokens can continue a route's text.

The grammar is the one in `tree.py`. The parser needs no stack, because every open molecule is inside the same kind of
list. So a state consists of a place in the grammar and a depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..tree import MAX_DEPTH, SMILES_CHARACTERS

_OPEN, _CHILDREN = "{'smiles':'", "'children':["


class State(NamedTuple):
    """The state of a text in the grammar.

    Args:
        place: the part of the grammar that continues after `literal`.
        literal: the characters that must follow first.
        depth: the number of open children lists.
        empty: whether a SMILES has begun but has no character yet.
    """

    place: str
    literal: str
    depth: int
    empty: bool = False


START = State("smiles", _OPEN, 0, empty=True)


def advance(state: State | None, character: str, limit: int = MAX_DEPTH) -> State | None:
    """Return the state after one more character, or None if no route continues with it.

    Args:
        state: the state before the character. None stays None.
        character: the character.
        limit: the largest number of open children lists, which is the number of reactions on the longest path.
    """
    if state is None:
        return None
    place, literal, depth, empty = state
    if literal:
        return State(place, literal[1:], depth, empty) if character == literal[0] else None
    if place == "smiles":
        if character == "'":
            return None if empty else State("molecule", "", depth)
        if character not in SMILES_CHARACTERS:
            return None
        return State("smiles", character if character == "\\" else "", depth)  # a backslash is written twice
    if place == "molecule":  # its SMILES is complete
        if character == "," and depth < limit:
            return State("smiles", _CHILDREN + _OPEN, depth + 1, empty=True)
        return State("child" if depth else "end", "", depth) if character == "}" else None
    if place == "child":  # a molecule of a list is complete
        if character == ",":
            return State("smiles", _OPEN, depth, empty=True)
        return State("child" if depth > 1 else "end", "}", depth - 1) if character == "]" else None
    return None  # the route is complete


def depth_limits(limits: Sequence[int | None]) -> list[int]:
    """Return the largest numbers of reactions on a path, each at most `MAX_DEPTH`. None stands for no other limit."""
    return [MAX_DEPTH if limit is None else min(limit, MAX_DEPTH) for limit in limits]


class RouteGrammar:
    """Determines which tokens can continue a route. The end token can follow a whole route only.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): the tokenizer of the routes. Start and pad tokens may come before a
            route.
    """

    def __init__(self, tokenizer: Any):
        self.end: int = tokenizer.eos_token_id
        self.skipped = {tokenizer.bos_token_id, tokenizer.pad_token_id}
        special = set(tokenizer.all_special_ids)
        words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.texts = [None if index in special else word for index, word in enumerate(words)]
        self.allowed, self.is_alive = cache(self._allowed), cache(self._is_alive)

    def after(self, state: State | None, token: int, limit: int) -> State | None:
        """Return the state after a token that is not special. The state of a text that has ended is None."""
        for character in self.texts[token] or "":
            state = advance(state, character, limit)
        return state

    def _allowed(self, state: State, limit: int) -> np.ndarray:
        """Return the mask to add to the scores of all tokens (V,): 0 or -inf."""
        may = [self._goes_on(state, token, limit) for token in range(len(self.texts))]
        may[self.end] = state.place == "end" and not state.literal
        return np.where(may, np.float32(0.0), np.float32("-inf"))

    def _goes_on(self, state: State, token: int, limit: int) -> bool:
        after = self.after(state, token, limit) if self.texts[token] else None
        return after is not None and self.is_alive(after, limit)

    def _is_alive(self, state: State, limit: int) -> bool:
        """Return whether tokens can complete the literal. A key is one token, and single letters cannot spell it."""
        return not state.literal or any(self._goes_on(state, token, limit) for token in range(len(self.texts)))

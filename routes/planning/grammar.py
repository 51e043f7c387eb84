"""Only well-formed routes: a logits processor that lets through the tokens that continue a route's text.

The grammar is that of `tree.py`. It needs no stack: every open molecule is inside the same kind of list, so that a state is
a place in the grammar and a depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from transformers import LogitsProcessor

from ..tree import MAX_DEPTH, SMILES_CHARACTERS

_OPEN, _CHILDREN = "{'smiles':'", "'children':["


class State(NamedTuple):
    """Where a text stands. `literal` has to follow; with none, `place` says what may.

    Args:
        depth: children lists that are open.
        empty: the SMILES that was begun has no character yet.
    """

    place: str
    literal: str
    depth: int
    empty: bool = False


START = State("smiles", _OPEN, 0, empty=True)


def advance(state: State | None, character: str, limit: int = MAX_DEPTH) -> State | None:
    """The state after one more character, None where no route goes on with it.

    Args:
        limit: children lists that may be open at a time, which is the longest path in reactions.
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
        return State("smiles", character if character == "\\" else "", depth)  # a backslash stands twice
    if place == "molecule":  # its SMILES is written
        if character == "," and depth < limit:
            return State("smiles", _CHILDREN + _OPEN, depth + 1, empty=True)
        return State("child" if depth else "end", "", depth) if character == "}" else None
    if place == "child":  # a molecule of a list is written
        if character == ",":
            return State("smiles", _OPEN, depth, empty=True)
        return State("child" if depth > 1 else "end", "}", depth - 1) if character == "]" else None
    return None  # the route is whole


def depth_limits(limits: Sequence[int | None]) -> list[int]:
    """Longest paths in reactions, no longer than what can be read back; None is for any."""
    return [MAX_DEPTH if limit is None else min(limit, MAX_DEPTH) for limit in limits]


class RouteGrammar(LogitsProcessor):
    """Rules out every token after which the text could not become a route, and the end before the route is whole.

    Args:
        tokenizer: its tokens are what routes are written in; start and pads may stand in front.
        limits: for each source the longest path in reactions, None for any.
    """

    def __init__(self, tokenizer: Any, limits: Sequence[int | None]):
        self.end: int = tokenizer.eos_token_id
        self.skipped = {tokenizer.bos_token_id, tokenizer.pad_token_id}
        special = set(tokenizer.all_special_ids)
        words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.texts = [None if index in special else word for index, word in enumerate(words)]
        # With tokens that open or close at most one list, states that differ in depth alone mostly allow the same.
        self.is_simple = all(text is None or (text.count("[") < 2 and text.count("]") < 2) for text in self.texts)
        self.allowed, self.is_alive = cache(self._allowed), cache(self._is_alive)
        self.begin(limits)

    def begin(self, limits: Sequence[int | None]) -> RouteGrammar:
        """Forget the last search: searches one after the other may share a grammar, and so what it knows of its states."""
        self.limits = depth_limits(limits)
        # The states of the rows of the step before, by what was written: beams change places from step to step.
        self.known: dict[bytes, State | None] = {}
        return self

    def after(self, state: State | None, token: int, limit: int) -> State | None:
        """The state after a token; that of a text that has ended is None."""
        text = None if token >= len(self.texts) else self.texts[token]
        if text is None:
            return state if token in self.skipped and state == START else None
        for character in text:
            state = advance(state, character, limit)
        return state

    def _allowed(self, state: State | None, limit: int) -> torch.Tensor:
        """What to add to the scores of all tokens: 0 or -inf. Behind the end of a text everything may stand."""
        if state is None:
            return torch.zeros(len(self.texts))
        may = [self._goes_on(state, token, limit) for token in range(len(self.texts))]
        may[self.end] = state.place == "end" and not state.literal
        return torch.tensor([0.0 if one else float("-inf") for one in may])

    def _goes_on(self, state: State | None, token: int, limit: int) -> bool:
        after = self.after(state, token, limit) if self.texts[token] else None
        return after is not None and self.is_alive(after, limit)

    def _is_alive(self, state: State, limit: int) -> bool:
        """Whether tokens can complete what has to follow: a key is one token, and its letters alone spell none."""
        return not state.literal or any(self._goes_on(state, token, limit) for token in range(len(self.texts)))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        ids = input_ids.cpu().contiguous()
        rows = ids.numpy()
        beams = max(1, len(rows) // len(self.limits))
        states: dict[bytes, State | None] = {}
        masks = []
        for index, row in enumerate(rows):
            limit = self.limits[index // beams]
            before, text = row[:-1].tobytes(), row.tobytes()
            if before in self.known:
                state = self.after(self.known[before], int(row[-1]), limit)
            else:  # the first step
                state = START
                for token in row.tolist():
                    state = self.after(state, token, limit)
            states[text] = state
            masks.append(self.allowed(*(alike(state, limit) if self.is_simple else (state, limit))))
        self.known = states
        mask = torch.stack(masks).to(device=scores.device, dtype=scores.dtype)
        if mask.shape[1] < scores.shape[1]:  # scores of ids that the tokenizer does not have
            mask = torch.nn.functional.pad(mask, (0, scores.shape[1] - mask.shape[1]), value=float("-inf"))
        return cast(torch.FloatTensor, scores + mask)


def alike(state: State | None, limit: int) -> tuple[State | None, int]:
    """A state and a limit of small depth that allow the same: whether a list is open, and whether another may be."""
    if state is None or limit <= 2:
        return state, limit
    return state._replace(depth=2 if state.depth >= limit else min(state.depth, 1)), 2

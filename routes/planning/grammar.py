"""A logits processor that allows only well-formed routes: it lets through the tokens that can continue a route's text.

The grammar is the one in `tree.py`. The parser needs no stack, because every open molecule is inside the same kind of
list. So a state consists of a place in the grammar and a depth.
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
    """
    The state of a text in the grammar.

    Args:
        place (`str`):
            The part of the grammar that continues after `literal`.
        literal (`str`):
            The characters that must follow first.
        depth (`int`):
            The number of open children lists.
        empty (`bool`, *optional*, defaults to `False`):
            Whether a SMILES has begun that has no character yet.
    """

    place: str
    literal: str
    depth: int
    empty: bool = False


START = State("smiles", _OPEN, 0, empty=True)


def advance(state: State | None, character: str, limit: int = MAX_DEPTH) -> State | None:
    """
    Return the state after one more character, or None if no route continues with it.

    Args:
        state (`State`, *optional*):
            The state before the character. None stays None.
        character (`str`):
            The character.
        limit (`int`, *optional*, defaults to 64):
            The largest number of open children lists, which is the number of reactions on the longest path.
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
    """Return the largest number of reactions on a path, at most `MAX_DEPTH`. None stands for no other limit."""
    return [MAX_DEPTH if limit is None else min(limit, MAX_DEPTH) for limit in limits]


class RouteGrammar(LogitsProcessor):
    """
    Forbids every token that cannot continue a route, and forbids the end token before the route is complete.

    Args:
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer of the routes. Start and pad tokens may come before a route.
        limits (`Sequence[int | None]`):
            For each source, the largest number of reactions on a path, or None for no limit.
    """

    def __init__(self, tokenizer: Any, limits: Sequence[int | None]):
        self.end: int = tokenizer.eos_token_id
        self.skipped = {tokenizer.bos_token_id, tokenizer.pad_token_id}
        special = set(tokenizer.all_special_ids)
        words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.texts = [None if index in special else word for index, word in enumerate(words)]
        # If each token opens or closes at most one list, most states that differ only in depth allow the same tokens.
        self.is_simple = all(text is None or (text.count("[") < 2 and text.count("]") < 2) for text in self.texts)
        self.allowed, self.is_alive = cache(self._allowed), cache(self._is_alive)
        self.begin(limits)

    def begin(self, limits: Sequence[int | None]) -> RouteGrammar:
        """Start a new search with these limits and forget the beams of the last one.

        Several searches in a row may share a grammar, so that they share its cache of allowed tokens.
        """
        self.limits = depth_limits(limits)
        # The states of the previous step by the tokens of the text, because beams change places from step to step.
        self.known: dict[bytes, State | None] = {}
        # the states of the rows of the last call of `follow`
        self.states: list[State | None] = []
        return self

    def keep_sources(self, sources: Sequence[int], beams: int) -> None:
        """Go on with some sources, in this order (see `modeling/decoding/search.py`)."""
        self.limits = [self.limits[source] for source in sources]

    def after(self, state: State | None, token: int, limit: int) -> State | None:
        """Return the state after a token. The state of a text that has ended is None."""
        text = None if token >= len(self.texts) else self.texts[token]
        if text is None:
            return state if token in self.skipped and state == START else None
        for character in text:
            state = advance(state, character, limit)
        return state

    def _allowed(self, state: State | None, limit: int) -> torch.Tensor:
        """Return what to add to the scores of all tokens: 0 or -inf. After a complete text, all tokens are allowed."""
        if state is None:
            return torch.zeros(len(self.texts))
        may = [self._goes_on(state, token, limit) for token in range(len(self.texts))]
        may[self.end] = state.place == "end" and not state.literal
        return torch.tensor([0.0 if one else float("-inf") for one in may])

    def _goes_on(self, state: State | None, token: int, limit: int) -> bool:
        after = self.after(state, token, limit) if self.texts[token] else None
        return after is not None and self.is_alive(after, limit)

    def _is_alive(self, state: State, limit: int) -> bool:
        """Return whether tokens can complete the literal. A key is one token, and single letters cannot spell it."""
        return not state.literal or any(self._goes_on(state, token, limit) for token in range(len(self.texts)))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        ids = input_ids.cpu().contiguous()
        rows = ids.numpy()
        beams = max(1, len(rows) // len(self.limits))
        states: dict[bytes, State | None] = {}
        for index, row in enumerate(rows):
            limit = self.limits[index // beams]
            before, text = row[:-1].tobytes(), row.tobytes()
            if before in self.known:
                states[text] = self.after(self.known[before], int(row[-1]), limit)
            else:  # the first step
                states[text] = self._state_of(row.tolist(), limit)
        self.known = states
        return self._masked([states[row.tobytes()] for row in rows], scores)

    def join(self, limits: Sequence[int | None]) -> None:
        """Let sources join a search that calls [`follow`] (see `ContinuousSearch`)."""
        self.limits = [*self.limits, *depth_limits(limits)]

    def follow(
        self, parents: list[int], tokens: list[int], prompts: dict[int, list[int]], scores: torch.Tensor
    ) -> torch.Tensor:
        """Do the same for rows that continue rows of the call before (see `ContinuousSearch`)."""
        beams = len(parents) // len(self.limits)
        limits = [self.limits[row // beams] for row in range(len(parents))]
        self.states = [
            self._state_of(prompts[row], limit) if parent < 0 else self.after(self.states[parent], token, limit)
            for row, (parent, token, limit) in enumerate(zip(parents, tokens, limits, strict=True))
        ]
        return self._masked(self.states, scores)

    def _state_of(self, ids: Sequence[int], limit: int) -> State | None:
        state: State | None = START
        for token in ids:
            state = self.after(state, token, limit)
        return state

    def _masked(self, states: list[State | None], scores: torch.Tensor) -> torch.FloatTensor:
        """Rule out the tokens that may not follow the state of each row."""
        beams = max(1, len(states) // len(self.limits))
        masks = []
        for index, state in enumerate(states):
            limit = self.limits[index // beams]
            masks.append(self.allowed(*(alike(state, limit) if self.is_simple else (state, limit))))
        mask = torch.stack(masks).to(device=scores.device, dtype=scores.dtype)
        if mask.shape[1] < scores.shape[1]:  # the model has scores for ids that are not in the tokenizer
            mask = torch.nn.functional.pad(mask, (0, scores.shape[1] - mask.shape[1]), value=float("-inf"))
        return cast(torch.FloatTensor, scores + mask)


def alike(state: State | None, limit: int) -> tuple[State | None, int]:
    """Return a state and a limit of small depth that allow the same tokens.

    They keep only whether a list is open, and whether another may be opened.
    """
    if state is None or limit <= 2:
        return state, limit
    return state._replace(depth=2 if state.depth >= limit else min(state.depth, 1)), 2

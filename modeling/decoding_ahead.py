"""Decodes ahead of a search: one call of the model verifies drafted tokens of all beams, and the search then takes several
steps without another call.

The searches do not change. After each of their steps they ask for the logits after the token that each beam was given.
`AheadStepper` has them if this token was drafted, and calls the model for those that it has not. So the result is the
same whatever is drafted, and a wrong draft costs only time.

What is known ahead of a beam is a tree of tokens. Each call adds the tokens that the search is likely to take next: a
search for the best beams goes through the trees, with the logits where they are known, and with drafts where they are not.
"""

import itertools
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from .decoding_cache import FastPathRequest
from .decoding_drafts import DraftSource, InTurn, Lookup, as_text, forced_by
from .decoding_pace import Pace
from .decoding_stepper import Stepper
from .decoding_wide import Pool, Tokens, WideStep

# What a drafted token adds to the log-probability of a beam while its logits are unknown.
_DOUBT = -0.2
# The number of likely next tokens that are kept for each token.
_BRANCHES = 8
# The number of rows whose guesses are compared with what is written while nothing is drafted.
_WATCHED = 4


class Node:
    """A token that a beam may take, or has taken.

    Args:
        token: its id.
        position: its position.
        parent: the token before it, None for the last token that a beam has taken.
        guess: a draft of what follows it.
    """

    def __init__(self, token: int, position: int, parent: "Node | None" = None, guess: str = ""):
        self.token, self.position, self.parent, self.guess = token, position, parent, guess
        self.children: dict[int, Node] = {}
        self.logits: torch.Tensor | None = None  # None until the model was called
        self.likely: list[tuple[int, float]] = []  # the likeliest next tokens with their log-probabilities
        self.place = -1  # in the pool

    def path(self) -> "list[Node]":
        """Return the node and its ancestors."""
        found = [self]
        while (parent := found[-1].parent) is not None:
            found.append(parent)
        return found

    def known(self) -> "list[Node]":
        """Return the node and the tokens that may follow, as far as their logits are known."""
        found = [self] if self.logits is not None else []
        for node in found:
            found += [child for child in node.children.values() if child.logits is not None]
        return found


class AheadStepper(Stepper):
    """A `Stepper` that verifies drafts.

    Args:
        model, ids_WT, settings, model_kwargs: as in [`Stepper`].
        drafts: the source of the drafts.
        most: the largest number of tokens that are known ahead of a beam.
    """

    def __init__(
        self,
        model: Any,
        ids_WT: torch.Tensor,
        settings: GenerationConfig,
        model_kwargs: dict,
        drafts: DraftSource,
        most: int,
    ):
        super().__init__(model, ids_WT, settings, model_kwargs)
        self.drafts, self.max_length = drafts, settings.max_length
        target = self.decoding_cache.target
        self.beams = target.beams
        # rows that compete: the beams of a search; otherwise each row alone
        self.width = self.beams if (settings.num_beams or 1) > 1 else 1
        self.wide, self.pool = WideStep(self.step), Pool(target.suffixes)
        ends: torch.Tensor | None = settings._eos_token_tensor
        self.ends = frozenset(() if ends is None else map(chr, ends.tolist()))
        pad: torch.Tensor | None = settings._pad_token_tensor
        self.pad = 0 if pad is None else int(pad)
        self.prompt = ids_WT.shape[1]
        rows = len(ids_WT)
        self.texts: list[str] = []
        self.has_ended: list[bool] = []
        # the last token of each row, None while nothing is known ahead
        self.nodes: list[Node] | None = None
        self.pace = Pace(most, rows)
        # the best rows of some sources, each with the length of a text, and this text with a guess of what follows
        groups = range(0, rows, self.width)
        self.watched = dict.fromkeys(groups[:: -(-len(groups) // _WATCHED)], (0, ""))

    @property
    def can_keep_sources(self) -> bool:
        return super().can_keep_sources and not self.pace.may_draft  # guesses belong to the numbers of rows

    def keep_sources(self, sources: list[int]) -> None:
        super().keep_sources(sources)
        self.nodes = None

    def advance(
        self, ids_WT: torch.Tensor, rows_W: torch.Tensor | None = None, scores_W: torch.Tensor | None = None
    ) -> torch.Tensor:
        nodes = None if self.nodes is None else self._next_nodes(ids_WT, rows_W)
        if nodes is not None and all(node.logits is not None for node in nodes):
            self.pace.count_step()
            self._reorder(rows_W)
            return self._take(nodes, ids_WT)
        if self.pace.is_watching:
            self._watch(ids_WT)
        most = self.pace.choose()
        if nodes is None or all(node.logits is None for node in nodes):
            nodes = self._new_nodes(ids_WT) if most else None
        new_by_row = None if nodes is None else self._look_ahead(nodes, most, ids_WT, scores_W)
        if nodes is None or new_by_row is None:
            self.nodes = None
            return super().advance(ids_WT, rows_W)
        self.pace.count_call(sum(map(len, new_by_row)))
        self._reorder(rows_W)
        self._call(nodes, new_by_row)
        return self._take(nodes, ids_WT)

    def _watch(self, ids_WT: torch.Tensor) -> None:
        """Compare guesses with what was written, and guess anew where they ended."""
        for row, (length, expected) in self.watched.items():
            text = as_text(ids_WT[row].tolist())
            if len(text) < len(expected) and expected.startswith(text):
                continue
            if any(end in text[self.prompt :] for end in self.ends):
                continue
            if length:
                same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, expected, strict=False))
                self.pace.count_guess(max(0, sum(1 for _ in same) - length))
            guess = self.drafts.draft(row // self.beams, text, self.pace.most)
            self.watched[row] = len(text), text + guess

    def _next_nodes(self, ids_WT: torch.Tensor, rows_W: torch.Tensor | None) -> list[Node]:
        """Return the nodes of the tokens that the rows were given, new ones where they were not drafted."""
        assert self.nodes is not None
        before = self.nodes if rows_W is None else [self.nodes[row] for row in rows_W.tolist()]
        nodes = []
        for parent, token in zip(before, ids_WT[:, -1].tolist(), strict=True):
            nodes.append(parent.children.get(token) or Node(token, parent.position + 1))
            nodes[-1].parent = None
        return nodes

    def _new_nodes(self, ids_WT: torch.Tensor) -> list[Node]:
        length, rows = ids_WT.shape[1], len(ids_WT)
        positions = [length - 1] * rows if self.positions_W1 is None else self.positions_W1[:, 0].tolist()
        return [Node(token, position) for token, position in zip(ids_WT[:, -1].tolist(), positions, strict=True)]

    def _take(self, nodes: list[Node], ids_WT: torch.Tensor) -> torch.Tensor:
        """Move the keys and values of the last tokens from the pool to the cache, and return the logits after them."""
        self.nodes = nodes
        target = self.decoding_cache.target
        target.grow()
        states = self.pool.states.index_select(2, torch.tensor([node.place for node in nodes], device=ids_WT.device))
        if target.slots is None:
            target.next_column().copy_(states)
        else:
            target.next_column().index_copy_(2, target.slots, states)
        target.end_step()
        if self.positions_W1 is not None:
            self.positions_W1 = self.positions_W1 + 1
        self.logits = self._last(
            torch.stack([node.logits for node in nodes if node.logits is not None]), ids_WT.device
        )
        return self.logits

    def _call(self, nodes: list[Node], new_by_row: list[list[Node]]) -> None:
        """Call the model for new tokens of each row."""
        target = self.decoding_cache.target
        known = [node for root in nodes for node in root.known()]
        new = [node for row in new_by_row for node in row]
        kept = [node.place for node in known]
        for place, node in enumerate(known + new):
            node.place = place
        sees = torch.zeros(len(new), len(known) + len(new), dtype=torch.bool)
        pairs = [(index, one.place) for index, node in enumerate(new) for one in node.path()]
        sees[tuple(zip(*pairs, strict=True))] = True
        slots = list(range(len(nodes))) if target.slots is None else target.slots.tolist()
        tokens = Tokens(
            [node.token for node in new], [node.position for node in new],
            [(slot, len(row)) for slot, row in zip(slots, new_by_row, strict=True) if row], sees,
        )  # fmt: skip
        self.pool.renew(kept, torch.tensor(tokens.positions, device=self.pool.positions.device))
        self._learn(new, self.wide.run(tokens, self.decoding_cache, self.pool))

    def _learn(self, nodes: list[Node], logits_NV: torch.Tensor) -> None:
        """Store the logits after some tokens."""
        if self.width == 1:
            likely = [[(token, 0.0)] for token in logits_NV.argmax(dim=-1).tolist()]
        else:
            top = logits_NV.log_softmax(dim=-1).topk(min(self.width, _BRANCHES, logits_NV.shape[-1]))
            likely = [
                list(zip(*pair, strict=True)) for pair in zip(top.indices.tolist(), top.values.tolist(), strict=True)
            ]
        for node, logits, tokens in zip(nodes, logits_NV.unbind(), likely, strict=True):
            node.logits, node.likely = logits, tokens

    def _look_ahead(
        self, nodes: list[Node], most: int, ids_WT: torch.Tensor, scores_W: torch.Tensor | None
    ) -> list[list[Node]] | None:
        """Return the new tokens of each row: the last one, if its logits are not known, and what is likely to follow.

        They are at most `most` tokens ahead. The rows that compete take part in a search, whose scores are exact as far
        as the logits are known. Return None if there are only the last tokens of all rows.
        """
        new: list[list[Node]] = [[] if node.logits is not None else [node] for node in nodes]
        # the last token of a text is never read
        most = min(most, self.max_length - 1 - ids_WT.shape[1])
        if most > 0:
            self.texts = [as_text(row) for row in ids_WT.tolist()]
            self.has_ended = [any(end in text[self.prompt :] for end in self.ends) for text in self.texts]
        scores = [0.0] * len(nodes) if scores_W is None else scores_W.tolist()
        for first in range(0, len(nodes), self.width):
            beams = [(scores[row], row, nodes[row]) for row in range(first, first + self.width)]
            for ahead in range(most):
                found = [
                    (score + gain, row, node, token)
                    for score, row, node in beams
                    for token, gain in self._next(row, node, most - ahead)
                    if self.has_ended[row] or chr(token) not in self.ends
                ]
                found.sort(key=lambda one: -one[0])
                beams = []
                for score, row, node, token in found[: self.width]:
                    if (child := node.children.get(token)) is None:
                        child = node.children[token] = Node(token, node.position + 1, node, node.guess[1:])
                        new[row].append(child)
                    beams.append((score, row, child))
        is_plain = all(len(row) == 1 and row[0] is node for row, node in zip(new, nodes, strict=True))
        return None if is_plain else new

    def _next(self, row: int, node: Node, most: int) -> list[tuple[int, float]]:
        """Return the tokens that may follow, and what each adds to the log-probability."""
        if self.has_ended[row]:
            return [(self.pad, 0.0)]
        if node.logits is not None:
            return node.likely
        if not node.guess:
            path = as_text(one.token for one in reversed(node.path()[:-1]))
            node.guess = self.drafts.draft(row // self.beams, self.texts[row] + path, most)
        return [(ord(node.guess[0]), _DOUBT)] if node.guess else []


def stepper_for(
    model: Any, ids_WT: torch.Tensor, processors: LogitsProcessorList, settings: GenerationConfig, model_kwargs: dict
) -> Stepper:
    """Return what runs the decoder for a search: with drafts if the request asks for them and can have them."""
    request = model_kwargs.get("past_key_values")
    if not isinstance(request, FastPathRequest) or not request.draft_tokens or model.fast_path.is_compiled(model):
        return Stepper(model, ids_WT, settings, model_kwargs)
    sources = None if request.source_ids is None else [as_text(row) for row in request.source_ids.tolist()]
    parts = [*forced_by(processors), Lookup(sources, settings.max_matching_ngram_size or 8)]
    return AheadStepper(model, ids_WT, settings, model_kwargs, InTurn(parts), request.draft_tokens)

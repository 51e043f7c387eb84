"""What `generate` keeps from token to token when it decodes the short way (see `decoding.py`).

Shape suffixes: L layers of the decoder, B sources, S beams of each, W = B * S rows, G key-value heads, T tokens, M source
positions, K width of a head.
"""

from collections.abc import Callable

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, EncoderDecoderCache

KeysValues = tuple[torch.Tensor, torch.Tensor]


class BeamCache(Cache):
    """Keys and values of what was written: what all beams of a source share once (the trunk), the rest a beam (the tails).

    A beam keeps its row of the tails for as long as it lives, whatever its rank: reordering the beams renumbers the rows,
    and copies one only where a beam goes on in two ways. Now and then what all beams of each source have in common by then
    moves from the tails to the trunk. Without beams there is no trunk.

    Args:
        num_layers: layers of the decoder.
        sources: sources in the batch.
        beams: rows of one source.
        prefix_mask: (B, prefix), 0 where a prefix is padded on the left.
        length: tokens of a row at most, where that is known.
    """

    # Tokens from one look at what the beams share to the next.
    SHARE_EVERY = 16
    # A shorter trunk is padded: graphs are compiled for lengths from two on.
    _SHORTEST = 2

    # Room that is made at once on a CPU, whose memory is taken only as it is written to.
    _MOST_ROOM = 4096

    def __init__(
        self, num_layers: int, sources: int, beams: int, prefix_mask: torch.Tensor | None = None, length: int = 0
    ):
        self.num_layers, self.sources, self.beams, self.prefix_mask = num_layers, sources, beams, prefix_mask
        self.expected = length
        self.layers: list = []  # of transformers' kind: none
        # Columns in use, of the trunk and of the tails, and columns of the trunk that are padding.
        self.shared = self.own = self.padding = 0
        # Made with the first keys: (2, L, B, G, room, K) and (2, L, W, G, room, K), keys first.
        self.trunk = self.tails = torch.empty(0)
        # Numbers to add to scores, (B, room): -inf for what nobody sees. Of the trunk, or without beams of the tails.
        self.mask = torch.empty(0)
        self.is_masked = False
        # Which row (of its source's) wrote each column of a row (W, room): the same row, the same past.
        self.writers = torch.empty(0)
        self.rows: torch.Tensor | None = None  # the row of each rank (W,), None while they agree

    def __len__(self) -> int:
        return self.num_layers

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * self.num_layers

    @property
    def length(self) -> int:
        """Tokens of each sequence."""
        return self.shared - self.padding + self.own

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.length + query_length, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> KeysValues:
        """The plain path's way in: the prefix, of which all beams of a source have the same, or tokens after it."""
        if self.length > 0:
            return self._append(key_states, value_states, layer_idx)
        length, step = key_states.shape[2], key_states.shape[0] // self.sources
        if layer_idx == 0:
            self.padding = 0 if self.beams == 1 else max(0, self._SHORTEST - length)
            self._allocate(length, key_states)
        to = self.tails if self.beams == 1 else self.trunk
        for kind, states in enumerate((key_states, value_states)):
            to[kind, layer_idx, :, :, self.padding : self.padding + length] = states[::step]
        if layer_idx == self.num_layers - 1:
            if self.beams == 1:
                self.own = length
            else:
                self.shared = self.padding + length
        return key_states, value_states

    def _allocate(self, length: int, like: torch.Tensor) -> None:
        heads, width = like.shape[1], like.shape[3]
        room = max(64, length + self.padding)
        if like.device.type == "cpu":
            room = max(room, min(self.expected + self.padding, self._MOST_ROOM))
        self.tails = like.new_empty(2, self.num_layers, self.sources * self.beams, heads, room, width)
        if self.beams > 1:
            self.trunk = like.new_empty(2, self.num_layers, self.sources, heads, room, width)
            self.trunk[:, :, :, :, : self.padding] = 0  # masked, and still multiplied
            self.writers = torch.zeros(self.tails.shape[2], room, dtype=torch.int32, device=like.device)
            self._own_numbers = torch.arange(self.beams, dtype=torch.int32, device=like.device)
        self.mask = like.new_zeros(self.sources, room)
        self.mask[:, : self.padding] = float("-inf")
        self.is_masked = self.padding > 0
        if self.prefix_mask is not None and not self.prefix_mask.all():
            hidden_BT = ~self.prefix_mask[:, :length].bool()
            self.mask[:, self.padding : self.padding + length].masked_fill_(hidden_BT, float("-inf"))
            self.is_masked = True

    def _append(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int) -> KeysValues:
        """Tokens of the plain path after the prefix: kept, and handed back behind all that each row has (W, G, T, K)."""
        if self.beams > 1:
            raise ValueError(
                "The cache of a search with beams takes one token at a time: to go on from it, generate with "
                'cache_implementation="dynamic".'
            )
        new = key_states.shape[2]
        if layer_idx == 0:
            self.make_room(new)
        end = self.own + new
        for kind, states in enumerate((key_states, value_states)):
            self.tails[kind, layer_idx, :, :, self.own : end] = states.detach()
        if layer_idx == self.num_layers - 1:
            self.own = end
        past = self.tails[:, layer_idx, :, :, : end - new]
        return torch.cat([past[0], key_states], dim=2), torch.cat([past[1], value_states], dim=2)

    def places(self) -> tuple[torch.Tensor, ...]:
        """Where the columns in use stand: of the trunk, if there is one, and of the tails."""
        device, parted = self.tails.device, self.shared - self.padding
        own = torch.arange(parted, self.length, device=device)
        return (own,) if self.beams == 1 else (torch.arange(-self.padding, parted, device=device), own)

    def make_room(self, new: int = 1) -> None:
        """See to it that the tails can take `new` more tokens."""
        if self.own + new > self.tails.shape[4]:
            more = max(self.tails.shape[4], new)
            self.tails = pad(self.tails, (0, 0, 0, more))
            if self.beams == 1:
                self.mask = pad(self.mask, (0, more))
            else:
                self.writers = pad(self.writers, (0, more))

    def next_column(self) -> torch.Tensor:
        """Where keys and values of the next token go (2, L, W, G, K), in the order of the rows."""
        return self.tails[:, :, :, :, self.own]

    def end_step(self) -> None:
        """One more token of each row has been written to the next column."""
        if self.beams > 1:
            self.writers.view(-1, self.beams, self.writers.shape[1])[:, :, self.own] = self._own_numbers
        self.own += 1
        if self.beams > 1 and self.own % self.SHARE_EVERY == 0:
            self._share()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let rank i go on from rank `beam_idx[i]`."""
        parents = beam_idx.long() if self.rows is None else self.rows[beam_idx]
        wanted = parents.tolist()
        if self.own == 0:  # nothing but what all share
            return
        if len(set(wanted)) < len(wanted):
            wanted = self._branch(wanted)
            parents = torch.tensor(wanted, device=beam_idx.device)
        self.rows = None if wanted == list(range(len(wanted))) else parents

    def _branch(self, wanted: list[int]) -> list[int]:
        """Give each rank a row of its own: the one it wants, if it is the first to want it, or a free one with a copy."""
        rows, taken, copies = wanted[:], set[int](), []
        for first in range(0, len(wanted), self.beams):
            source = range(first, first + self.beams)
            free = iter(set(source).difference(wanted[first : first + self.beams]))
            for rank in source:
                if wanted[rank] in taken:
                    rows[rank] = next(free)
                    copies.append((wanted[rank], rows[rank]))
                taken.add(wanted[rank])
        origins, targets = zip(*copies, strict=True)
        past = self.writers[:, : self.own]
        alike = (past[list(origins)] == past[list(targets)]).sum(dim=-1).tolist()
        by_row = self.tails[:, :, :, :, : self.own].unbind(2)
        for origin, target, start in zip(origins, targets, alike, strict=True):
            by_row[target][:, :, :, start:].copy_(by_row[origin][:, :, :, start:])
            past[target, start:] = past[origin, start:]
        return rows

    def _share(self) -> None:
        """Move to the trunk what the beams of every source have in common, when it is worth moving the rest."""
        writers_BST = self.writers[:, : self.own].unflatten(0, (-1, self.beams))
        same_BT = (writers_BST == writers_BST[:, :1]).all(dim=1)
        common = int(same_BT.sum(dim=-1).min())
        rest = self.own - common
        if common < max(self.SHARE_EVERY // 2, rest // 2):
            return
        end = self.shared + common
        if end > self.trunk.shape[4]:
            more = max(self.trunk.shape[4], common)
            self.trunk, self.mask = pad(self.trunk, (0, 0, 0, more)), pad(self.mask, (0, more))
        self.trunk[:, :, :, :, self.shared : end] = self.tails[:, :, :: self.beams, :, :common]
        for states in (self.tails.movedim(4, 0), self.writers.movedim(1, 0)):
            states[:rest] = states[common : self.own].clone()
        self.shared, self.own = end, rest


class SourceCache(Cache):
    """Keys and values of the source, once per source and without the positions that nobody may see.

    Args:
        sources: sources in the batch.
        mask: (B, M), 1 where a source position may be seen; None where all may.
    """

    is_compileable = False

    def __init__(self, sources: int, mask: torch.Tensor | None):
        self.sources, self.kept = sources, None
        self.layers: list = []
        self._by_layer: list[torch.Tensor] = []
        self._states: torch.Tensor | None = None
        self._positions: torch.Tensor | None = None
        self.mask: torch.Tensor | None = None  # (B, 1, 1, kept), where sources differ in length
        real = None if mask is None else mask.bool()
        if real is None or real.all():
            return
        lengths = real.sum(dim=-1)
        longest = int(lengths.max())
        self.kept = (~real).long().argsort(dim=-1, stable=True)[:, :longest]
        if int(lengths.min()) < longest:
            self.mask = (torch.arange(longest, device=real.device) < lengths[:, None])[:, None, None]

    @property
    def states(self) -> torch.Tensor:
        """Keys and values of all layers (2, L, B, G, kept, K)."""
        if self._states is None:
            self._states = torch.stack(self._by_layer, dim=1)
        return self._states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._by_layer[0].shape[3] if self._by_layer else 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> KeysValues:
        if layer_idx < len(self._by_layer):  # the plain path again, which projects anew
            return key_states, value_states
        step = key_states.shape[0] // self.sources
        states = torch.stack([key_states[::step], value_states[::step]])
        if self.kept is not None:
            index = self.kept[None, :, None, :, None].expand(2, -1, states.shape[2], -1, states.shape[4])
            states = states.gather(3, index)
        self._by_layer.append(states)
        return key_states, value_states

    def positions(self) -> torch.Tensor:
        """Where the kept positions stood: (B or 1, kept)."""
        if self._positions is None:
            states = self._by_layer[0]
            self._positions = torch.arange(states.shape[3], device=states.device)[None]
        return self._positions if self.kept is None else self.kept


class DecodingCache(EncoderDecoderCache):
    """What `generate` hands from step to step when it takes the short way (see `decoding.py`)."""

    self_attention_cache: BeamCache
    cross_attention_cache: SourceCache

    def __init__(self, own: BeamCache, source: SourceCache, step: Callable | None):
        self.self_attention_cache, self.cross_attention_cache = own, source
        self.is_updated: dict[int, bool] = {}
        self.step = step

    def serves(self, ids: torch.Tensor | None, labels: torch.Tensor | None, other: dict) -> bool:
        """Whether a call is one more token of each row and nothing else."""
        if self.step is None or ids is None or ids.shape[1] != 1 or labels is not None or torch.is_grad_enabled():
            return False
        return self.get_seq_length() > 0 and all(value is None or value is False for value in other.values())

    def take_step(self, ids: torch.Tensor | None, position_ids: torch.Tensor | None) -> torch.Tensor:
        """Logits (W, vocabulary) after one more token of each row, ids (W, 1); rows in the order of their ranks."""
        assert self.step is not None and ids is not None
        return self.step(ids, self, position_ids)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)

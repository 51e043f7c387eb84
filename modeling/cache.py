"""The two halves of an encoder-decoder cache, and the one place where cross-attention reuses its keys and values."""

from collections.abc import Callable

import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from ..configuration.configuration_weft import WeftConfig

KeysValues = tuple[torch.Tensor, torch.Tensor]


def new_cache(config: WeftConfig) -> EncoderDecoderCache:
    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def self_attention_cache(past_key_values: Cache | None) -> Cache | None:
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values.self_attention_cache
    return past_key_values


def reuse_or_fill(past_key_values: Cache | None, layer_idx: int, project: Callable[[], KeysValues]) -> KeysValues:
    """Keys and values of the source: from the cache once a layer has filled it, else projected (and kept)."""
    if not isinstance(past_key_values, EncoderDecoderCache):
        return project()
    if isinstance(past_key_values, DecodingCache):  # keeps them in a form of its own
        return past_key_values.cross_attention_cache.update(*project(), layer_idx)
    cache = past_key_values.cross_attention_cache
    if past_key_values.is_updated.get(layer_idx):
        return cache.layers[layer_idx].keys, cache.layers[layer_idx].values
    keys, values = cache.update(*project(), layer_idx)
    past_key_values.is_updated[layer_idx] = True
    return keys, values


class BeamCache(Cache):
    """Keys and values of what the beams of each source wrote, every token once: a pool of nodes under an ancestry mask.

    A step adds one node a beam, and a beam sees the nodes it descends from. Reordering the beams reorders rows of the mask;
    keys and values stay where they are. Now and then nodes that no beam descends from any more are dropped, so that the pool
    stays about as long as one sequence: the beams that survive descend from one a few steps back.

    Args:
        num_layers: layers of the decoder.
        beams: rows of one source.
        prefix_mask: (B, prefix), 0 where a prefix is padded on the left.

    Shape suffixes: B sources, S beams of each, W = B * S rows, G key-value heads, N nodes, K width of a head.
    """

    # Steps from one clearing of the pool to the next.
    CLEAR_EVERY = 16

    def __init__(self, num_layers: int, beams: int, prefix_mask: torch.Tensor | None = None):
        self.num_layers, self.beams, self.prefix_mask, self.room = num_layers, beams, prefix_mask, 64
        self.layers: list = []  # of transformers' kind: none
        self.length = self.nodes = 0
        # Made with the first keys: for each layer its keys, then for each its values (B, G, room, K); which beam sees
        # which node (B, S, room); where each node stands in its sequence (B, room).
        self.pool: list[torch.Tensor] = []
        self.seen = self.places = torch.empty(0)

    def __len__(self) -> int:
        return self.num_layers

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * self.num_layers

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
        new = key_states.shape[2]
        if self.length > 0:
            return self._append(key_states, value_states, layer_idx)
        if layer_idx == 0:
            sources, device = key_states.shape[0] // self.beams, key_states.device
            self.room = max(self.room, new)
            self.seen = torch.zeros(sources, self.beams, self.room, dtype=torch.bool, device=device)
            self.seen[:, :, :new] = True if self.prefix_mask is None else self.prefix_mask[:, None, :new].bool()
            self.places = torch.arange(self.room, device=device).repeat(sources, 1)
            self.pool = [torch.empty(0)] * (2 * self.num_layers)
        for index, states in ((layer_idx, key_states), (self.num_layers + layer_idx, value_states)):
            self.pool[index] = torch.nn.functional.pad(states[:: self.beams], (0, 0, 0, self.room - new))
        if layer_idx == self.num_layers - 1:
            self.length = self.nodes = new
        return key_states, value_states

    def _append(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int) -> KeysValues:
        """Tokens of the plain path after the prefix: kept, and handed back behind all that each row has (W, G, N, K)."""
        if self.beams > 1:
            raise ValueError(
                "The cache of a search with beams takes one token at a time: to go on from it, generate with "
                'cache_implementation="dynamic".'
            )
        if layer_idx == 0:
            self._make_room(key_states.shape[2])
            end = self.nodes + key_states.shape[2]
            self.seen[:, :, self.nodes : end] = True
            self.places[:, self.nodes : end] = torch.arange(
                self.length, self.length + key_states.shape[2], device=key_states.device
            )
        end = self.nodes + key_states.shape[2]
        found = []
        for index, states in ((layer_idx, key_states), (self.num_layers + layer_idx, value_states)):
            self.pool[index][:, :, self.nodes : end] = states
            found.append(self.pool[index][:, :, :end])
        if layer_idx == self.num_layers - 1:
            self.length, self.nodes = self.length + key_states.shape[2], end
        return found[0], found[1]

    def _make_room(self, new: int) -> None:
        if self.nodes + new > self.room:
            more = max(self.beams * self.CLEAR_EVERY, self.nodes, new)
            self.room += more
            self.pool = [torch.nn.functional.pad(states, (0, 0, 0, more)) for states in self.pool]
            self.seen = torch.nn.functional.pad(self.seen, (0, more))
            self.places = torch.nn.functional.pad(self.places, (0, more))

    def begin_step(self) -> torch.Tensor:
        """Make room for one node a beam, which it alone descends from; returns their places in the pool (S,)."""
        self._make_room(self.beams)
        end = self.nodes + self.beams
        self.seen[:, :, self.nodes : end] = torch.eye(self.beams, dtype=torch.bool, device=self.seen.device)
        self.places[:, self.nodes : end] = self.length
        return torch.arange(self.nodes, end, device=self.seen.device)

    def end_step(self) -> None:
        self.nodes += self.beams
        self.length += 1

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        rows = self.seen.flatten(0, 1)
        self.seen = rows.index_select(0, beam_idx).view_as(self.seen)
        if self.length % self.CLEAR_EVERY == 0:
            self._clear()

    def _clear(self) -> None:
        """Drop the nodes that no beam descends from; a source that keeps fewer than another keeps some that none sees."""
        live_BN = self.seen[:, :, : self.nodes].any(dim=1)
        kept = int(live_BN.sum(dim=-1).max())
        first = int(live_BN.all(dim=0).long().cumprod(dim=0).sum())  # up to here nothing moves
        if kept == self.nodes:
            return
        order = (~live_BN[:, first:]).long().argsort(dim=-1, stable=True)[:, : kept - first] + first
        old, new = self.nodes, slice(first, kept)
        by_node = order[:, None, :, None]
        for states in self.pool:
            states[:, :, new] = states.gather(2, by_node.expand(-1, states.shape[1], -1, states.shape[3]))
        self.places[:, new] = self.places.gather(1, order)
        self.seen[:, :, new] = self.seen.gather(2, order[:, None].expand(-1, self.beams, -1))
        self.seen[:, :, kept:old] = False
        self.nodes = kept


class SourceCache(Cache):
    """Keys and values of the source, once per source and without the positions that nobody may see.

    Args:
        beams: rows of one source.
        mask: (B, M), 1 where a source position may be seen; None where all may.
    """

    is_compileable = False

    def __init__(self, beams: int, mask: torch.Tensor | None):
        self.beams, self.kept = beams, None
        self.layers: list = []
        self.keys_values: list[KeysValues] = []
        self.mask: torch.Tensor | None = None  # (B, 1, 1, kept), where sources differ in length
        real = None if mask is None else mask.bool()
        if real is None or real.all():
            return
        lengths = real.sum(dim=-1)
        longest = int(lengths.max())
        self.kept = (~real).long().argsort(dim=-1, stable=True)[:, :longest]
        if int(lengths.min()) < longest:
            self.mask = (torch.arange(longest, device=real.device) < lengths[:, None])[:, None, None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.keys_values[0][0].shape[2] if self.keys_values else 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> KeysValues:
        if layer_idx < len(self.keys_values):  # the plain path again, which projects anew
            return key_states, value_states
        kept = []
        for states in (key_states[:: self.beams], value_states[:: self.beams]):
            if self.kept is not None:
                index = self.kept[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
                states = states.gather(2, index)
            kept.append(states.contiguous())
        self.keys_values.append((kept[0], kept[1]))
        return key_states, value_states

    def positions(self) -> torch.Tensor:
        """Where the kept positions stood: (B or 1, kept)."""
        keys = self.keys_values[0][0]
        return torch.arange(keys.shape[2], device=keys.device)[None] if self.kept is None else self.kept


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
        """Logits (W, 1, vocabulary) after one more token of each row, ids (W, 1)."""
        assert self.step is not None and ids is not None
        return self.step(ids, self, position_ids)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)

"""The cache of the fast path of decoding (see `decoding_step.py`).

Shape suffixes: L layers of the decoder, B sources, S beams of each, W = B * S rows, G key-value heads, T tokens, M
source positions, K width of a head.
"""

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from ..configuration.configuration_weft import WeftConfig
from .decoding_leaving import move, renumbered


class FastPathRequest(EncoderDecoderCache):
    """An ordinary cache, plus what the fast path has to know of a request.

    The prefill fills it like any other cache. The fast path then moves its keys and values to a [`DecodingCache`]. A
    search that needs whole forward passes uses it as it is.

    Args:
        config: the model's configuration.
        sources: number of sources in the batch.
        beams: number of beams of each source.
        prefix_mask: mask of shape (B, prefix), 0 for pads on the left of a prefix. None if there are none.
        source_mask: mask of shape (B, M), 1 for source positions that the decoder may see. None if it may see all.
        length: the largest number of tokens in a row, if known.
    """

    def __init__(
        self,
        config: WeftConfig,
        sources: int,
        beams: int,
        prefix_mask: torch.Tensor | None = None,
        source_mask: torch.Tensor | None = None,
        length: int = 0,
    ):
        super().__init__(DynamicCache(config=config), DynamicCache(config=config))
        self.config, self.sources, self.beams, self.length = config, sources, beams, length
        self.prefix_mask, self.source_mask = prefix_mask, source_mask


class DecodingCache:
    """The keys and values of target and source on the fast path, taken from the cache that the prefill has filled.

    Args:
        request: the filled cache, one row for each source. It is empty afterwards.
        is_returned: whether [`as_dynamic`] will be called, which also needs the masked positions of the source.
    """

    def __init__(self, request: FastPathRequest, is_returned: bool = False):
        self.config = request.config
        written, source = request.self_attention_cache, request.cross_attention_cache
        self.target = BeamCache(request.sources, request.beams, request.prefix_mask, request.length)
        self.target.fill(take_states(written))
        states = take_states(source)
        self.source = SourceCache(states, request.source_mask)
        self._whole_source = states if is_returned else None

    @property
    def is_returned(self) -> bool:
        return self._whole_source is not None

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Reorder the beams: rank i continues the beam that had rank `beam_idx[i]`."""
        self.target.reorder(beam_idx)

    def keep(self, sources: list[int]) -> None:
        """Keep some sources: source i is what was source `sources[i]`. Other sources than these lose their places."""
        self.target.keep(sources)
        self.source.keep(sources)

    def as_dynamic(self) -> EncoderDecoderCache:
        """Return the cache as transformers' own search would: one row for each beam, in the order of the ranks."""
        assert self._whole_source is not None
        halves = []
        for states in (self.target.by_rank(), self._whole_source.repeat_interleave(self.target.beams, dim=2)):
            half = DynamicCache(config=self.config)
            for layer_idx, (keys, values) in enumerate(by_layer(states)):
                half.update(keys, values, layer_idx)
            halves.append(half)
        return EncoderDecoderCache(*halves)


def take_states(cache: Cache) -> torch.Tensor:
    """Remove the keys and values of all layers from the cache, and return them as (2, L, B, G, T, K)."""
    keys, values = ([getattr(layer, kind) for layer in cache.layers] for kind in ("keys", "values"))
    cache.layers = []
    return torch.stack([*keys, *values]).unflatten(0, (2, -1))


def by_layer(states: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Split states (2, L, ...) into the keys and values of each layer."""
    keys, values = states.unbind()
    return list(zip(keys.unbind(), values.unbind(), strict=True))


class BeamCache:
    """Keys and values of the target: a prefix that all beams of a source share, and a suffix for each beam.

    A beam stays in one slot of the suffixes, whatever its rank. Reordering the beams changes only which rank has which
    slot, and copies a suffix only if two beams continue the same one. At regular intervals, the tokens that all beams
    of each source have in common move from the suffixes to the shared prefix. Without beams there is no shared prefix.

    Args:
        sources: number of sources in the batch.
        beams: number of beams of each source.
        prefix_mask: mask of shape (B, prefix), 0 for pads on the left of a prefix.
        length: the largest number of tokens in a row, if known.
    """

    # Number of tokens between two comparisons of the beams.
    SHARE_EVERY = 16
    # A shorter shared prefix is padded, because graphs are compiled for lengths from 2 on.
    _SHORTEST = 2

    # Columns that are allocated at first on a CPU, where unused memory costs nothing until it is written to.
    _INITIAL_CAPACITY = 4096

    def __init__(self, sources: int, beams: int, prefix_mask: torch.Tensor | None = None, length: int = 0):
        self.sources, self.beams, self.prefix_mask = sources, beams, prefix_mask
        self.expected = length
        # Columns in use in the shared prefix and in the suffixes, and columns of padding in the shared prefix.
        self.prefix_length = self.suffix_length = self.padding = 0
        # Allocated by `fill`: (2, L, B, G, capacity, K) and (2, L, W, G, capacity, K), keys first.
        self.prefix = self.suffixes = torch.empty(0)
        # Additive mask (B, capacity) of the shared prefix, or of the suffixes if there are no beams.
        self.mask = torch.empty(0)
        self.is_masked = False
        # The slot, numbered within its source, that wrote each column of a slot (W, capacity). Two slots with the same
        # writers have the same tokens.
        self.writers = torch.empty(0)
        self.slots: torch.Tensor | None = (
            None  # the slot of each rank (W,), None if each rank has the slot of its number
        )

    @property
    def length(self) -> int:
        """The number of tokens in each sequence."""
        return self.prefix_length - self.padding + self.suffix_length

    def fill(self, prefix: torch.Tensor) -> None:
        """Store the keys and values of the prefix (2, L, B, G, T, K), which all beams of a source have in common."""
        length = prefix.shape[4]
        self.padding = 0 if self.beams == 1 else max(0, self._SHORTEST - length)
        self._allocate(length, prefix)
        end = self.padding + length
        if self.beams == 1:
            self.suffixes[:, :, :, :, :length] = prefix
            self.suffix_length = length
        else:
            self.prefix[:, :, :, :, self.padding : end] = prefix
            self.prefix_length = end

    def by_rank(self) -> torch.Tensor:
        """Return the keys and values of each row (2, L, W, G, length, K), in the order of the ranks."""
        suffixes = self.suffixes[:, :, :, :, : self.suffix_length]
        suffixes = suffixes if self.slots is None else suffixes.index_select(2, self.slots)
        if self.beams == 1:
            return suffixes.clone()
        prefix = self.prefix[:, :, :, :, self.padding : self.prefix_length].repeat_interleave(self.beams, dim=2)
        return torch.cat([prefix, suffixes], dim=4)

    def _allocate(self, length: int, like: torch.Tensor) -> None:
        layers, heads, width = like.shape[1], like.shape[3], like.shape[5]
        capacity = max(64, length + self.padding)
        if like.device.type == "cpu":
            capacity = max(capacity, min(self.expected + self.padding, self._INITIAL_CAPACITY))
        self.suffixes = like.new_empty(2, layers, self.sources * self.beams, heads, capacity, width)
        if self.beams > 1:
            self.prefix = like.new_empty(2, layers, self.sources, heads, capacity, width)
            self.prefix[:, :, :, :, : self.padding] = 0  # masked, but NaN times 0 is NaN
            self.writers = torch.zeros(self.suffixes.shape[2], capacity, dtype=torch.int32, device=like.device)
            self._own_numbers = torch.arange(self.beams, dtype=torch.int32, device=like.device)
        self.mask = like.new_zeros(self.sources, capacity)
        self.mask[:, : self.padding] = float("-inf")
        self.is_masked = self.padding > 0
        if self.prefix_mask is not None and not self.prefix_mask.all():
            hidden_BT = ~self.prefix_mask[:, :length].bool()
            self.mask[:, self.padding : self.padding + length].masked_fill_(hidden_BT, float("-inf"))
            self.is_masked = True

    def key_positions(self) -> tuple[torch.Tensor, ...]:
        """Return the key positions of the columns in use, of the shared prefix (if there is one) and the suffixes."""
        device, shared = self.suffixes.device, self.prefix_length - self.padding
        own = torch.arange(shared, self.length, device=device)
        return (own,) if self.beams == 1 else (torch.arange(-self.padding, shared, device=device), own)

    def grow(self, new: int = 1) -> None:
        """Enlarge the suffixes if they have no capacity for `new` more tokens."""
        if self.suffix_length + new > self.suffixes.shape[4]:
            more = max(self.suffixes.shape[4], new)
            self.suffixes = pad(self.suffixes, (0, 0, 0, more))
            if self.beams == 1:
                self.mask = pad(self.mask, (0, more))
            else:
                self.writers = pad(self.writers, (0, more))

    def next_column(self) -> torch.Tensor:
        """Return the view for the keys and values of the next token (2, L, W, G, K), in the order of the slots."""
        return self.suffixes[:, :, :, :, self.suffix_length]

    def end_step(self) -> None:
        """Count the token of each beam that was written to the next column."""
        if self.beams > 1:
            self.writers.view(-1, self.beams, self.writers.shape[1])[:, :, self.suffix_length] = self._own_numbers
        self.suffix_length += 1
        if self.beams > 1 and self.suffix_length % self.SHARE_EVERY == 0:
            self._share()

    def reorder(self, beam_idx: torch.Tensor) -> None:
        """Reorder the beams: rank i continues the beam that had rank `beam_idx[i]`."""
        parents = beam_idx.long() if self.slots is None else self.slots[beam_idx]
        wanted = parents.tolist()
        if self.suffix_length == 0:  # all tokens are in the shared prefix
            return
        if len(set(wanted)) < len(wanted):
            wanted = self._branch(wanted)
            parents = torch.tensor(wanted, device=beam_idx.device)
        self.slots = None if wanted == list(range(len(wanted))) else parents

    def keep(self, sources: list[int]) -> None:
        """Keep some sources: source i is what was source `sources[i]`, which is i or comes after all that are kept."""
        beams = self.beams
        self.sources = len(sources)
        if self.slots is not None:
            self.slots = renumbered(self.slots, sources, beams)
        self._move_columns("suffixes", 2, self.suffix_length, sources, beams)
        self.mask = move(self.mask, 0, sources)
        if beams > 1:
            self._move_columns("prefix", 2, self.prefix_length, sources, 1)
            self.writers = move(self.writers, 0, sources, beams)

    def _move_columns(self, name: str, dim: int, length: int, sources: list[int], rows: int) -> None:
        """Move only the columns in use."""
        states = getattr(self, name)
        move(states[:, :, :, :, :length], dim, sources, rows)
        setattr(self, name, states.narrow(dim, 0, len(sources) * rows))

    def _branch(self, wanted: list[int]) -> list[int]:
        """Return one slot for each rank: the slot it wants, or a free one with a copy if an earlier rank wants it."""
        slots, taken, copies = wanted[:], set[int](), []
        for first in range(0, len(wanted), self.beams):
            source = range(first, first + self.beams)
            free = iter(set(source).difference(wanted[first : first + self.beams]))
            for rank in source:
                if wanted[rank] in taken:
                    slots[rank] = next(free)
                    copies.append((wanted[rank], slots[rank]))
                taken.add(wanted[rank])
        origins, targets = zip(*copies, strict=True)
        past = self.writers[:, : self.suffix_length]
        alike = (past[list(origins)] == past[list(targets)]).sum(dim=-1).tolist()
        by_slot = self.suffixes[:, :, :, :, : self.suffix_length].unbind(2)
        for origin, target, start in zip(origins, targets, alike, strict=True):
            by_slot[target][:, :, :, start:].copy_(by_slot[origin][:, :, :, start:])
            past[target, start:] = past[origin, start:]
        return slots

    def _share(self) -> None:
        """Move the tokens that all beams of every source share to the shared prefix, if there are enough of them.

        Moving them also costs a copy of the remaining suffixes.
        """
        writers_BST = self.writers[:, : self.suffix_length].unflatten(0, (-1, self.beams))
        same_BT = (writers_BST == writers_BST[:, :1]).all(dim=1)
        common = int(same_BT.sum(dim=-1).min())
        rest = self.suffix_length - common
        if common < max(self.SHARE_EVERY // 2, rest // 2):
            return
        end = self.prefix_length + common
        if end > self.prefix.shape[4]:
            more = max(self.prefix.shape[4], common)
            self.prefix, self.mask = pad(self.prefix, (0, 0, 0, more)), pad(self.mask, (0, more))
        self.prefix[:, :, :, :, self.prefix_length : end] = self.suffixes[:, :, :: self.beams, :, :common]
        for states in (self.suffixes.movedim(4, 0), self.writers.movedim(1, 0)):
            states[:rest] = states[common : self.suffix_length].clone()
        self.prefix_length, self.suffix_length = end, rest


class SourceCache:
    """Keys and values of the source, stored once for all beams and without masked positions.

    Args:
        states: keys and values of all layers (2, L, B, G, M, K), keys first.
        mask: mask of shape (B, M), 1 for source positions that the decoder may see. None if it may see all.
    """

    def __init__(self, states: torch.Tensor, mask: torch.Tensor | None):
        self.states = states  # (2, L, B, G, kept, K)
        self.positions = torch.arange(states.shape[4], device=states.device)[None]  # their positions, (B or 1, kept)
        self.mask: torch.Tensor | None = None  # (B, 1, 1, kept), if the sources differ in length
        self.lengths: torch.Tensor | None = None  # their lengths (B,), if there is a mask
        seen = None if mask is None else mask.bool()
        if seen is None or seen.all():
            return
        lengths = seen.sum(dim=-1)
        longest = int(lengths.max())
        self.positions = (~seen).long().argsort(dim=-1, stable=True)[:, :longest]
        index = self.positions[None, None, :, None, :, None]
        self.states = states.gather(4, index.expand(*states.shape[:2], -1, states.shape[3], -1, states.shape[5]))
        if int(lengths.min()) < longest:
            self.lengths = lengths
            self.mask = (torch.arange(longest, device=seen.device) < lengths[:, None])[:, None, None]

    def keep(self, sources: list[int]) -> None:
        """Keep some sources, as [`BeamCache.keep`] does, and no more columns than they need."""
        self.states = move(self.states, 2, sources)
        if len(self.positions) > 1:
            self.positions = move(self.positions, 0, sources)
        if self.mask is None or self.lengths is None:
            return
        self.mask, self.lengths = move(self.mask, 0, sources), move(self.lengths, 0, sources)
        longest = int(self.lengths.max())
        self.states, self.positions = self.states[:, :, :, :, :longest], self.positions[:, :longest]
        self.mask = self.mask[..., :longest] if int(self.lengths.min()) < longest else None

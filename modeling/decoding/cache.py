"""The cache of the fast path of decoding (see `step.py`), which sources may join and leave between two tokens.

Shape suffixes: L layers of the decoder, B sources, S beams of each, W = B * S rows, G key-value heads, T tokens, M
source positions, K width of a head.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from ...configuration.configuration_weft import WeftConfig


class FastPathRequest(EncoderDecoderCache):
    """An ordinary cache, plus the facts about a request that the fast path needs.

    The prefill fills it like any other cache. The fast path then moves its keys and values to a [`DecodingCache`]. A
    search that needs whole forward passes uses it as it is.

    Args:
        config: the model's configuration.
        beams: number of beams of each source.
        prefix_mask: mask of shape (B, prefix), 0 for pads in a prefix. None if there are none.
        source_mask: mask of shape (B, M), 1 for source positions that the decoder may see. None if it may see all.
        length: the largest number of tokens in a row, if known.
        decode: the search that takes the place of transformers' own.
    """

    def __init__(
        self,
        config: WeftConfig,
        beams: int,
        prefix_mask: torch.Tensor | None = None,
        source_mask: torch.Tensor | None = None,
        length: int = 0,
        decode: Callable[..., Any] | None = None,
    ):
        # without the configuration, because transformers would copy it; all layers are the same
        super().__init__(DynamicCache(), DynamicCache())
        self.config, self.beams, self.length, self.decode = config, beams, length, decode
        self.prefix_mask, self.source_mask = prefix_mask, source_mask


class DecodingCache:
    """The keys and values of target and source: a prefix that all beams of a source share, and a suffix for each beam.

    A beam stays in one slot of the suffixes, whatever its rank. Reordering the beams changes only which rank has which
    slot, and copies a suffix only if two beams continue the same one. At regular intervals, the tokens that all beams
    of a source have in common move from the suffixes to the shared prefix. Without beams there is no shared prefix.

    Sources may have different lengths. Prefixes begin in the first column, and a mask hides the columns after shorter
    ones. Suffixes end in the last column, so that all rows write the next token to the same column, and a mask hides
    the columns before shorter ones. If all have the same length, there is no mask, and the states are plain slices.

    Args:
        config: the model's configuration.
        beams: number of beams of each source.
        length: the largest number of tokens in a row, if known.
        is_returned: whether [`as_dynamic`] will be called. It needs the masked states too, and no source may join or
            leave.
        own_prefix: prefixes of at most this length are copied to the suffixes of all beams, because attention to one
            part takes fewer operations.
    """

    # Number of tokens between two comparisons of the beams.
    SHARE_EVERY = 16
    # The fewest columns to allocate, and the most at first. Unused memory costs nothing until it is written to.
    _CAPACITY, _INITIAL_CAPACITY = 64, 4096

    def __init__(
        self, config: WeftConfig, beams: int, length: int = 0, is_returned: bool = False, own_prefix: int = 0
    ):
        self.config, self.beams, self.expected, self.is_returned = config, beams, length, is_returned
        self.own_prefix = own_prefix
        # Allocated by `add`: (2, L, B, G, capacity, K) and (2, L, W, G, capacity, K), keys first. There may be more
        # rows than are in use.
        self.prefix = self.suffixes = torch.empty(0)
        # For each source: the length of its prefix, the first column of its suffixes, and the number of its tokens.
        self.prefix_lengths: list[int] = []
        self.starts: list[int] = []
        self.lengths: list[int] = []
        # The number of columns in use in the suffixes.
        self.end = 0
        # The slot, numbered within its source, that wrote each column of a slot (W, capacity). Two slots with the same
        # writers have the same tokens.
        self.writers = torch.zeros(0, 0, dtype=torch.int32)
        # The slot of each rank (W,), None if each rank has the slot of its number.
        self.slots: torch.Tensor | None = None
        self.source = SourceCache()
        self._whole: tuple[torch.Tensor, torch.Tensor, list[int]] | None = None

    @property
    def sources(self) -> int:
        return len(self.starts)

    @property
    def device(self) -> torch.device:
        return self.suffixes.device

    def add(self, request: FastPathRequest) -> None:
        """Add the sources of a request, whose cache the prefill has filled. That cache is empty afterwards."""
        prefill_states, source = take_states(request.self_attention_cache), take_states(request.cross_attention_cache)
        is_own = self.beams == 1 or prefill_states.shape[4] <= self.own_prefix  # prefixes are parts of the suffixes
        states, _, lengths = gather_visible(prefill_states, request.prefix_mask, at_end=is_own)
        if self.is_returned:
            self._whole = prefill_states, source, lengths
        self.source.add(source, request.source_mask)
        first, columns = self.sources, states.shape[4]
        self._add_suffixes(states, columns if is_own else 0)
        self._add_prefixes(states, [0] * len(lengths) if is_own else lengths)
        if is_own:
            suffixes = self.suffixes[:, :, first * self.beams : self.sources * self.beams]
            suffixes_by_beam = suffixes.unflatten(2, (-1, self.beams))
            suffixes_by_beam[:, :, :, :, :, self.end - columns : self.end] = states[:, :, :, None]
            self.starts[first:] = [self.end - length for length in lengths]
        else:
            self.prefix[:, :, first : self.sources, :, :columns] = states
        self.lengths += lengths

    def _add_suffixes(self, states: torch.Tensor, columns: int) -> None:
        """Add blank suffixes for the sources of some states, with at least these columns in use."""
        rows = slice(self.sources * self.beams, (self.sources + states.shape[2]) * self.beams)
        self._make_room(states, rows.stop, max(self.end, columns))
        self._shift_right(columns - self.end)
        self.suffixes[:, :, rows, :, : self.end] = 0  # masked, but NaN times 0 is NaN
        self.writers[rows, : self.end] = 0
        self.starts += [self.end] * states.shape[2]
        if self.slots is not None:
            self.slots = torch.cat([self.slots, torch.arange(rows.start, rows.stop, device=self.device)])

    def _add_prefixes(self, states: torch.Tensor, lengths: list[int]) -> None:
        """Add shared prefixes of some lengths, if sources have several beams."""
        self.prefix_lengths += lengths if self.beams > 1 else []
        if any(self.prefix_lengths):
            self.prefix = _with_room(self.prefix, states, self.sources, max(self._capacity, states.shape[4]))
            self._blank_prefixes()

    @property
    def _capacity(self) -> int:
        return max(self._CAPACITY, min(self.expected, self._INITIAL_CAPACITY))

    def _make_room(self, like: torch.Tensor, rows: int, columns: int) -> None:
        """Enlarge the suffixes if they have fewer rows or columns."""
        self.suffixes = _with_room(self.suffixes, like, rows, max(self._capacity, columns))
        shape = self.suffixes.shape[2], self.suffixes.shape[4]
        if self.writers.shape != shape:
            more_rows, more_columns = (new - old for new, old in zip(shape, self.writers.shape, strict=True))
            self.writers = pad(self.writers.to(self.device), (0, more_columns, 0, more_rows))

    def _shift_right(self, columns: int) -> None:
        """Shift the suffixes to the right, which frees columns in front of them."""
        if columns <= 0:
            return
        for states in (self.suffixes[:, :, : self.sources * self.beams].movedim(4, 0), self.writers.movedim(1, 0)):
            states[columns : columns + self.end] = states[: self.end].clone()
            states[:columns] = 0
        self.starts = [start + columns for start in self.starts]
        self.end += columns

    def _blank_prefixes(self) -> None:
        """Set the masked columns of the prefixes to 0, because NaN times 0 is NaN."""
        width = self._width
        for source, length in enumerate(self.prefix_lengths):
            if length < width and self.prefix.ndim > 1:
                self.prefix[:, :, source, :, length:width] = 0

    @property
    def _width(self) -> int:
        """The number of columns in use in the shared prefix."""
        return max(self.prefix_lengths, default=0)

    def past(self) -> list[torch.Tensor]:
        """Return the columns in use of the shared prefixes, if there are any, and of the suffixes and the next one."""
        suffixes = self.suffixes[:, :, : self.sources * self.beams, :, : self.end + 1]
        return [self.prefix[:, :, : self.sources, :, : self._width], suffixes] if self._width else [suffixes]

    def mask(self) -> torch.Tensor | None:
        """Return which columns of [`past`] each row attends to (W, 1, 1, N), None if no column is hidden."""
        if not any(self.starts) and min(self.prefix_lengths, default=0) == self._width:
            return None
        numbers = [torch.arange(part.shape[4], device=self.device) for part in self.past()]
        starts, ends = (
            torch.tensor(column, device=self.device)[:, None] for column in (self.starts, self.prefix_lengths)
        )
        parts = [*(columns < ends for columns in numbers[:-1]), numbers[-1] >= starts]
        return torch.cat(parts, dim=1).repeat_interleave(self.beams, dim=0)[:, None, None]

    def next_positions(self) -> torch.Tensor:
        """Return the positions of the next tokens, (1, 1) if all are the same, else (W, 1)."""
        if min(self.lengths) == max(self.lengths):
            return torch.full((1, 1), self.lengths[0], device=self.device)
        return torch.tensor(self.lengths, device=self.device).repeat_interleave(self.beams)[:, None]

    def grow(self) -> None:
        """Enlarge the suffixes if they have no capacity for another token."""
        if self.end == self.suffixes.shape[4]:
            self._make_room(self.suffixes, self.suffixes.shape[2], self.end + 1)

    def next_column(self) -> torch.Tensor:
        """Return the view for the keys and values of the next token (2, L, W, G, 1, K), in the order of the slots."""
        return self.past()[-1][:, :, :, :, -1:]

    def end_step(self) -> None:
        """Count the token of each beam that was written to the next column."""
        rows = self.sources * self.beams
        if self.beams > 1:
            slots = torch.arange(self.beams, dtype=torch.int32, device=self.device)
            self.writers[:rows].view(-1, self.beams, self.writers.shape[1])[:, :, self.end] = slots
        self.end += 1
        self.lengths = [length + 1 for length in self.lengths]
        if self.beams > 1 and self.end % self.SHARE_EVERY == 0:
            self._share()

    def reorder(self, beam_idx: torch.Tensor) -> None:
        """Reorder the beams: rank i continues the beam that had rank `beam_idx[i]`."""
        parents = beam_idx.long() if self.slots is None else self.slots[beam_idx]
        slots = parents.tolist()
        if self.end == 0:  # all tokens are in the shared prefix
            return
        if len(set(slots)) < len(slots):
            slots = self._branch(slots)
            parents = torch.tensor(slots, device=beam_idx.device)
        self.slots = None if slots == list(range(len(slots))) else parents

    def batch_select_indices(self, sources: list[int]) -> None:
        """Keep the given sources: the new source i is the old `sources[i]`, which is i or at least `len(sources)`."""
        beams = self.beams
        if self.slots is not None:
            self.slots = renumbered(self.slots, sources, beams)
        _move(self.suffixes[:, :, :, :, : self.end], 2, sources, beams)
        _move(self.writers, 0, sources, beams)
        if beams > 1:
            if any(self.prefix_lengths):
                _move(self.prefix[:, :, :, :, : self._width], 2, sources)
            self.prefix_lengths = [self.prefix_lengths[source] for source in sources]
            self._blank_prefixes()
        self.starts = [self.starts[source] for source in sources]
        self.lengths = [self.lengths[source] for source in sources]
        self.source.batch_select_indices(sources)
        self._drop_columns()

    def _branch(self, parents: list[int]) -> list[int]:
        """Return a slot for each rank: the one it continues, or a free one with a copy if an earlier rank has that."""
        slots, occupied_slots, copies = parents[:], set[int](), []
        for first in range(0, len(parents), self.beams):
            source = range(first, first + self.beams)
            unused_slots = iter(set(source).difference(parents[first : first + self.beams]))
            for rank in source:
                if parents[rank] in occupied_slots:
                    slots[rank] = next(unused_slots)
                    copies.append((parents[rank], slots[rank]))
                occupied_slots.add(parents[rank])
        origins, targets = zip(*copies, strict=True)
        past = self.writers[:, : self.end]
        if self.device.type != "cpu":  # two copies of all columns take less time than many short ones
            states = self.suffixes[:, :, :, :, : self.end]
            states[:, :, list(targets)] = states[:, :, list(origins)]
            past[list(targets)] = past[list(origins)]
            return slots
        alike = (past[list(origins)] == past[list(targets)]).sum(dim=-1).tolist()
        by_slot = self.suffixes[:, :, :, :, : self.end].unbind(2)
        for origin, target, start in zip(origins, targets, alike, strict=True):
            by_slot[target][:, :, :, start:].copy_(by_slot[origin][:, :, :, start:])
            past[target, start:] = past[origin, start:]
        return slots

    def _share(self) -> None:
        """Move the tokens that all beams of a source share to its prefix, if there are enough of them.

        Moving them also costs a copy of the remaining suffixes. If the suffixes of all sources begin in the same
        column, they move the same number of tokens and so stay aligned.
        """
        writers_BST = self.writers[: self.sources * self.beams, : self.end].unflatten(0, (-1, self.beams))
        ends = (writers_BST == writers_BST[:, :1]).all(dim=1).sum(dim=-1).tolist()
        if len(set(self.starts)) == 1:
            ends = [min(ends)] * len(ends)
        moves = [
            (source, start, end - start)
            for source, (start, end) in enumerate(zip(self.starts, ends, strict=True))
            if end - start >= max(self.SHARE_EVERY // 2, (self.end - end) // 2)
        ]
        if not moves:
            return
        columns = max(self.prefix_lengths[source] + count for source, _, count in moves)
        self.prefix = _with_room(self.prefix, self.suffixes, self.sources, max(self._capacity, columns))
        for source, start, count in moves:
            first = self.prefix_lengths[source]
            suffix = self.suffixes[:, :, source * self.beams, :, start : start + count]
            self.prefix[:, :, source, :, first : first + count] = suffix
            self.prefix_lengths[source] += count
            self.starts[source] += count
        self._blank_prefixes()
        self._drop_columns()

    def _drop_columns(self) -> None:
        """Remove the columns that no source uses any more from the suffixes."""
        drop = min(self.starts)
        if not drop:
            return
        width, rows = self.end - drop, self.sources * self.beams
        # a layer at a time: the copy of all of them would double the memory
        for states in (*self.suffixes[:, :, :rows].flatten(0, 1).movedim(3, 1), self.writers[:rows].movedim(1, 0)):
            states[:width] = states[drop : self.end].clone()
        self.end, self.starts = width, [start - drop for start in self.starts]

    def as_dynamic(self) -> EncoderDecoderCache:
        """Return the cache as transformers' own search would: one row for each beam, in the order of the ranks."""
        assert self._whole is not None
        prefix, source, lengths = self._whole
        num_tokens = self.lengths[0] - lengths[0]  # the same number of tokens for all sources, which joined together
        suffixes = self.past()[-1][:, :, :, :, max(0, self.end - num_tokens) : self.end]
        parts = [prefix.repeat_interleave(self.beams, dim=2)]
        if (num_shared := num_tokens - suffixes.shape[4]) > 0:
            prefixes = [self.prefix[:, :, row, :, start : start + num_shared] for row, start in enumerate(lengths)]
            parts.append(torch.stack(prefixes, dim=2).repeat_interleave(self.beams, dim=2))
        parts.append(suffixes if self.slots is None else suffixes.index_select(2, self.slots))
        halves = []
        for states in (torch.cat(parts, dim=4), source.repeat_interleave(self.beams, dim=2)):
            half = DynamicCache(config=self.config)
            for layer_idx, (keys, values) in enumerate(by_layer(states)):
                half.update(keys, values, layer_idx)
            halves.append(half)
        return EncoderDecoderCache(*halves)


class SourceCache:
    """Keys and values of the source, stored once for all beams and without masked columns."""

    def __init__(self) -> None:
        self.states = torch.empty(0)  # (2, L, B, G, kept, K)
        self.positions = torch.empty(0)  # their positions, (B or 1, kept)
        self.lengths: list[int] = []
        self.mask: torch.Tensor | None = None  # (B, 1, 1, kept), if the sources differ in length

    def add(self, states: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Add sources.

        Args:
            states: keys and values of all layers (2, L, B, G, M, K), keys first.
            mask: mask of shape (B, M), 1 for source positions that the decoder may see. None if it may see all.
        """
        states, columns, lengths = gather_visible(states, mask)
        positions = columns - columns[:, :1]  # pads before the first have none
        if self.lengths:  # only where attention does not read positions of the source
            width = max(states.shape[4], self.states.shape[4])
            both = (pad(part, (0, 0, 0, width - part.shape[4])) for part in (self.states, states))
            states, positions = torch.cat(list(both), dim=2), torch.arange(width, device=states.device)[None]
        self.states, self.positions, self.lengths = states, positions, self.lengths + lengths
        self._mask_ends()

    def _mask_ends(self) -> None:
        """Remove the columns that no source uses, and mask the columns after shorter sources."""
        longest = max(self.lengths)
        self.states, self.positions = self.states[:, :, :, :, :longest], self.positions[:, :longest]
        self.mask = None
        if min(self.lengths) < longest:
            lengths = torch.tensor(self.lengths, device=self.states.device)[:, None]
            self.mask = (torch.arange(longest, device=self.states.device) < lengths)[:, None, None]

    def batch_select_indices(self, sources: list[int]) -> None:
        """Keep some sources, as [`DecodingCache.batch_select_indices`] does, and no more columns than they need."""
        self.states = _move(self.states, 2, sources)
        if len(self.positions) > 1:
            self.positions = _move(self.positions, 0, sources)
        self.lengths = [self.lengths[source] for source in sources]
        self._mask_ends()


def take_states(cache: Cache) -> torch.Tensor:
    """Remove the keys and values of all layers from the cache, and return them as (2, L, B, G, T, K)."""
    keys, values = ([getattr(layer, kind) for layer in cache.layers] for kind in ("keys", "values"))
    cache.layers = []
    return torch.stack([*keys, *values]).unflatten(0, (2, -1))


def by_layer(states: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Split states (2, L, ...) into the keys and values of each layer."""
    keys, values = states.unbind()
    return list(zip(keys.unbind(), values.unbind(), strict=True))


def gather_visible(
    states: torch.Tensor, mask: torch.Tensor | None, at_end: bool = False
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return the states (2, L, B, G, N, K) that a mask (B, T) shows, their columns (B or 1, N), and each row's number.

    The shown states are the first of their row, or with `at_end` the last. Rows with fewer also have hidden ones.
    """
    visible = None if mask is None else mask.bool()
    if visible is None or visible.all():
        columns = torch.arange(states.shape[4], device=states.device)[None]
        return states, columns, [states.shape[4]] * states.shape[2]
    lengths = visible.sum(dim=-1)
    longest = int(lengths.max())
    columns = (visible if at_end else ~visible).long().argsort(dim=-1, stable=True)
    columns = columns[:, -longest:] if at_end else columns[:, :longest]
    index = columns[None, None, :, None, :, None]
    index = index.expand(*states.shape[:2], -1, states.shape[3], -1, states.shape[5])
    return states.gather(4, index), columns, lengths.tolist()


def compaction_order(done: Sequence[bool]) -> list[int] | None:
    """Return the source in each place after those that are done have left, or None if none or all of them are done.

    The last sources take the places of those that leave. All others stay where they are.
    """
    num_sources = len(done) - sum(done)
    if num_sources in (0, len(done)):
        return None
    behind = (source for source in range(num_sources, len(done)) if not done[source])
    return [next(behind) if done[source] else source for source in range(num_sources)]


def rows_of(sources: list[int], rows: int) -> list[int]:
    """Return the numbers of the rows of some sources."""
    return [source * rows + row for source in sources for row in range(rows)]


def renumbered(rows_W: torch.Tensor, sources: list[int], beams: int) -> torch.Tensor:
    """Return the entries for the rows of some sources. Each entry, a row of the same source, gets its new number."""
    origins = torch.tensor(sources, device=rows_W.device)
    shifts = torch.arange(len(sources), device=rows_W.device) - origins
    return (rows_W.view(-1, beams)[origins] + shifts[:, None] * beams).flatten()


def _move(states: torch.Tensor, dim: int, sources: list[int], rows: int = 1) -> torch.Tensor:
    """Return a view with the states of some sources, of `rows` rows each. Those that change their place are copied."""
    states_by_row = states.movedim(dim, 0)
    for place, source in enumerate(sources):
        if place != source:
            states_by_row[place * rows : (place + 1) * rows] = states_by_row[source * rows : (source + 1) * rows]
    return states.narrow(dim, 0, len(sources) * rows)


def _with_room(states: torch.Tensor, like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return states (2, L, rows, G, columns, K) with at least these rows and columns. What grows at least doubles."""
    kinds, layers, _, heads, _, width = like.shape
    if states.ndim == 1:
        return like.new_empty(kinds, layers, rows, heads, columns, width)
    sizes = states.shape[2], states.shape[4]
    if rows <= sizes[0] and columns <= sizes[1]:
        return states
    new_sizes = [
        size if least <= size else max(least, 2 * size) for size, least in zip(sizes, (rows, columns), strict=True)
    ]
    larger_states = like.new_empty(kinds, layers, new_sizes[0], heads, new_sizes[1], width)
    larger_states[:, :, : sizes[0], :, : sizes[1]] = states
    return larger_states

"""The cache of a search whose sources come and go (see `decoding_continuous.py`).

It keeps what `BeamCache` and `SourceCache` keep, with a length of its own for each source: the prefix that its beams share,
the suffix of each beam, and the keys and values of the source all begin at the first column. Masks hide what is behind a
length. So the columns are as many as the longest text needs, however long the search runs.

Shape suffixes: L layers of the decoder, B sources, S beams of each, W = B * S rows, G key-value heads, P columns of the
prefix, T columns of the suffixes, M columns of the source, K width of a head.
"""

import torch

from .decoding_cache import BeamCache, SourceCache
from .decoding_leaving import move


class Columns:
    """States (2, L, rows, G, columns, K) of rows of different lengths, in a tensor that grows. What is not used is 0.

    Args:
        rows: rows of each source.
    """

    # Rows of sources and columns that are allocated at first.
    _FEWEST_SOURCES, _FEWEST_COLUMNS = 4, 64
    # The step takes a single column for that of the new token.
    _SHORTEST = 2

    def __init__(self, rows: int):
        self.rows = rows
        self.states = torch.empty(0)
        self.lengths: list[int] = []  # of each source

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def used(self) -> torch.Tensor:
        """Return the rows and columns in use, two columns at least."""
        return self.states[:, :, : len(self.lengths) * self.rows, :, : max(self._SHORTEST, self.longest)]

    def mask(self) -> torch.Tensor | None:
        """Return an additive mask (B, columns) of what is behind the length of each source, or None if all are as long."""
        width = max(self._SHORTEST, self.longest)
        if min(self.lengths) == width:
            return None
        lengths = torch.tensor(self.lengths, device=self.states.device)[:, None]
        mask = self.states.new_zeros(len(self.lengths), width)
        return mask.masked_fill_(torch.arange(width, device=mask.device) >= lengths, float("-inf"))

    def add(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Add a source, and return the view (2, L, rows, G, length, K) for its states."""
        first = len(self.lengths) * self.rows
        self.make_room(first + self.rows, length, like)
        self.lengths.append(length)
        return self.states[:, :, first : first + self.rows, :, :length]

    def make_room(self, rows: int, columns: int, like: torch.Tensor) -> None:
        """Enlarge the tensor if it has fewer rows or columns."""
        old = self.states if self.states.ndim == 6 else None
        sizes = (0, 0) if old is None else (old.shape[2], old.shape[4])
        if rows <= sizes[0] and columns <= sizes[1]:
            return
        wanted = [
            size if size >= asked else max(asked, 2 * size) for size, asked in zip(sizes, (rows, columns), strict=True)
        ]
        wanted = [
            max(one, least)
            for one, least in zip(wanted, (self._FEWEST_SOURCES * self.rows, self._FEWEST_COLUMNS), strict=True)
        ]
        kinds, layers, _, heads, _, width = like.shape
        # masked, but NaN times 0 is NaN
        self.states = like.new_zeros(kinds, layers, wanted[0], heads, wanted[1], width)
        if old is not None:
            self.states[:, :, : sizes[0], :, : sizes[1]] = old

    def keep(self, sources: list[int]) -> None:
        """Keep some sources, as [`BeamCache.keep`] does."""
        move(self.states[:, :, :, :, : max(self._SHORTEST, self.longest)], 2, sources, self.rows)
        self.lengths = [self.lengths[source] for source in sources]


class PoolCache:
    """Keys and values of targets and sources.

    Args:
        beams: number of beams of each source.
    """

    def __init__(self, beams: int):
        self.beams = beams
        self.prefix, self.suffixes, self.source = Columns(1), Columns(beams), Columns(1)
        # of each column of each slot (W, T), as in `BeamCache`
        self.writers = torch.zeros(0, 0, dtype=torch.int32)
        self.slots: list[int] = []  # of each rank

    def add(self, prefix: torch.Tensor, pads: list[int], source: SourceCache) -> None:
        """Add sources.

        Args:
            prefix: keys and values of the prefix (2, L, B, G, P, K).
            pads: the number of pads on the left of each prefix.
            source: keys and values of the source.
        """
        whole = source.states.shape[4]
        lengths = [whole] * len(pads) if source.lengths is None else source.lengths.tolist()
        for index, (first, length) in enumerate(zip(pads, lengths, strict=True)):
            rows = len(self.slots)
            self.prefix.add(prefix.shape[4] - first, prefix)[:] = prefix[:, :, index : index + 1, :, first:]
            self.suffixes.add(0, prefix)
            self.source.add(length, source.states)[:] = source.states[:, :, index : index + 1, :, :length]
            self.slots += range(rows, rows + self.beams)
        self._make_room_for_writers()

    def _make_room_for_writers(self) -> None:
        shape = self.suffixes.states.shape[2], self.suffixes.states.shape[4]
        if self.writers.shape != shape:
            writers = torch.zeros(shape, dtype=torch.int32, device=self.suffixes.states.device)
            writers[: self.writers.shape[0], : self.writers.shape[1]] = self.writers
            self.writers = writers

    def keep(self, sources: list[int]) -> None:
        """Keep some sources, as [`BeamCache.keep`] does."""
        beams = self.beams
        self.slots = [
            self.slots[source * beams + rank] + (place - source) * beams
            for place, source in enumerate(sources)
            for rank in range(beams)
        ]
        for columns in (self.prefix, self.suffixes, self.source):
            columns.keep(sources)
        move(self.writers, 0, sources, beams)

    def reorder(self, parents: list[int]) -> None:
        """Reorder the beams: rank i continues the beam that had rank `parents[i]`."""
        wanted, beams = [self.slots[parent] for parent in parents], self.beams
        self.slots, copies = wanted[:], []
        for source in range(len(wanted) // beams):
            ranks = range(source * beams, (source + 1) * beams)
            own = wanted[ranks.start : ranks.stop]
            if len(set(own)) == beams or not self.suffixes.lengths[source]:
                self.slots[ranks.start : ranks.stop] = own if self.suffixes.lengths[source] else list(ranks)
                continue
            free, taken = iter(set(ranks).difference(own)), set[int]()
            for rank in ranks:
                if wanted[rank] in taken:
                    self.slots[rank] = next(free)
                    copies.append((wanted[rank], self.slots[rank], self.suffixes.lengths[source]))
                taken.add(wanted[rank])
        if copies:
            self._copy(copies)

    def _copy(self, copies: list[tuple[int, int, int]]) -> None:
        """Copy the suffix of one slot to another, from the token at which the two differ up to the length of the source."""
        origins, targets, lengths = (list(one) for one in zip(*copies, strict=True))
        longest = max(lengths)
        same = self.writers[origins, :longest] == self.writers[targets, :longest]
        is_used = torch.arange(longest, device=same.device) < torch.tensor(lengths, device=same.device)[:, None]
        by_slot = self.suffixes.states.unbind(2)
        for origin, target, end, start in zip(
            origins, targets, lengths, (same & is_used).sum(dim=-1).tolist(), strict=True
        ):
            by_slot[target][:, :, :, start:end].copy_(by_slot[origin][:, :, :, start:end])
            self.writers[target, start:end] = self.writers[origin, start:end]

    def append(self, states: torch.Tensor) -> None:
        """Append the keys and values of a token of each row (2, L, W, G, K), in the order of the slots."""
        rows, device = states.shape[2], states.device
        lengths = self.suffixes.lengths
        self.suffixes.make_room(rows, max(lengths) + 1, self.suffixes.states)
        self._make_room_for_writers()
        every = torch.arange(rows, device=device)
        own = (every % self.beams).to(torch.int32)
        if min(lengths) == max(lengths):  # one column is faster to write
            self.suffixes.states[:, :, :rows, :, lengths[0]] = states
            self.writers[:rows, lengths[0]] = own
        else:
            columns = torch.tensor(lengths, device=device).repeat_interleave(self.beams)
            self.suffixes.states[:, :, every, :, columns] = states.permute(2, 0, 1, 3, 4)
            self.writers[every, columns] = own
        self.suffixes.lengths = [length + 1 for length in lengths]
        if self.beams > 1:
            for source, length in enumerate(self.suffixes.lengths):
                if length % BeamCache.SHARE_EVERY == 0:
                    self._share(source, length)

    def _share(self, source: int, length: int) -> None:
        """Move the tokens that all beams of a source share to its prefix, if there are enough of them."""
        slots = slice(source * self.beams, (source + 1) * self.beams)
        writers = self.writers[slots, :length]
        common = int((writers == writers[:1]).all(dim=0).sum())
        rest = length - common
        if common < max(BeamCache.SHARE_EVERY // 2, rest // 2):
            return
        begin = self.prefix.lengths[source]
        self.prefix.make_room(len(self.prefix.lengths), begin + common, self.prefix.states)
        suffixes = self.suffixes.states[:, :, slots]
        self.prefix.states[:, :, source, :, begin : begin + common] = suffixes[:, :, 0, :, :common]
        suffixes[:, :, :, :, :rest] = suffixes[:, :, :, :, common:length].clone()
        writers[:, :rest] = writers[:, common:].clone()
        self.prefix.lengths[source], self.suffixes.lengths[source] = begin + common, rest

"""The decoding step for several tokens of a row at once: the last token of a beam, and drafts of what may follow it.

It computes what `DecodeStep` computes. The tokens of a row form a tree: a token sees the shared prefix, the suffix of its
row, and its own ancestors in the tree. Their keys and values are in a pool of all rows, from which a search moves those of
the tokens that it takes to the suffixes (`decoding_ahead.py`). Products with weights see one flat list of tokens. Only
attention to the source, the shared prefix and the suffixes needs rectangles, in which rows with fewer tokens are padded.

Shape suffixes: N new tokens, T tokens of the pool with the new ones, B sources, W rows (the beams of all sources), A rows
with new tokens, Q tokens of a row of a rectangle, C columns of the suffixes, P columns of the shared prefix, M source
positions, L layers, D width, H heads, G key-value heads, R = H / G heads that share keys, K width of a head, X anything.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from .attention import AttentionBase
from .decoding_cache import BeamCache, DecodingCache, by_layer
from .decoding_step import DecodeStep
from .layers import at_least_float32
from .masks import additive
from .positions import AttentionPositions, TokenPositions, attention_positions


class Pool:
    """Keys and values (2, L, T, G, K) of verified tokens that no row has taken so far, and their positions (T,)."""

    def __init__(self, like: torch.Tensor):
        kinds, layers, _, heads, _, width = like.shape
        self.states = like.new_empty(kinds, layers, 0, heads, width)
        self.positions = torch.empty(0, dtype=torch.long, device=like.device)

    def renew(self, kept: list[int], new_positions: torch.Tensor) -> None:
        """Keep only some tokens, in this order, and make room for new ones behind them."""
        index = torch.tensor(kept, dtype=torch.long, device=self.positions.device)
        shape = self.states.shape
        states = self.states.new_empty(*shape[:2], len(kept) + len(new_positions), *shape[3:])
        states[:, :, : len(kept)] = self.states.index_select(2, index)
        self.states, self.positions = states, torch.cat([self.positions[index], new_positions])


class Tokens(NamedTuple):
    """New tokens, in the order of their rows and sources.

    Args:
        ids: their ids.
        positions: their positions.
        slots: for each row with new tokens, its slot in the cache and the number of its new tokens.
        sees: for each token, the tokens of the pool that it sees (N, T): itself and its ancestors.
    """

    ids: list[int]
    positions: list[int]
    slots: list[tuple[int, int]]
    sees: torch.Tensor


class Grid:
    """Arranges tokens in a rectangle with a row for each group, and back. Tokens of a group are neighbours.

    Args:
        sizes: the number of tokens in each row of the rectangle.
        device: the device of the tokens.
    """

    def __init__(self, sizes: list[int], device: torch.device):
        self.rows, self.width = len(sizes), max(sizes)
        self.is_full = min(sizes) == self.width
        if not self.is_full:
            places = [row * self.width + place for row, size in enumerate(sizes) for place in range(size)]
            self.places_N = torch.tensor(places, device=device)
            cells = torch.zeros(self.rows * self.width, dtype=torch.long)  # cells without a token repeat the first
            cells[places] = torch.arange(len(places))
            self.cells = cells.to(device)

    def arranged(self, states_N: torch.Tensor) -> torch.Tensor:
        """Reshape (N, ...) to (rows, Q, ...)."""
        states = states_N if self.is_full else states_N.index_select(0, self.cells)
        return states.reshape(self.rows, self.width, *states_N.shape[1:])

    def queries(self, states_NGRX: torch.Tensor) -> torch.Tensor:
        """Reshape (N, G, R, X) to (rows, G, Q * R, X)."""
        return self.arranged(states_NGRX).transpose(1, 2).flatten(2, 3)

    def tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Reshape (rows, G, Q * R, X) to (N, G, R, X)."""
        states = states.unflatten(2, (self.width, -1)).transpose(1, 2).flatten(0, 1)
        return states if self.is_full else states.index_select(0, self.places_N)


class Part(NamedTuple):
    """Keys and values (rows, G, X, K) of each layer that tokens attend to, how the tokens are arranged, and a mask.

    The additive mask broadcasts to (rows, G, Q * R, X).
    """

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    grid: Grid
    mask: torch.Tensor | None


class WideStep:
    """Runs the modules of a `DecodeStep` over any number of tokens of each row.

    Args:
        step: the step of the request. It must not be compiled.
    """

    # The number of tokens that the layout of the weights is made for.
    TOKENS = 8

    def __init__(self, step: DecodeStep):
        assert not step.compiled
        self.step, self.config = step, step.config

    def run(self, new: Tokens, cache: DecodingCache, pool: Pool) -> torch.Tensor:
        """Return the logits (N, vocabulary) after each new token.

        Write the keys and values of the new tokens to the last places of the pool, which has room for them.
        """
        self.step._pack(self.TOKENS)
        with self.step.without_gradients():
            return self._logits(new, cache, pool)

    def _logits(self, new: Tokens, cache: DecodingCache, pool: Pool) -> torch.Tensor:
        step, target = self.step, cache.target
        device = pool.states.device
        sizes = [0] * target.sources
        for slot, size in new.slots:
            sizes[slot // target.beams] += size
        sources = [source for source, size in enumerate(sizes) if size]
        index_B = None if len(sources) == len(sizes) else torch.tensor(sources, device=device)
        by_source = Grid([sizes[source] for source in sources], device)
        ids_N, positions_N = torch.tensor(new.ids, device=device), torch.tensor(new.positions, device=device)
        hidden_ND = step._embed(ids_N, TokenPositions(positions_N[:, None]))
        of_self, self_bias = self._self_positions(positions_N, target, pool, hidden_ND)
        of_source, source_bias = self._source_positions(
            positions_N, cache.source.positions, index_B, by_source, hidden_ND
        )
        parts = self._parts(new, target, pool, by_source, index_B)
        source = by_layer(cache.source.states)
        mask = None if cache.source.mask is None else _selected(cache.source.mask, index_B)
        written = pool.states[:, :, len(pool.positions) - len(new.ids) :]
        for index, layer in enumerate(step.decoder.layers):
            residual = hidden_ND
            hidden_ND = layer._pre_norm(layer.self_attn_layer_norm, residual)
            query_NHK, written[0, index], written[1, index] = step._projected(index, hidden_ND, of_self)
            hidden_ND = self._over_parts(
                layer.self_attn, query_NHK, [(part.layers[index], part.grid, part.mask) for part in parts], self_bias
            )
            hidden_ND = layer._add_residual(layer.self_attn_layer_norm, residual, hidden_ND)
            residual = hidden_ND
            hidden_ND = layer._pre_norm(layer.encoder_attn_layer_norm, residual)
            states = [_selected(half, index_B) for half in source[index]]
            hidden_ND = self._over_source(
                layer.encoder_attn, hidden_ND, (states, by_source, mask), of_source, source_bias
            )
            hidden_ND = layer._add_residual(layer.encoder_attn_layer_norm, residual, hidden_ND)
            residual = hidden_ND
            hidden_ND = layer.mlp(layer._pre_norm(layer.final_layer_norm, residual))
            hidden_ND = layer._add_residual(layer.final_layer_norm, residual, hidden_ND)
        return step.lm_head(step.decoder._finish(hidden_ND))

    def _parts(
        self, new: Tokens, target: BeamCache, pool: Pool, by_source: Grid, index_B: torch.Tensor | None
    ) -> list[Part]:
        """Return what the new tokens attend to: the shared prefix, the suffixes, and their ancestors in the pool."""
        device, parts = pool.states.device, []
        if target.beams > 1:
            length = target.prefix_length
            layers = [
                (_selected(keys, index_B), _selected(values, index_B))
                for keys, values in by_layer(target.prefix[:, :, :, :, :length])
            ]
            mask = _selected(target.mask, index_B)[:, None, None, :length] if target.is_masked else None
            parts.append(Part(layers, by_source, mask))
        if target.suffix_length:
            slots, length = [slot for slot, _ in new.slots], target.suffix_length
            suffixes = target.suffixes[:, :, :, :, :length]
            rows = torch.tensor(slots, device=device)
            if slots == list(range(slots[0], slots[0] + len(slots))):
                suffixes = suffixes[:, :, slots[0] : slots[0] + len(slots)]
            else:
                suffixes = suffixes.index_select(2, rows)
            mask = target.mask[rows, None, None, :length] if target.beams == 1 and target.is_masked else None
            parts.append(Part(by_layer(suffixes), Grid([size for _, size in new.slots], device), mask))
        hidden_NT = torch.zeros(new.sees.shape, dtype=pool.states.dtype, device=device)
        hidden_NT.masked_fill_(~new.sees.to(device), float("-inf"))
        mask = hidden_NT.repeat_interleave(self.step.heads // self.step.groups, dim=0)
        layers = by_layer(pool.states.transpose(2, 3)[:, :, None])
        return [*parts, Part(layers, Grid([len(new.ids)], device), mask)]

    def _self_positions(self, positions_N: torch.Tensor, target: BeamCache, pool: Pool, like: torch.Tensor):
        """Return what projections need of positions, and what the bias of relative positions needs, if there is one."""
        config, rotary = self.config, self.step.decoder.rotary_embedding
        kind, positions = config.self_attention_position_type, TokenPositions(positions_N[:, None])
        if not config.has_relative_self_attention:
            return attention_positions(kind, config, positions, positions, positions, rotary, like), None
        # no row is padded on the left then, so a column has one position
        keys = TokenPositions(torch.cat([*target.key_positions(), pool.positions])[None])
        queries = TokenPositions(positions_N[None])
        return None, attention_positions(kind, config, queries, keys, keys, rotary, like, looks_ahead=False)

    def _source_positions(
        self, positions_N: torch.Tensor, source_positions, index_B, by_source: Grid, like: torch.Tensor
    ):
        config, rotary = self.config, self.step.decoder.rotary_embedding
        kind, positions = config.cross_attention_position_type, TokenPositions(positions_N[:, None])
        if kind not in ("relative", "bucketed"):
            return attention_positions(
                kind, config, positions, positions, positions, rotary, like, is_cross=True
            ), None
        queries = TokenPositions(by_source.arranged(positions_N))
        keys = TokenPositions(source_positions if len(source_positions) == 1 else _selected(source_positions, index_B))
        return None, attention_positions(kind, config, queries, keys, keys, rotary, like, is_cross=True)

    def _over_parts(
        self, attention: AttentionBase, query_NHK: torch.Tensor, parts: list, positions: AttentionPositions | None
    ) -> torch.Tensor:
        """Compute self-attention over all parts, with one softmax."""
        query_NGRK = query_NHK.unflatten(1, (self.step.groups, -1)) * attention.scaling
        scores = []
        for (keys, _), grid, mask in parts:
            part = torch.matmul(grid.queries(query_NGRK), keys.transpose(2, 3))
            scores.append(grid.tokens(part if mask is None else part + mask))
        joined = torch.cat(scores, dim=-1)
        bias_1HNT = attention._bias(query_NHK[:1, :, None], positions)
        if bias_1HNT is not None:
            joined = joined + bias_1HNT[0].transpose(0, 1).unflatten(1, (self.step.groups, -1))
        weights = joined.softmax(dim=-1, dtype=at_least_float32(joined.dtype)).to(query_NHK.dtype)
        by_part = torch.split(weights, [part.shape[-1] for part in scores], dim=-1)
        mixed = torch.zeros_like(query_NGRK)
        for part, ((_, values), grid, _) in zip(by_part, parts, strict=True):
            mixed += grid.tokens(torch.matmul(grid.queries(part), values))
        return attention.out_proj(mixed.flatten(1))

    def _over_source(
        self, attention: AttentionBase, hidden_ND: torch.Tensor, part: tuple, positions, bias_positions
    ) -> torch.Tensor:
        """Compute cross-attention."""
        step, (states, by_source, mask) = self.step, part
        if attention.position_table is not None:
            hidden_ND = attention._with_positions(hidden_ND[:, None], positions.query)[:, 0]
        query_NHK = step._rotated(
            attention, attention.q_proj(hidden_ND).view(len(hidden_ND), -1, step.width), positions
        )
        query = by_source.queries(query_NHK.unflatten(1, (step.groups, -1)))
        bias_BHQM = attention._bias(query_NHK[:1, :, None].expand(by_source.rows, -1, -1, -1), bias_positions)
        if bias_BHQM is not None:
            bias = bias_BHQM.unflatten(1, (step.groups, -1)).transpose(2, 3).flatten(2, 3)
            mask = bias if mask is None else bias + additive(mask, bias.dtype)
        mixed = scaled_dot_product_attention(query, states[0], states[1], attn_mask=mask, scale=attention.scaling)
        return attention.out_proj(by_source.tokens(mixed).flatten(1))


def _selected(states: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
    return states if index is None else states.index_select(0, index)

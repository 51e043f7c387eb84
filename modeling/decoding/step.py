"""The decoding step of the fast path: one more token for every beam, with fewer operations than a whole forward pass.

The plain path is the reference: `tests/generation/test_decoding.py` compares this step with it. The results are the
same, because only repeated or useless work is saved:

- The beams of a source have the same source, and the same target tokens up to where they branch. Keys and values of
  both are stored once (`cache.py`), and the beams become rows of one query.
- Masked source positions are left out.
- Queries, keys and values are projected in one product.

Shape suffixes: L layers, B sources, S beams of each, W = B * S rows, D width, H heads, G key-value heads, R = H / G
heads that share keys, K width of a head, T tokens of a suffix, N tokens, M source positions.
"""

from functools import reduce
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, threshold

from ..attention import AttentionBase, KeysValues
from ..layers import at_least_float32
from ..masks import additive
from ..positions import TokenPositions, attention_positions, embed_positions, rotate
from .cache import DecodingCache, by_layer
from .compiled import CompiledStep

# Rotary types whose frequencies transformers changes as a sequence grows.
GROWING_ROTARY = ("dynamic", "longrope")
# Attention weights that count as 0. Products with numbers below 1e-38 take a processor many times as long as others,
# and a trained model has such numbers in every step.
_NOTHING = 1e-30


class DecodeStep(nn.Module):
    """The decoder and its head, for one more token of each row.

    Args:
        model: a `WeftForConditionalGeneration` that may take the fast path. Its weights must not change while the step
            is in use.
        compiled: whether to run one compiled graph, with the weights as constants in the layout of the kernels.
        joined: whether to project queries, keys and values with joined copies of their weights.
    """

    def __init__(self, model: Any, compiled: bool = False, joined: bool = True):
        super().__init__()
        self.decoder, self.lm_head, self.config = model.model.decoder, model.lm_head, model.config
        self.heads, self.groups, self.width = self.config.stack_heads(is_decoder=True)
        # with an additive position table, values are projected from other states than queries and keys
        self.has_table = self.config.self_attention_position_type == "additive"
        # with relative positions, all rows need the same position
        kinds = (self.config.self_attention_position_type, self.config.cross_attention_position_type)
        self.has_relative = any(kind in ("relative", "bucketed") for kind in kinds)
        # for each layer, the projections of queries, keys and values
        self.projections = projections(self.decoder, joined)
        self.compiled = CompiledStep(self) if compiled else None
        rotary = self.decoder.rotary_embedding
        # Inference mode saves bookkeeping, a twentieth of a step, but frequencies that the model keeps must not be
        # made in it.
        grows = rotary is not None and rotary.rope_type in GROWING_ROTARY
        self.without_gradients = torch.no_grad if grows else torch.inference_mode
        self.training = False  # as all of its modules are; `eval` would visit each of them

    def step(self, ids_W1: torch.Tensor, cache: DecodingCache) -> torch.Tensor:
        """Return the logits (W, vocabulary) of the next token, and add the keys and values of `ids_W1` to the cache.

        Args:
            ids_W1: the last token of each row.
            cache: the cache of the previous tokens.
        """
        cache.grow()
        ids_W = ids_W1.new_empty(len(ids_W1))
        if cache.slots is None:
            ids_W.copy_(ids_W1[:, 0])
        else:  # from the order of the ranks to the order of the slots
            ids_W.index_copy_(0, cache.slots, ids_W1[:, 0])
        position_ids = cache.next_positions()
        compiled = self.compiled if cache.end > 1 else None  # compiled steps take lengths from 2 on
        prefix, suffixes = cache.past()
        prefix_mask, suffix_mask = cache.masks()
        if compiled is not None:
            if not self.has_relative:  # one shape, whether rows differ or not
                position_ids = position_ids.expand(len(ids_W), 1)
            if prefix is not None and prefix_mask is None:
                prefix_mask = prefix.new_zeros(prefix.shape[2], prefix.shape[4])
        past = (prefix, suffixes, *cache.key_positions(), prefix_mask, suffix_mask)
        arguments = (ids_W, position_ids, *past, cache.source.states, cache.source.positions, cache.source.mask)
        if compiled is not None:
            logits, states = compiled(arguments)
            cache.next_column().copy_(states)
        else:
            with self.without_gradients():
                logits, _ = self(*arguments, into=cache.next_column())
            logits = logits.clone()  # processors of the user may change it
        cache.end_step()
        return logits if cache.slots is None else logits.index_select(0, cache.slots)

    def forward(
        self,
        ids_W,
        position_ids,
        prefix,
        suffixes,
        prefix_positions,
        suffix_positions,
        prefix_mask,
        suffix_mask,
        source,
        source_positions,
        source_mask,
        into=None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the logits (W, vocabulary) and, without `into`, the new keys and values (2, L, W, G, K).

        Args:
            ids_W: the last token of each row.
            position_ids: its positions, of shape (1, 1) or (W, 1).
            prefix: the shared prefix of shape (2, L, B, G, capacity, K), None if there is none.
            suffixes: the suffixes of shape (2, L, W, G, capacity, K).
            prefix_positions, suffix_positions: key positions of the columns in use, of the shared prefix (None if
                there is none) and of the suffixes.
            prefix_mask, suffix_mask: additive masks (B, capacity) of the shared prefix and of the suffixes, or None.
            source: keys and values of the source (2, L, B, G, M, K).
            source_positions: key positions of the source (B or 1, M).
            source_mask: mask of the source (B, 1, 1, M), or None.
            into: the next column of the suffixes, to which the new keys and values are written. A compiled graph
                returns them instead, because a graph that writes to an input copies it.
        """
        key_positions = [suffix_positions] if prefix is None else [prefix_positions, suffix_positions]
        past = [by_layer(suffixes[:, :, :, :, : suffix_positions.shape[0] + int(into is not None)])]
        masks = [suffix_mask]
        if prefix is not None:
            past.insert(0, by_layer(prefix[:, :, :, :, : prefix_positions.shape[0]]))
            masks.insert(0, prefix_mask)
        lengths = [part[0][0].shape[2] for part in past]
        new: list[torch.Tensor] = []
        if into is None:  # the new tokens are a part of their own
            masks, lengths = [*masks, None], [*lengths, 1]

            def write(index, key_WGK, value_WGK):
                new.append(torch.stack([key_WGK, value_WGK]))
                return [(key_WGK[:, :, None], value_WGK[:, :, None])]
        else:
            columns = by_layer(into)

            def write(index, key_WGK, value_WGK):
                columns[index][0].copy_(key_WGK)
                columns[index][1].copy_(value_WGK)
                return []

        mask = _joined_mask(masks, lengths, suffixes)
        beams = len(ids_W) // source.shape[2]
        source = by_layer(source), source_positions, source_mask, beams
        logits = self.logits(ids_W, position_ids, past, key_positions, mask, source, write)
        return logits, torch.stack(new, dim=1) if new else None

    def logits(self, ids_W, position_ids, past, key_positions, mask, source, write) -> torch.Tensor:
        """Return the logits (W, vocabulary).

        Args:
            ids_W, position_ids: as in `forward`.
            past: for each part of the past, the keys and values of each layer (B or W, G, T, K).
            key_positions: key positions of all parts but that of the last token.
            mask: additive mask of all parts (W, 1, 1, N), or None.
            source: keys and values of the source of each layer, their positions and their mask, as in `forward`, and the
                number of rows of each source.
            write: gets the number of a layer and the key and value (W, G, K) of the last token. It writes them to
                `past`, or returns them as further parts.
        """
        positions = TokenPositions(position_ids)
        hidden_WD = self._embed(ids_W, positions)
        source, source_positions, source_mask, beams = source
        past_positions, cross_positions = self._positions(positions, key_positions, source_positions, hidden_WD)
        for index, layer in enumerate(self.decoder.layers):
            residual = hidden_WD
            hidden_WD = layer._pre_norm(layer.self_attn_layer_norm, residual)
            query_WHK, key_WGK, value_WGK = self._projected(index, hidden_WD, past_positions)
            parts = [*(part[index] for part in past), *write(index, key_WGK, value_WGK)]
            hidden_WD = self._over_past(layer.self_attn, query_WHK, parts, past_positions, mask)
            hidden_WD = layer._add_residual(layer.self_attn_layer_norm, residual, hidden_WD)
            residual = hidden_WD
            hidden_WD = layer._pre_norm(layer.encoder_attn_layer_norm, residual)
            of_source = source[index], cross_positions, source_mask, beams
            hidden_WD = self._over_source(layer.encoder_attn, hidden_WD, *of_source)
            hidden_WD = layer._add_residual(layer.encoder_attn_layer_norm, residual, hidden_WD)
            residual = hidden_WD
            hidden_WD = layer.mlp(layer._pre_norm(layer.final_layer_norm, residual))
            hidden_WD = layer._add_residual(layer.final_layer_norm, residual, hidden_WD)
        return self.lm_head(self.decoder._finish(hidden_WD))

    def _embed(self, ids_W: torch.Tensor, positions: TokenPositions) -> torch.Tensor:
        decoder = self.decoder
        hidden_WD = decoder.embed_tokens(ids_W) * decoder.embed_scale
        if decoder.embed_positions is not None:
            hidden_WD = hidden_WD + embed_positions(decoder.embed_positions, positions, hidden_WD.dtype)[:, 0]
        return hidden_WD if decoder.layernorm_embedding is None else decoder.layernorm_embedding(hidden_WD)

    def _positions(self, positions: TokenPositions, key_positions, source_positions: torch.Tensor, like: torch.Tensor):
        """Return the position tensors of self-attention and cross-attention, once for all layers."""
        config, rotary = self.config, self.decoder.rotary_embedding
        keys = TokenPositions(torch.cat([*key_positions, positions.ids_BT[0]])[None])
        past = attention_positions(
            config.self_attention_position_type, config, positions, keys, positions, rotary, like, looks_ahead=False
        )
        keys = TokenPositions(source_positions)
        return past, attention_positions(
            config.cross_attention_position_type, config, positions, keys, positions, rotary, like, is_cross=True
        )

    def _projected(self, index: int, hidden_WD: torch.Tensor, positions):
        """Return the query (W, H, K), and key and value (W, G, K), of the new token."""
        attention: AttentionBase = self.decoder.layers[index].self_attn
        states_WD = hidden_WD
        if self.has_table:
            states_WD = attention._with_positions(hidden_WD[:, None], positions.query)[:, 0]
        heads = self.projections[index](states_WD).view(len(hidden_WD), -1, self.width)
        if self.has_table:
            query, key = heads.split([self.heads, self.groups], dim=1)
            value = attention.v_proj(hidden_WD).view(-1, self.groups, self.width)
        else:
            query, key, value = heads.split([self.heads, self.groups, self.groups], dim=1)
        if attention.k_norm is not None:
            key = attention.k_norm(key)
        if positions is not None and positions.query_rotation is not None:
            key = rotate(key[:, :, None], positions.query_rotation)[:, :, 0]
        return self._rotated(attention, query, positions), key, value

    def _over_past(
        self, attention: AttentionBase, query_WHK, parts: list[KeysValues], positions, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute self-attention over the given parts, with one softmax over all of them.

        The parts are the shared prefix, if there is one, the suffixes, and the new tokens, if they are not in the
        suffixes. `mask` (W, 1, 1, N) is for all of them.
        """
        query_WGRK = query_WHK.view(query_WHK.shape[0], self.groups, -1, self.width)
        bias: torch.Tensor | None = attention._bias(query_WHK[:1, :, None], positions)
        if bias is not None:  # (1, G, R, N), the same for all rows: rows with different padding take the plain path
            bias = bias.view(1, self.groups, -1, bias.shape[-1])
        if len(parts) == 1:
            mask = bias if mask is None else mask if bias is None else mask + bias
            mixed = scaled_dot_product_attention(query_WGRK, *parts[0], attn_mask=mask, scale=attention.scaling)
            return attention.out_proj(mixed.reshape(query_WHK.shape[0], -1))
        query_WGRK = query_WGRK * attention.scaling
        scores = [_scores(query_WGRK, keys) for keys, _ in parts]
        joined = torch.cat(scores, dim=-1)
        joined = joined if mask is None else joined + mask
        joined = joined if bias is None else joined + bias
        weights = joined.softmax(dim=-1, dtype=at_least_float32(joined.dtype))
        weights = threshold(weights, _NOTHING, 0.0).to(query_WHK.dtype)
        by_part = torch.split(weights, [part.shape[-1] for part in scores], dim=-1)
        summands = [_mixed(part, values) for part, (_, values) in zip(by_part, parts, strict=True)]
        return attention.out_proj(reduce(torch.add, summands).flatten(1))

    def _rotated(self, attention: AttentionBase, query_WHK, positions) -> torch.Tensor:
        if attention.q_norm is not None:
            query_WHK = attention.q_norm(query_WHK)
        if positions is not None and positions.query_rotation is not None:
            query_WHK = rotate(query_WHK[:, :, None], positions.query_rotation)[:, :, 0]
        return query_WHK

    def _over_source(self, attention: AttentionBase, hidden_WD, keys_values, positions, mask, beams) -> torch.Tensor:
        """Compute cross-attention.

        The beams of a source and the heads of a group are rows of one query (B, G, S * R, K).
        """
        if attention.position_table is not None:
            hidden_WD = attention._with_positions(hidden_WD[:, None], positions.query)[:, 0]
        rows, (keys_BGMK, values_BGMK) = hidden_WD.shape[0], keys_values
        query_WHK = self._rotated(attention, attention.q_proj(hidden_WD).view(rows, -1, self.width), positions)
        query = _by_source(query_WHK.view(rows, self.groups, -1, self.width), beams)
        bias_BHLM = attention._bias(query_WHK[: len(keys_BGMK), :, None], positions)
        if bias_BHLM is not None:
            by_group = bias_BHLM.unflatten(1, (self.groups, -1)).transpose(2, 3)  # (B, G, 1, R, M)
            bias = by_group.expand(-1, -1, beams, -1, -1).flatten(2, 3)
            mask = bias if mask is None else bias + additive(mask, bias.dtype)
        mixed = scaled_dot_product_attention(query, keys_BGMK, values_BGMK, attn_mask=mask, scale=attention.scaling)
        return attention.out_proj(_by_row(mixed, beams).flatten(1))


def _joined_mask(masks: list[torch.Tensor | None], lengths: list[int], suffixes: torch.Tensor) -> torch.Tensor | None:
    """Join masks (B, capacity) or None of parts to one mask (W, 1, 1, N). Return None if nothing is masked."""
    if all(mask is None for mask in masks):
        return None
    rows = suffixes.shape[2]
    parts_WN = [
        suffixes.new_zeros(rows, length)
        if mask is None
        else mask[:, :length].repeat_interleave(rows // len(mask), dim=0)
        for mask, length in zip(masks, lengths, strict=True)
    ]
    return torch.cat(parts_WN, dim=1)[:, None, None]


def _by_source(states_WGRX: torch.Tensor, beams: int) -> torch.Tensor:
    """Reshape (W, G, R, X) to (B, G, S * R, X)."""
    if beams == 1:
        return states_WGRX
    groups, heads, width = states_WGRX.shape[1:]
    return states_WGRX.view(-1, beams, groups, heads, width).transpose(1, 2).reshape(-1, groups, beams * heads, width)


def _by_row(states_BGQX: torch.Tensor, beams: int) -> torch.Tensor:
    """Reshape (B, G, S * R, X) to (W, G, R, X)."""
    if beams == 1:
        return states_BGQX
    sources, groups, _, width = states_BGQX.shape
    split = states_BGQX.view(sources, groups, beams, -1, width)
    return split.transpose(1, 2).reshape(sources * beams, groups, -1, width)


def _scores(query_WGRK: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the scores (W, G, R, N) over the keys of each source or of each row (B or W, G, N, K)."""
    if keys.shape[2] == 1:
        return (query_WGRK * keys).sum(dim=-1, keepdim=True)
    beams = query_WGRK.shape[0] // keys.shape[0]
    return _by_row(torch.matmul(_by_source(query_WGRK, beams), keys.transpose(2, 3)), beams)


def _mixed(weights_WGRN: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums (W, G, R, K) of the values of each source or of each row (B or W, G, N, K)."""
    if values.shape[2] == 1:
        return weights_WGRN * values
    beams = weights_WGRN.shape[0] // values.shape[0]
    return _by_row(torch.matmul(_by_source(weights_WGRN, beams), values), beams)


def projections(decoder: Any, joined: bool) -> nn.ModuleList:
    """Return the projection of queries, keys and values for each layer, without values if it has a position table.

    Args:
        decoder: the decoder.
        joined: whether each is one linear layer with a copy of the weights.
    """
    projections = nn.ModuleList()
    for layer in decoder.layers:
        own = layer.self_attn
        has_table = own.position_table is not None
        parts = [own.q_proj, own.k_proj] if has_table else [own.q_proj, own.k_proj, own.v_proj]
        projections.append(_joined(parts) if joined else _Parts(parts))
    return projections


class _Parts(nn.ModuleList):
    """Linear layers whose outputs are concatenated."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(states) for part in self], dim=-1)


def _joined(parts: list[nn.Linear]) -> nn.Linear:
    """Return one linear layer whose output is the concatenated outputs of several."""
    weight = torch.cat([part.weight.detach() for part in parts])
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if parts[0].bias is not None:
        linear.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    return linear

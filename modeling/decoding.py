"""One token for every beam, without the detours of a whole forward pass: the step that `generate` repeats.

The plain path stays the reference: `tests/generation/test_decoding.py` holds this one against it. What is saved, and why
it is the same arithmetic:

- Beams of one source have the same source and, but for the last steps, the same past. Keys and values of both are kept
  once (`cache.py`), never moved, and the beams become rows of one query.
- Source positions that nobody may see are left out.
- q, k and v are one product.

Shape suffixes: B sources, S beams of each, W = B * S rows, D width, H heads, G key-value heads, R = S * H / G query rows
that share keys, K width of a head, N nodes of the pool (see `BeamCache`) or source positions.
"""

from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

from .attention import AttentionBase
from .cache import DecodingCache, KeysValues
from .eligibility import can_step
from .positions import TokenPositions, attention_positions, embed_positions, rotate

# Constants laid out for the kernels and inductor's own C++ products, which beat the BLAS library at a few rows.
_COMPILER = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN", "cpp_wrapper": True}


def _constant(parts: list[torch.Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat(parts), requires_grad=False)


class DecodeStep(nn.Module):
    """The decoder and its head for one more token of each row.

    Args:
        model: a `WeftForConditionalGeneration` that `can_step`; its weights must not change while the step is in use.
        compiled: run as one compiled graph, with the weights as constants in the layout of the kernels.
    """

    def __init__(self, model: Any, compiled: bool = False):
        super().__init__()
        self.decoder, self.lm_head, self.config = model.model.decoder, model.lm_head, model.config
        self.heads, self.groups, self.width = self.config.stack_heads(is_decoder=True)
        # with an additive table v is projected from other states than q and k
        self.has_table = self.config.self_attention_position_type == "additive"
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for layer in self.decoder.layers:
            attention = layer.self_attn
            parts = [attention.q_proj, attention.k_proj] + ([] if self.has_table else [attention.v_proj])
            self.weights.append(_constant([part.weight for part in parts]))
            if attention.q_proj.bias is not None:
                self.biases.append(_constant([part.bias for part in parts]))
        self.compiled = compiled
        self.run = torch.compile(self.forward) if compiled else self.forward
        self.eval()

    def step(self, ids_W1: torch.Tensor, cache: DecodingCache, position_ids: torch.Tensor | None) -> torch.Tensor:
        """Logits (W, 1, vocabulary) of the token after `ids_W1`, whose keys and values the cache then holds.

        Args:
            position_ids: (W, 1) where rows differ, else None.
        """
        own, source = cache.self_attention_cache, cache.cross_attention_cache
        if position_ids is None:
            position_ids = torch.full((1, 1), own.get_seq_length(), device=ids_W1.device)
        where_S = own.begin_step()
        places_BN = own.places[:, : own.nodes + own.beams]
        mask = None
        if own.beams > 1 or own.prefix_mask is not None or self.compiled:
            mask = _mask(own.seen[:, :, : places_BN.shape[1]], self.heads // self.groups, self.lm_head.weight.dtype)
        if self.compiled:
            for tensor, dim in ((mask, 3), (places_BN, 1), *((states, 2) for states in own.pool)):
                torch._dynamo.maybe_mark_dynamic(tensor, dim)
        # not as `options` of torch.compile, which dynamo does not read
        with torch._inductor.config.patch(_COMPILER) if self.compiled else nullcontext():
            logits = self.run(
                ids_W1[:, 0], position_ids, where_S, own.pool, places_BN, mask,
                source.keys_values, source.positions(), source.mask,
            )  # fmt: skip
        own.end_step()
        return logits[:, None]

    def forward(
        self, ids_W, position_ids, where_S, pool, places_BN, mask, source, source_places, source_mask
    ) -> torch.Tensor:
        positions = TokenPositions(position_ids)
        hidden_WD = self._embed(ids_W, positions)
        past, cross = self._positions(positions, places_BN, source_places, hidden_WD)
        end = places_BN.shape[1] if mask is None else mask.shape[-1]
        for index, layer in enumerate(self.decoder.layers):
            keys_values = pool[index], pool[len(pool) // 2 + index]
            residual = hidden_WD
            hidden_WD = layer._enter(layer.self_attn_layer_norm, residual)
            hidden_WD = self._self_attention(index, hidden_WD, keys_values, where_S, end, past, mask)
            hidden_WD = _leave(layer, layer.self_attn_layer_norm, residual, hidden_WD)
            residual = hidden_WD
            hidden_WD = layer._enter(layer.encoder_attn_layer_norm, residual)
            hidden_WD = self._cross_attention(layer.encoder_attn, hidden_WD, source[index], cross, source_mask)
            hidden_WD = _leave(layer, layer.encoder_attn_layer_norm, residual, hidden_WD)
            residual = hidden_WD
            hidden_WD = layer.mlp(layer._enter(layer.final_layer_norm, residual))
            hidden_WD = _leave(layer, layer.final_layer_norm, residual, hidden_WD)
        return self.lm_head(self.decoder._finish(hidden_WD))

    def _embed(self, ids_W: torch.Tensor, positions: TokenPositions) -> torch.Tensor:
        decoder = self.decoder
        hidden_WD = decoder.embed_tokens(ids_W) * decoder.embed_scale
        if decoder.embed_positions is not None:
            hidden_WD = hidden_WD + embed_positions(decoder.embed_positions, positions, hidden_WD.dtype)[:, 0]
        return hidden_WD if decoder.layernorm_embedding is None else decoder.layernorm_embedding(hidden_WD)

    def _positions(self, positions: TokenPositions, places_BN: torch.Tensor, source_places: torch.Tensor, like):
        """What the two attentions need of positions, once for all layers."""
        config, rotary = self.config, self.decoder.rotary_embedding
        past = attention_positions(
            config.self_attention_position_type, config, positions, TokenPositions(places_BN), positions, rotary, like,
            looks_ahead=False,
        )  # fmt: skip
        keys = TokenPositions(source_places)
        return past, attention_positions(
            config.cross_attention_position_type, config, positions, keys, positions, rotary, like
        )

    def _self_attention(self, index, hidden_WD, keys_values, where_S, end: int, positions, mask) -> torch.Tensor:
        attention: AttentionBase = self.decoder.layers[index].self_attn
        bias = self.biases[index] if len(self.biases) else None
        queries, keys = self.heads * self.width, self.groups * self.width
        if self.has_table:
            placed_WD = attention._placed(hidden_WD[:, None], positions.query)[:, 0]
            query, key = linear(placed_WD, self.weights[index], bias).split([queries, keys], dim=-1)
            value = attention.v_proj(hidden_WD)
        else:
            query, key, value = linear(hidden_WD, self.weights[index], bias).split([queries, keys, keys], dim=-1)
        query, key, value = (states.view(states.shape[0], -1, self.width) for states in (query, key, value))
        if attention.k_norm is not None:
            key = attention.k_norm(key)
        if positions is not None and positions.query_rotation is not None:
            key = rotate(key[:, :, None], positions.query_rotation)[:, :, 0]
        seen: list[torch.Tensor] = []
        for states_BGNK, new_WGK in zip(keys_values, (key, value), strict=True):
            new_BGSK = new_WGK.unflatten(0, (-1, where_S.shape[0])).transpose(1, 2)
            seen.append(states_BGNK.index_copy_(2, where_S, new_BGSK)[:, :, :end])
        return self._attend(attention, query, (seen[0], seen[1]), positions, mask)

    def _cross_attention(self, attention: AttentionBase, hidden_WD, keys_values, positions, mask) -> torch.Tensor:
        if attention.position_table is not None:
            hidden_WD = attention._placed(hidden_WD[:, None], positions.query)[:, 0]
        query = attention.q_proj(hidden_WD).unflatten(-1, (-1, self.width))
        return self._attend(attention, query, keys_values, positions, mask)

    def _attend(self, attention: AttentionBase, query_WHK, keys_values: KeysValues, positions, mask) -> torch.Tensor:
        """The beams of a source and the heads of a group as rows (B, G, R, K) of one attention; back to (W, D)."""
        keys_BGNK, values_BGNK = keys_values
        if attention.q_norm is not None:
            query_WHK = attention.q_norm(query_WHK)
        if positions is not None and positions.query_rotation is not None:
            query_WHK = rotate(query_WHK[:, :, None], positions.query_rotation)[:, :, 0]
        sources, groups = keys_BGNK.shape[:2]
        beams = query_WHK.shape[0] // sources
        rows = (sources, beams, groups, -1, self.width)
        query = query_WHK.reshape(rows).transpose(1, 2).flatten(2, 3)
        bias_BHLN = attention._bias(query_WHK[:sources, :, None], positions)
        if bias_BHLN is not None:
            by_group = bias_BHLN.unflatten(1, (groups, -1)).transpose(2, 3)  # (B, G, 1, H / G, N)
            bias = by_group.expand(-1, -1, beams, -1, -1).flatten(2, 3)
            mask = bias if mask is None else bias + _additive(mask, bias.dtype)
        mixed = scaled_dot_product_attention(query, keys_BGNK, values_BGNK, attn_mask=mask, scale=attention.scaling)
        mixed = mixed.view(sources, groups, beams, -1, self.width).transpose(1, 2)
        return attention.out_proj(mixed.reshape(query_WHK.shape[0], -1))


# The compiled step of each model that was asked to compile, and the weights it was compiled for.
_COMPILED: WeakKeyDictionary[nn.Module, tuple[list, DecodeStep | None]] = WeakKeyDictionary()


def decode_step(model: Any) -> DecodeStep:
    """The step over the model's weights as they are now; a compiled one is kept until they change."""
    if model not in _COMPILED:
        return DecodeStep(model)
    weights = [*model.model.decoder.parameters(), *model.lm_head.parameters()]
    made_of = [(weight.data_ptr(), weight._version) for weight in weights]
    known, step = _COMPILED[model]
    if step is None or known != made_of:
        step = DecodeStep(model, compiled=True)
        _COMPILED[model] = (made_of, step)
    return step


def fast_decoding(model: Any, compile: bool = True) -> Any:
    """Compile the decoding step of a model: `weft.fast_decoding(model)`, then `model.generate(...)` as ever.

    The first `generate` of each batch size and number of beams compiles, for seconds to minutes; torch keeps what it
    compiled on disk for later processes. The weights become constants of the compiled step: when they change, the next
    `generate` compiles anew.

    Args:
        compile: False goes back to the step as it is.

    Returns:
        The model.

    Raises:
        ValueError: this model cannot take the short way at all (it is in training mode, has adapters, quantised or sharded
            weights, or hooks).
    """
    if not compile:
        _COMPILED.pop(model, None)
        return model
    if not can_step(model):
        raise ValueError(
            "The decoding step of this model cannot be compiled: it is in training mode (call `model.eval()`), or has "
            "adapters, quantised or sharded weights, or hooks."
        )
    _COMPILED.setdefault(model, ([], None))
    return model


def _leave(layer, norm: nn.Module, residual: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
    hidden_states = residual + hidden_states
    return hidden_states if layer.norm_first else norm(hidden_states)


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros((), dtype=dtype, device=mask.device).where(mask, float("-inf"))


def _mask(seen_BSN: torch.Tensor, heads_of_group: int, dtype: torch.dtype) -> torch.Tensor:
    """Which node each query row sees, as numbers to add: (B, 1, R, N)."""
    mask = _additive(seen_BSN, dtype)
    return (mask if heads_of_group == 1 else mask.repeat_interleave(heads_of_group, dim=1))[:, None]

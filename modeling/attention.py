"""Self-attention and cross-attention, with the implementations in transformers' attention registry.

Shape suffixes: B batch, T tokens of this call, L queries, M keys, D model width, H heads, K width of a head.
"""

from collections.abc import Callable
from copy import copy

import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache

from ..configuration.configuration_weft import WeftConfig
from .layers import HeadRMSNorm, at_least_float32, draws_slowly
from .layers import dropout as random_dropout
from .masks import additive, cross_attention_implementation, mask_and_bias
from .positions import AttentionPositions, TokenPositions, rotate
from .recorders import Recorded
from .transformers_names import ALL_ATTENTION_FUNCTIONS, attention_implementation

KeysValues = tuple[torch.Tensor, torch.Tensor]


def new_cache(config: WeftConfig) -> EncoderDecoderCache:
    """Return an empty cache for the decoder's self-attention and cross-attention."""
    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def self_attention_cache(cache: Cache | None) -> Cache | None:
    """Return the part of a cache that self-attention reads and fills."""
    if isinstance(cache, EncoderDecoderCache):
        return cache.self_attention_cache
    return cache


def copied_cache(cache: Cache) -> Cache:
    """Return a cache with the same keys and values. What is added to it is not added to the original."""
    cache_copy = copy(cache)
    if isinstance(cache, EncoderDecoderCache):
        cache_copy.self_attention_cache = copied_cache(cache.self_attention_cache)
        cache_copy.cross_attention_cache = copied_cache(cache.cross_attention_cache)
        cache_copy.is_updated = dict(cache.is_updated)
    else:
        cache_copy.layers = [copy(layer) for layer in cache.layers]
    return cache_copy


def repeated_cache(cache: Cache, batch: int, repeats: int) -> Cache:
    """Return a cache with `repeats` rows for each row of the batch: a copy, or the cache itself if it has these rows.

    Raises:
        ValueError: the cache has neither `batch` nor `batch * repeats` rows.
    """
    if isinstance(cache, EncoderDecoderCache):
        halves = cache.self_attention_cache, cache.cross_attention_cache
        repeated_halves = [repeated_cache(half, batch, repeats) for half in halves]
        return cache if repeated_halves == [*halves] else EncoderDecoderCache(*repeated_halves)
    rows = {layer.keys.shape[0] for layer in cache.layers if layer.is_initialized}
    if rows <= {batch * repeats}:
        return cache
    if rows != {batch}:
        raise ValueError(
            f"The `cache` (`past_key_values`) has {', '.join(map(str, sorted(rows)))} rows, but must have {batch} or "
            f"{batch * repeats}: fill it with the same batch."
        )
    cache = copied_cache(cache)
    for layer in cache.layers:
        tensors = {name: value for name, value in vars(layer).items() if isinstance(value, torch.Tensor)}
        for name, value in tensors.items():  # a static layer counts its tokens in a tensor, in place
            setattr(layer, name, value.repeat_interleave(repeats, dim=0) if value.ndim else value.clone())
    return cache


def reuse_or_fill(cache: Cache | None, layer_idx: int, project: Callable[[], KeysValues]) -> KeysValues:
    """Return the keys and values of the source from the cache, or else project them and store them in the cache."""
    if not isinstance(cache, EncoderDecoderCache):
        return project()
    source = cache.cross_attention_cache
    if cache.is_updated.get(layer_idx):
        return source.layers[layer_idx].keys, source.layers[layer_idx].values
    keys, values = source.update(*project(), layer_idx)
    cache.is_updated[layer_idx] = True
    return keys, values


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output (B, L, H, K) and the weights (B, H, L, M) of plain attention.

    This is the reference: the tests compare every other implementation with it.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores_BHLM = torch.matmul(query, key.transpose(2, 3)) * scaling
    if position_bias is not None:
        scores_BHLM = scores_BHLM + position_bias
    # queries that may attend to no key: their output is 0
    is_empty_BHL1 = None
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[-2]]
        is_empty_BHL1 = (attention_mask <= torch.finfo(attention_mask.dtype).min / 2).all(dim=-1, keepdim=True)
        scores_BHLM = (scores_BHLM + attention_mask).masked_fill(is_empty_BHL1, 0.0)
    weights_BHLM = nn.functional.softmax(scores_BHLM, dim=-1, dtype=at_least_float32(query.dtype)).to(query.dtype)
    if is_empty_BHL1 is not None:
        weights_BHLM = weights_BHLM.masked_fill(is_empty_BHL1, 0.0)
    weights_BHLM = random_dropout(weights_BHLM, dropout, module.training)
    return torch.matmul(weights_BHLM, value).transpose(1, 2).contiguous(), weights_BHLM


def cpu_dropout_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float,
    position_bias: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Return the output (B, L, H, K) of attention with dropout, in the place of SDPA on a CPU.

    With dropout, torch has no fused kernel there: it also computes plain attention, and draws a float for each weight,
    which takes a fifth of a training step. The mask is boolean or additive, as SDPA takes it. With an additive mask,
    [`eager_attention_forward`] would do the same, but its further passes over the weights make a training step with
    experts a fifth longer.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores_BHLM = torch.matmul(query * scaling, key.transpose(2, 3))
    if position_bias is not None:
        scores_BHLM = scores_BHLM + position_bias
    if attention_mask is None and kwargs.get("is_causal", module.is_causal) and query.shape[2] > 1:
        attention_mask = torch.ones(scores_BHLM.shape[-2:], dtype=torch.bool, device=query.device).tril()
    is_empty_BHL1 = None
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            attention_mask = additive(attention_mask, query.dtype)
        # queries that may attend to no key: their output is 0
        is_empty_BHL1 = (attention_mask <= torch.finfo(attention_mask.dtype).min / 2).all(dim=-1, keepdim=True)
        scores_BHLM = scores_BHLM + attention_mask.masked_fill(is_empty_BHL1, 0.0)
    weights_BHLM = scores_BHLM.softmax(dim=-1, dtype=at_least_float32(query.dtype)).to(query.dtype)
    output_BHLK = torch.matmul(random_dropout(weights_BHLM, dropout, module.training), value)
    if is_empty_BHL1 is not None:
        output_BHLK = output_BHLK.masked_fill(is_empty_BHL1, 0.0)
    return output_BHLK.transpose(1, 2), None


class AttentionBase(Recorded, nn.Module):
    """The projections, head norms and position tables that self-attention and cross-attention have in common."""

    is_causal = False

    def __init__(self, config: WeftConfig, layer_idx: int, is_decoder: bool, kind: str):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.heads, key_value_heads, self.head_dim = config.stack_heads(is_decoder)
        self.num_key_value_groups = self.heads // key_value_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(config.d_model, self.heads * self.head_dim, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.d_model, key_value_heads * self.head_dim, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.d_model, key_value_heads * self.head_dim, bias=config.attention_bias)
        self.out_proj = nn.Linear(self.heads * self.head_dim, config.d_model, bias=config.attention_out_bias)
        self.q_norm = HeadRMSNorm(self.head_dim, eps=config.norm_eps) if config.use_qk_norm else None
        self.k_norm = HeadRMSNorm(self.head_dim, eps=config.norm_eps) if config.use_qk_norm else None
        self.position_table: nn.Embedding | None = None
        self.relative_bias: nn.Parameter | None = None
        if kind == "additive":
            self.position_table = nn.Embedding(self._table_rows(config, is_decoder), config.d_model)
        elif kind == "relative":
            self.relative_bias = nn.Parameter(torch.zeros(2 * config.relative_attention_max_distance + 1))
        elif kind == "bucketed":
            self.relative_bias = nn.Parameter(torch.zeros(config.relative_attention_num_buckets, self.heads))

    def _table_rows(self, config: WeftConfig, is_decoder: bool) -> int:
        return config.max_target_positions if is_decoder else config.max_source_positions

    @property
    def implementation(self) -> str:
        """The name of the attention implementation."""
        return attention_implementation(self.config)

    @property
    def compute(self) -> Callable:
        """The function that computes attention from queries, keys and values, as in transformers' registry."""
        return ALL_ATTENTION_FUNCTIONS.get_interface(self.implementation, eager_attention_forward)

    def with_positions(self, states_BTD: torch.Tensor, positions: TokenPositions) -> torch.Tensor:
        """Return the states plus their rows of the additive position table.

        Queries and keys are projected from the result, values from the states alone.
        """
        table = self.position_table
        assert table is not None
        rows_BTD = table(positions.indices_BT)
        return states_BTD + (rows_BTD if positions.mask_BT is None else rows_BTD * positions.mask_BT[..., None])

    def split_heads(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """Return states (B, T, H * K) as (B, H, T, K)."""
        return states_BTD.view(*states_BTD.shape[:2], -1, self.head_dim).transpose(1, 2)

    def queries(self, hidden_states: torch.Tensor, positions: AttentionPositions | None) -> torch.Tensor:
        """Return the queries (B, H, L, K) of states (B, L, D)."""
        if self.position_table is not None and positions is not None:
            hidden_states = self.with_positions(hidden_states, positions.query)
        query = self.split_heads(self.q_proj(hidden_states))
        query = query if self.q_norm is None else self.q_norm(query)
        if positions is None or positions.query_rotation is None:
            return query
        return rotate(query, positions.query_rotation)

    def keys_values(self, states_BTD: torch.Tensor, positions: AttentionPositions | None) -> KeysValues:
        """Return the keys and the values (B, G, T, K) of states (B, T, D), with G key-value heads."""
        positioned_BTD = states_BTD
        if self.position_table is not None and positions is not None:
            positioned_BTD = self.with_positions(states_BTD, positions.key)
        key, value = self.split_heads(self.k_proj(positioned_BTD)), self.split_heads(self.v_proj(states_BTD))
        key = key if self.k_norm is None else self.k_norm(key)
        if positions is None or positions.key_rotation is None:
            return key, value
        return rotate(key, positions.key_rotation), value

    def bias(self, query: torch.Tensor, positions: AttentionPositions | None) -> torch.Tensor | None:
        """Return the relative bias (B, H, L, M), or None if this attention has none."""
        if self.relative_bias is None or positions is None:
            return None
        assert positions.relative_BLM is not None
        biases = self.relative_bias.to(query.dtype)[positions.relative_BLM]
        # "relative" subtracts one number for all heads, "bucketed" adds one number for each head
        bias_BHLM = -biases[:, None] if biases.ndim == 3 else biases.permute(0, 3, 1, 2)
        if positions.related_BLM is not None:
            bias_BHLM = bias_BHLM * positions.related_BLM[:, None]
        # under tensor parallelism a process has only some of the heads, and the query has only those
        return bias_BHLM.expand(query.shape[0], query.shape[1], -1, -1)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        positions: AttentionPositions | None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the mixed values (B, L, H * K) and, with the eager implementation, the weights (B, H, L, M)."""
        mask, bias = mask_and_bias(self.implementation, attention_mask, self.bias(query, positions), query)
        compute = self.compute
        if self.implementation == "sdpa" and self.training and self.config.attention_dropout and draws_slowly(query):
            compute = cpu_dropout_attention_forward
        output, weights = compute(
            self,
            query,
            key,
            value,
            mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **({} if bias is None else {"position_bias": bias}),
            **kwargs,
        )
        return output.flatten(-2), weights


class SelfAttention(AttentionBase):
    """Attention of a sequence to itself. In the decoder it is causal and cached."""

    def __init__(self, config: WeftConfig, layer_idx: int, is_decoder: bool):
        super().__init__(config, layer_idx, is_decoder, config.self_attention_position_type)
        self.is_causal = is_decoder

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        cache: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output (B, L, D) and, with the eager implementation, the weights (B, H, L, M)."""
        query = self.queries(hidden_states, positions)
        key, value = self.keys_values(hidden_states, positions)
        past = self_attention_cache(cache)
        if past is not None:
            key, value = past.update(key, value, self.layer_idx)
        output, weights = self.attend(query, key, value, attention_mask, positions, **kwargs)
        return self.out_proj(output), weights


class CrossAttention(AttentionBase):
    """Attention of the target to the source. The source's keys and values are projected once and then cached."""

    def __init__(self, config: WeftConfig, layer_idx: int):
        super().__init__(config, layer_idx, True, config.cross_attention_position_type)

    def _table_rows(self, config: WeftConfig, is_decoder: bool) -> int:
        return max(config.max_source_positions, config.max_target_positions)

    @property
    def implementation(self) -> str:
        return cross_attention_implementation(self.config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        cache: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output (B, L, D) and, with the eager implementation, the weights (B, H, L, M)."""
        query = self.queries(hidden_states, positions)
        key, value = reuse_or_fill(cache, self.layer_idx, lambda: self.keys_values(encoder_hidden_states, positions))
        output, weights = self.attend(query, key, value, attention_mask, positions, **kwargs)
        return self.out_proj(output), weights

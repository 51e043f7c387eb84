"""Positions of tokens: embeddings that are added to the input, and positions inside the attention.

Shape suffixes: B batch (1 if all rows have the same positions), L queries, M keys, T tokens of one sequence, K width
of a head.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from transformers import ROPE_INIT_FUNCTIONS, dynamic_rope_update

from ..configuration.configuration_weft import WeftConfig
from .checks import can_read
from .layers import Float32Buffers


class TokenPositions(NamedTuple):
    """Positions of the tokens of one sequence. A token whose mask is False has no position."""

    ids_BT: torch.Tensor
    mask_BT: torch.Tensor | None = None

    @property
    def indices_BT(self) -> torch.Tensor:
        """The indices for a position table: 0 for tokens without a position."""
        return self.ids_BT if self.mask_BT is None else self.ids_BT.masked_fill(~self.mask_BT, 0)


def positions_after_pads(mask: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return positions (B or 1, T) of the columns of `like` (B, T, ...), counted from the first that a mask (B, T)
    shows.

    Pads before it have position 0, and pads after it count. Without such a mask, all columns count.
    """
    columns_1T = torch.arange(like.shape[1], device=like.device)[None]
    if mask is None or mask.ndim != 2 or (can_read(mask.device) and mask[:, 0].all()):
        return columns_1T
    first_B1 = mask.bool().long().argmax(dim=-1, keepdim=True).to(like.device)
    return (columns_1T - first_B1).clamp(min=0)


def positions_of_tokens(mask_BT: torch.Tensor) -> torch.Tensor:
    """Return positions (B, T) that count only the tokens that a mask (B, T) shows. Those before the first are 0."""
    return (mask_BT.long().cumsum(dim=-1) - 1).clamp(min=0)


class AttentionPositions(NamedTuple):
    """The position tensors that an attention needs, computed once for all layers of a stack."""

    query: TokenPositions
    key: TokenPositions
    query_rotation: tuple[torch.Tensor, torch.Tensor] | None = None
    key_rotation: tuple[torch.Tensor, torch.Tensor] | None = None
    # The row of the relative table for each pair of query and key, and False for pairs without an offset.
    relative_BLM: torch.Tensor | None = None
    related_BLM: torch.Tensor | None = None


class SinusoidalPositions(nn.Module):
    """Sines and cosines of position / 10000^(2i / d) (Vaswani et al. 2017), for any position.

    The layout `interleaved` puts sine and cosine of one frequency side by side, as in the paper. `concatenated` puts
    all sines first, as in Marian. `fairseq` puts all sines first too, with frequencies 10000^(-i / (d/2 - 1)) and 2 as
    the first position.
    """

    def __init__(self, config: WeftConfig):
        super().__init__()
        self.width = config.d_model
        self.layout = config.sinusoidal_layout

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        # computed, not stored: a non-persistent table would have to be computed again after loading on the meta device
        if self.layout == "fairseq":
            steps = torch.arange(self.width // 2, device=ids_BT.device, dtype=torch.float)
            frequencies = torch.exp(steps * -(math.log(10000.0) / max(self.width // 2 - 1, 1)))
            ids_BT = ids_BT + 2
        else:
            steps = torch.arange(0, self.width, 2, device=ids_BT.device, dtype=torch.float)
            frequencies = torch.pow(10000.0, -steps / self.width)
        angles_BTK = ids_BT[..., None].float() * frequencies
        pair = (angles_BTK.sin(), angles_BTK.cos())
        return torch.stack(pair, dim=-1).flatten(-2) if self.layout == "interleaved" else torch.cat(pair, dim=-1)


def build_position_embedding(config: WeftConfig, num_positions: int) -> nn.Module | None:
    """Return the module that turns position ids (B, T) into embeddings (B, T, d_model), or None if there is none."""
    if config.position_embedding_type == "learned":
        return nn.Embedding(num_positions, config.d_model)
    return SinusoidalPositions(config) if config.position_embedding_type == "sinusoidal" else None


def embed_positions(module: nn.Module, positions: TokenPositions, dtype: torch.dtype) -> torch.Tensor:
    embeddings_BTD = module(positions.indices_BT).to(dtype)
    return embeddings_BTD if positions.mask_BT is None else embeddings_BTD * positions.mask_BT[..., None]


class WeftRotaryEmbedding(Float32Buffers):
    """Cosines and sines of rotary positions (Su et al. 2021), with every `rope_type` that transformers has.

    Args:
        config: the configuration of one stack, from `get_text_config`. Sequences up to its `max_position_embeddings`
            need no scaling. The first `head_dim * partial_rotary_factor` numbers of each head are rotated (all without
            a factor).
    """

    inv_freq: torch.Tensor
    original_inv_freq: torch.Tensor

    def __init__(self, config: WeftConfig):
        super().__init__()
        self.original_max_seq_len = config.max_position_embeddings
        self.config = config
        assert config.rope_parameters is not None  # transformers sets it when the configuration is made
        self.rope_type = config.rope_parameters["rope_type"]
        init_function: Callable = self.compute_default_rope_parameters
        if self.rope_type != "default":
            init_function = ROPE_INIT_FUNCTIONS[self.rope_type]
        inv_freq, self.attention_scaling = init_function(self.config)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("original_inv_freq", inv_freq.clone(), persistent=False)

    @staticmethod
    def compute_default_rope_parameters(config: WeftConfig, **kwargs) -> tuple[torch.Tensor, float]:
        assert config.rope_parameters is not None and config.head_dim is not None
        width = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        steps = torch.arange(0, width, 2, dtype=torch.float) / width
        return 1.0 / config.rope_parameters["rope_theta"] ** steps, 1.0

    @torch.no_grad()
    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor, follows_length: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines (B, T, R) of positions (B, T) for the R rotated numbers, in the dtype of `x`.

        With `follows_length=False`, `dynamic` and `longrope` do not change the frequencies of a sequence that is
        longer than `max_position_embeddings`.
        """
        if not follows_length:
            return self._cos_sin(x, position_ids, self.original_inv_freq)
        if self.rope_type == "dynamic":
            return self._cos_sin(x, position_ids, self._dynamic_frequencies(position_ids))
        return self._scaled(x, position_ids)

    def _dynamic_frequencies(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Return the frequencies for the length of these sequences, computed on the device of the positions.

        `dynamic_rope_update` would read the length, which waits for the device, and keep the frequencies of the
        longest sequence so far.
        """
        length = position_ids.max() + 1
        frequencies, _ = ROPE_INIT_FUNCTIONS["dynamic"](self.config, position_ids.device, seq_len=length)
        return torch.where(length > self.original_max_seq_len, frequencies, self.inv_freq)

    @dynamic_rope_update
    def _scaled(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._cos_sin(x, position_ids, self.inv_freq)

    def _cos_sin(self, x: torch.Tensor, position_ids: torch.Tensor, inv_freq: torch.Tensor):
        angles_BTK = position_ids[..., None].float() * inv_freq.to(device=x.device, dtype=torch.float)
        angles_BTK = torch.cat((angles_BTK, angles_BTK), dim=-1)
        cos, sin = angles_BTK.cos() * self.attention_scaling, angles_BTK.sin() * self.attention_scaling
        return cos.to(x.dtype), sin.to(x.dtype)


def rotate(states_BHTK: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate the pairs (i, i + R/2) of the first R numbers of each head by the token's angle.

    R is the width of the tables.
    """
    cos, sin = (table[:, None] for table in rotation)
    if (width := cos.shape[-1]) < states_BHTK.shape[-1]:
        return torch.cat((rotate(states_BHTK[..., :width], rotation), states_BHTK[..., width:]), dim=-1)
    first, second = states_BHTK.chunk(2, dim=-1)
    return states_BHTK * cos + torch.cat((-second, first), dim=-1) * sin


def _rotation(rotary: WeftRotaryEmbedding, positions: TokenPositions, like: torch.Tensor, is_cross: bool):
    cos, sin = rotary(like, positions.ids_BT, follows_length=not is_cross)
    if positions.mask_BT is not None:  # a token without a position is not rotated
        cos = torch.where(positions.mask_BT[..., None], cos, torch.ones_like(cos))
        sin = sin * positions.mask_BT[..., None]
    return cos, sin


def _buckets(offset_BLM: torch.Tensor, config: WeftConfig, looks_ahead: bool) -> torch.Tensor:
    """Return the bucket of each offset between query and key, as in T5 (Raffel et al. 2020, arXiv:1910.10683).

    Each bucket of the first half is for one distance. The others are for ranges that grow with the logarithm of the
    distance. If queries look ahead, the buckets are first divided in two, one half for keys before the query and one
    for keys after it.
    """
    buckets, first_BLM = config.relative_attention_num_buckets, torch.zeros_like(offset_BLM)
    if looks_ahead:
        buckets //= 2
        first_BLM = (offset_BLM < 0).long() * buckets
        distance_BLM = offset_BLM.abs()
    else:
        distance_BLM = offset_BLM.clamp(min=0)
    exact = buckets // 2
    # keep T5's order of operations, because rounding decides the bucket at the edge of a range
    far_BLM = torch.log(distance_BLM.clamp(min=1).float() / exact)
    far_BLM = far_BLM / math.log(config.relative_attention_max_distance / exact) * (buckets - exact)
    far_BLM = exact + far_BLM.long()
    return first_BLM + torch.where(distance_BLM < exact, distance_BLM, far_BLM.clamp(max=buckets - 1))


def attention_positions(
    kind: str,
    config: WeftConfig,
    query: TokenPositions,
    key: TokenPositions,
    new_key: TokenPositions,
    rotary: WeftRotaryEmbedding | None,
    like: torch.Tensor,
    looks_ahead: bool = True,
    is_cross: bool = False,
) -> AttentionPositions | None:
    """Return the tensors for an attention with positions of this `kind`, or None with `"none"`.

    Args:
        kind: the position type, a value of `self_attention_position_type`.
        config: the model's configuration.
        query: positions of the queries.
        key: positions of all keys, cached ones included.
        new_key: positions of the keys of this call.
        rotary: the rotary embedding, if `kind` is `"rotary"`.
        like: a tensor that gives the rotation its dtype and device.
        looks_ahead: whether a query may attend to keys after it. Only `"bucketed"` positions differ.
        is_cross: whether queries and keys are from two sequences. Rotary frequencies then do not depend on the length,
            because the two sequences would get different frequencies.
    """
    if kind == "none":
        return None
    if kind == "rotary":
        assert rotary is not None
        turn = _rotation(rotary, query, like, is_cross)
        key_turn = turn if new_key is query else _rotation(rotary, new_key, like, is_cross)
        return AttentionPositions(query, new_key, turn, key_turn)
    if kind == "additive":
        return AttentionPositions(query, new_key)
    offset_BLM = query.ids_BT[:, :, None] - key.ids_BT[:, None, :]
    related_BLM = None
    if query.mask_BT is not None or key.mask_BT is not None:
        queries = torch.ones_like(query.ids_BT, dtype=torch.bool) if query.mask_BT is None else query.mask_BT
        keys = torch.ones_like(key.ids_BT, dtype=torch.bool) if key.mask_BT is None else key.mask_BT
        related_BLM = queries[:, :, None] & keys[:, None, :]
    if kind == "bucketed":
        relative_BLM = _buckets(offset_BLM, config, looks_ahead)
    else:
        distance = config.relative_attention_max_distance
        relative_BLM = offset_BLM.clamp(-distance, distance) + distance
    return AttentionPositions(query, key, relative_BLM=relative_BLM, related_BLM=related_BLM)

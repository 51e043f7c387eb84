"""One layer of the encoder, one of the decoder."""

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from ..configuration.configuration_weft import WeftConfig
from .attention import CrossAttention, SelfAttention
from .feed_forward import FeedForward
from .mixture import SparseFeedForward
from .norms import build_norm
from .positions import AttentionPositions


def build_feed_forward(config: WeftConfig, layer_idx: int, is_decoder: bool) -> nn.Module:
    """Dense or sparse, as the configuration says for this layer of this stack."""
    layer_types = config.decoder_mlp_layer_types if is_decoder else config.encoder_mlp_layer_types
    assert layer_types is not None
    ffn_dim = config.decoder_ffn_dim if is_decoder else config.encoder_ffn_dim
    return (SparseFeedForward if layer_types[layer_idx] == "sparse" else FeedForward)(config, ffn_dim)


class ResidualLayer(GradientCheckpointingLayer):
    """The two orders of norm and residual: norm first, x + f(norm(x)); or after, norm(x + f(x))."""

    def __init__(self, config: WeftConfig):
        super().__init__()
        self.norm_first = config.norm_first
        self.dropout = config.dropout

    def _enter(self, norm: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
        return norm(hidden_states) if self.norm_first else hidden_states

    def _leave(self, norm: nn.Module, residual: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden_states = residual + nn.functional.dropout(hidden_states, p=self.dropout, training=self.training)
        return hidden_states if self.norm_first else norm(hidden_states)


class WeftEncoderLayer(ResidualLayer):
    def __init__(self, config: WeftConfig, layer_idx: int):
        super().__init__(config)
        self.self_attn = SelfAttention(config, layer_idx, is_decoder=False)
        self.self_attn_layer_norm = build_norm(config)
        self.mlp = build_feed_forward(config, layer_idx, is_decoder=False)
        self.final_layer_norm = build_norm(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        **kwargs,
    ) -> torch.Tensor:
        residual = hidden_states
        hidden_states = self._enter(self.self_attn_layer_norm, residual)
        hidden_states, _ = self.self_attn(hidden_states, attention_mask, positions, **kwargs)
        hidden_states = self._leave(self.self_attn_layer_norm, residual, hidden_states)
        residual = hidden_states
        hidden_states = self.mlp(self._enter(self.final_layer_norm, residual))
        return self._leave(self.final_layer_norm, residual, hidden_states)


class WeftDecoderLayer(ResidualLayer):
    def __init__(self, config: WeftConfig, layer_idx: int):
        super().__init__(config)
        self.self_attn = SelfAttention(config, layer_idx, is_decoder=True)
        self.self_attn_layer_norm = build_norm(config)
        self.encoder_attn = CrossAttention(config, layer_idx)
        self.encoder_attn_layer_norm = build_norm(config)
        self.mlp = build_feed_forward(config, layer_idx, is_decoder=True)
        self.final_layer_norm = build_norm(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cross_positions: AttentionPositions | None = None,
        past_key_values: Cache | None = None,
        is_causal: bool | None = None,
        **kwargs,
    ) -> torch.Tensor:
        residual = hidden_states
        hidden_states = self._enter(self.self_attn_layer_norm, residual)
        causality = {} if is_causal is None else {"is_causal": is_causal}
        hidden_states, _ = self.self_attn(
            hidden_states, attention_mask, positions, past_key_values=past_key_values, **causality, **kwargs
        )
        hidden_states = self._leave(self.self_attn_layer_norm, residual, hidden_states)
        if encoder_hidden_states is not None:
            residual = hidden_states
            hidden_states = self._enter(self.encoder_attn_layer_norm, residual)
            hidden_states, _ = self.encoder_attn(
                hidden_states,
                encoder_hidden_states,
                encoder_attention_mask,
                cross_positions,
                past_key_values=past_key_values,
                **kwargs,
            )
            hidden_states = self._leave(self.encoder_attn_layer_norm, residual, hidden_states)
        residual = hidden_states
        hidden_states = self.mlp(self._enter(self.final_layer_norm, residual))
        return self._leave(self.final_layer_norm, residual, hidden_states)

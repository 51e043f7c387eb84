"""The dense feed-forward, plain or gated."""

import torch
from torch import nn
from transformers.activations import ACT2FN

from ..configuration.configuration_weft import WeftConfig


class FeedForward(nn.Module):
    """down(dropout(act(up(x)))), or down(dropout(act(gate(x)) * up(x))) when gated (Shazeer 2020)."""

    def __init__(self, config: WeftConfig, ffn_dim: int):
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, ffn_dim, bias=config.mlp_bias)
        self.gate_proj = nn.Linear(config.d_model, ffn_dim, bias=config.mlp_bias) if config.is_gated_act else None
        self.down_proj = nn.Linear(ffn_dim, config.d_model, bias=config.mlp_bias)
        self.act_fn = ACT2FN[config.activation_function]
        self.dropout = config.activation_dropout

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        up = self.up_proj(hidden_states)
        up = self.act_fn(up) if self.gate_proj is None else self.act_fn(self.gate_proj(hidden_states)) * up
        up = nn.functional.dropout(up, p=self.dropout, training=self.training)
        return self.down_proj(up)

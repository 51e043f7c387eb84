"""The three norms of the family behind one constructor."""

import torch
from torch import nn

from ..configuration.configuration_weft import WeftConfig


class StdLayerNorm(nn.Module):
    """weight * (x - mean) / (std + eps) + bias, with the sample standard deviation over the last dimension.

    The variant of some tutorials: eps is added to the deviation, not to the variance, and the deviation is the
    unbiased one (divided by n - 1), so it is not `nn.LayerNorm` at any eps.
    """

    def __init__(self, width: int, eps: float, bias: bool):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        mean = hidden_states.mean(-1, keepdim=True)
        std = hidden_states.std(-1, keepdim=True)
        hidden_states = self.weight * (hidden_states - mean) / (std + self.eps)
        return hidden_states if self.bias is None else hidden_states + self.bias


def build_norm(config: WeftConfig, width: int | None = None) -> nn.Module:
    """The norm that the configuration names, over `width` features (default: `d_model`)."""
    width = width or config.d_model
    if config.norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=config.norm_eps)
    norm_class = nn.LayerNorm if config.norm_type == "layernorm" else StdLayerNorm
    return norm_class(width, eps=config.norm_eps, bias=config.norm_bias)

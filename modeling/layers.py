"""Parts of layers: norms, the dense feed-forward, and modules that stay in fp32 in a half-precision model."""

import torch
from torch import nn

from ..configuration.configuration_weft import WeftConfig
from .transformers_names import ACT2FN


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float64 for float64, which must not lose precision, and float32 for any other dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Float32Buffers(nn.Module):
    """A module whose own buffers keep their dtype when the model's dtype changes.

    `.to(torch.bfloat16)` also casts buffers. With the 8 significant bits of bfloat16, a counted load stops growing at
    256, and rotary frequencies are a radian off at the thousandth token.
    """

    def _apply(self, fn, recurse: bool = True):
        buffers = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in buffers.items():
            buffer_now = getattr(self, name)
            if buffer_now.dtype != buffer.dtype:
                setattr(self, name, buffer.to(buffer_now.device))
        return self


class Float32Linear(nn.Linear):
    """A linear layer that computes in fp32 if the model is in half precision.

    This is a module because offloaded weights are loaded by a hook that runs when a module is called.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        dtype = at_least_float32(input.dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        return nn.functional.linear(input.to(dtype), self.weight.to(dtype), bias)


class StdLayerNorm(nn.Module):
    """weight * (x - mean) / (std + eps) + bias, over the last dimension.

    Some tutorials have this norm. Its eps is added to the standard deviation, not to the variance, and the deviation
    is the unbiased one (divided by n - 1), so no eps makes it equal to `nn.LayerNorm`.
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


class HeadRMSNorm(nn.RMSNorm):
    """The norm of the queries and keys of each head, in their own dtype.

    Under autocast they are the outputs of projections in 16 bits. With a weight in fp32, torch would warn and compute
    the norm without its fused kernel.
    """

    def forward(self, heads: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(heads, self.normalized_shape, self.weight.to(heads.dtype), self.eps)


def build_norm(config: WeftConfig) -> nn.Module:
    """Return the norm over `d_model` features that the configuration names."""
    if config.norm_type == "rmsnorm":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    norm_class = nn.LayerNorm if config.norm_type == "layernorm" else StdLayerNorm
    return norm_class(config.d_model, eps=config.norm_eps, bias=config.norm_bias)


def draws_slowly(states: torch.Tensor) -> bool:
    """Return whether torch's own dropout of these states is slow: on a CPU, outside a compiled graph."""
    return states.device.type == "cpu" and not torch.compiler.is_compiling()


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Set elements to 0 with probability `p` in training and divide the others by 1 - p, like `nn.functional.dropout`.

    On a CPU, torch draws a float for each element, which takes a tenth of a training step or more. Here one random
    integer of 64 bits serves four elements, so `p` is rounded to a multiple of 2^-16.
    """
    if not training:
        return states
    if p <= 0 or p >= 1 or not draws_slowly(states):
        return nn.functional.dropout(states, p=p)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-states.numel() // 4),), device=states.device)
    threshold = min(max(round(p * (1 << 16)), 1), (1 << 16) - 1)
    is_kept = words.view(torch.int16)[: states.numel()].view(states.shape) >= threshold - (1 << 15)
    # `where`, because a product would first convert the booleans to numbers
    return torch.where(is_kept, states, 0.0) * (1 / (1 - threshold / (1 << 16)))


class FeedForward(nn.Module):
    """down(dropout(act(up(x)))), or down(dropout(act(gate(x)) * up(x))) when gated (Shazeer 2020)."""

    def __init__(self, config: WeftConfig, ffn_dim: int):
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, ffn_dim, bias=config.mlp_bias)
        self.gate_proj = nn.Linear(config.d_model, ffn_dim, bias=config.mlp_bias) if config.is_gated_act else None
        self.down_proj = nn.Linear(ffn_dim, config.d_model, bias=config.mlp_bias)
        self.act_fn = ACT2FN[config.activation_function]
        self.config = config

    def forward(self, hidden_states: torch.Tensor, token_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Map states (..., D) to states (..., D).

        `token_mask` is ignored. Sparse layers have the same signature and use it.
        """
        up = self.up_proj(hidden_states)
        up = self.act_fn(up) if self.gate_proj is None else self.act_fn(self.gate_proj(hidden_states)) * up
        up = dropout(up, self.config.activation_dropout, self.training)
        return self.down_proj(up)

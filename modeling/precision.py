"""What is computed and kept in fp32 in a model of half precision."""

import torch
from torch import nn


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """fp32 for half precision, and float64 for a model of float64: nothing is to cost it half of its digits."""
    return torch.promote_types(dtype, torch.float32)


class Float32Buffers(nn.Module):
    """A module whose own buffers keep their dtype when the model changes its own.

    `.to(torch.bfloat16)` casts buffers too; a load counted in 8 bits stops at 256, and rotary frequencies of 8 bits put
    the thousandth token a radian off.
    """

    def _apply(self, fn, recurse: bool = True):
        kept = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in kept.items():
            moved = getattr(self, name)
            if moved.dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        return self


class Float32Linear(nn.Linear):
    """A linear layer that computes in fp32 if its weights are kept in less.

    A module of its own, and called as one: offloaded weights are fetched by a hook on the call.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        dtype = at_least_float32(input.dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        return nn.functional.linear(input.to(dtype), self.weight.to(dtype), bias)

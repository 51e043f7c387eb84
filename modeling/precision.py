"""What stays in fp32 in a model of half precision."""

import torch
from torch import nn


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
    """A linear layer that computes in fp32 whatever its weights are kept in.

    A module of its own, and called as one: offloaded weights are fetched by a hook on the call.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        return nn.functional.linear(input.float(), self.weight.float(), bias)

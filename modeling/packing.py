"""Linear layers with their weights laid out for a few rows at a time, which is what decoding on a CPU multiplies.

The BLAS library that `torch.nn.functional.linear` calls is made for large products; for 2 to 16 rows oneDNN, over weights
that it laid out itself, takes a half to a quarter of the time. For one row and weights that fit in a core's own memory, BLAS
over columns is the fastest. Laying out costs as much as some five products.
"""

import copy

import torch
from torch import nn

# Smaller weights gain nothing; larger ones are oneDNN's for a single row too.
_SMALLEST, _LARGE = 100_000, 1_000_000


class PackedLinear(nn.Module):
    """An `nn.Linear` for inference. Shape: (rows, in) to (rows, out)."""

    def __init__(self, linear: nn.Linear, rows: int):
        super().__init__()
        self.bias = linear.bias
        self.register_buffer(
            "weight", torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), rows), persistent=False
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")


def can_pack(weight: torch.Tensor) -> bool:
    is_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return is_there and weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)


def packed(module: nn.Module, rows: int) -> nn.Module:
    """A twin that shares all parameters with `module`, but for its large linear layers: those are packed."""
    if type(module) is nn.Linear:
        weight = module.weight
        if type(weight) is not nn.Parameter or weight.numel() < _SMALLEST or not can_pack(weight):
            return module  # quantised weights among others, whose type says so and whose dtype does not
        if rows > 1 or weight.numel() >= _LARGE:
            return PackedLinear(module, rows)
        return _by_columns(module) if weight.shape[0] > weight.shape[1] else module
    twin = copy.copy(module)
    twin.__dict__["_modules"] = {
        name: None if child is None else packed(child, rows) for name, child in module._modules.items()
    }
    return twin


def _by_columns(linear: nn.Linear) -> nn.Linear:
    twin = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    twin.weight = nn.Parameter(linear.weight.detach().t().contiguous().t(), requires_grad=False)
    twin.bias = linear.bias
    return twin

"""The weights of a decoding step: its joined projections, and whether they have changed since it was compiled."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import xxhash
from torch import nn

# The types of attributes that [`scalar_attrs`] returns.
_SCALARS = frozenset((bool, int, float, str))


def projections(decoder: Any, joined: bool) -> nn.ModuleList:
    """Return the projection of queries, keys and values for each layer, without values if it has a position table.

    Args:
        decoder: the decoder.
        joined: whether each is one linear layer with a copy of the weights.
    """
    projections = nn.ModuleList()
    for layer in decoder.layers:
        own = layer.self_attn
        has_table = own.position_table is not None
        parts = [own.q_proj, own.k_proj] if has_table else [own.q_proj, own.k_proj, own.v_proj]
        projections.append(_joined(parts) if joined else _Parts(parts))
    return projections


class _Parts(nn.ModuleList):
    """Linear layers whose outputs are concatenated."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(states) for part in self], dim=-1)


def _joined(parts: list[nn.Linear]) -> nn.Linear:
    """Return one linear layer whose output is the concatenated outputs of several."""
    weight = torch.cat([part.weight.detach() for part in parts])
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if parts[0].bias is not None:
        linear.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    return linear


def snapshot(parts: Sequence[nn.Module]) -> tuple[list[Any], ...]:
    """Return the state that modules compute with: modules, hashes of tensors, and the scalars among their attributes.

    No cheaper check detects every change: version counters do not count writes through `.data`. A hash takes a third
    of the time of a token.
    """
    modules = [module for part in parts for module in part.modules()]
    tensors = {id(tensor): tensor for part in parts for tensor in (*part.parameters(), *part.buffers())}
    return modules, scalar_attrs(parts), hashes_of(list(tensors.values()))  # the head may have the table's


def hashes_of(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype, bytes]]:
    """Return the shape and type of each tensor and a hash of its values, computed in as many threads as torch has."""

    def hash_of(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, bytes]:
        values = tensor.detach().contiguous().flatten().view(torch.uint8)
        return tensor.shape, tensor.dtype, xxhash.xxh3_128_digest(values.numpy().data)

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        return list(threads.map(hash_of, tensors))


def scalar_attrs(parts: Sequence[nn.Module]) -> list[list[Any]]:
    """Return the numbers and names that each module has as attributes, such as `eps` of a norm, and its type."""
    return [
        [type(module).__name__]
        + [[name, value] for name, value in vars(module).items() if type(value) in _SCALARS and name[0] != "_"]
        for part in parts
        for module in part.modules()
    ]

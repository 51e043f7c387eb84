"""The weights of a decoding step: its joined projections, and whether they have changed since it was compiled."""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import xxhash
from torch import nn

# The types of attributes that a snapshot compares.
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


class Snapshot:
    """The state that modules compute with: hashes of tensors, the modules, and the scalars among their attributes.

    No cheaper check detects every change: version counters do not count writes through `.data`. A hash takes a third
    of the time of a token.

    Args:
        parts: the modules, whose own attributes are compared too.
        tensors: the tensors to compare.
        settings: other values to compare.
    """

    def __init__(self, parts: Sequence[nn.Module], tensors: Sequence[torch.Tensor], settings: Any = None):
        self.scalars, self.settings = scalar_attrs(parts), copy.deepcopy(settings)
        # not the parts themselves, which the snapshot must not keep in memory
        self.modules = [module for part in parts for module in list(part.modules())[1:]]
        self.hashes = hashes_of(tensors)

    def matches(self, parts: Sequence[nn.Module], tensors: Sequence[torch.Tensor], settings: Any = None) -> bool:
        """Return whether nothing has changed."""
        modules = [module for part in parts for module in list(part.modules())[1:]]
        return (
            len(modules) == len(self.modules)
            and all(new is old for new, old in zip(modules, self.modules, strict=True))
            and settings == self.settings
            and scalar_attrs(parts) == self.scalars
            and hashes_of(tensors) == self.hashes
        )


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

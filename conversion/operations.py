"""The operations that convert tensors of a source to tensors of Weft, each with its inverse.

Shape suffixes: H heads, K width of a head, D input width. `...` is (D,) for a weight and nothing for a bias.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

Tensors = list[torch.Tensor]


class Heads(NamedTuple):
    """The head counts and the head width of an attention, which operations may need."""

    number: int
    key_value_number: int
    width: int


class Operation:
    """Converts the source's tensors to Weft's (`forward`) and back (`backward`, which returns [] if it cannot).

    This base class changes nothing.
    """

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return tensors

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return tensors


class Transpose(Operation):
    """Transposes (in, out) to (out, in), because Haiku multiplies by its weights from the right.

    Vectors do not change.
    """

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.t().contiguous() for tensor in tensors]

    backward = forward


class Squeeze(Operation):
    """Removes the batch axis of a table of positions, (1, L, D) or (L, 1, D). The inverse keeps the table (L, D)."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors]


@dataclass(frozen=True)
class Split(Operation):
    """Splits a fused projection into parts along its rows, as in `nn.MultiheadAttention`."""

    parts: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (fused,) = tensors
        return list(fused.chunk(self.parts))

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.cat(tensors)]


@dataclass(frozen=True)
class SplitByHead(Operation):
    """Splits a fused projection whose rows are ordered head by head: (H, parts, K, ...).

    A plain split would mix the heads.
    """

    parts: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (fused,) = tensors
        by_head = fused.unflatten(0, (heads.number, self.parts, heads.width))
        return [by_head[:, part].flatten(0, 1).contiguous() for part in range(self.parts)]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        by_head = [tensor.unflatten(0, (heads.number, heads.width)) for tensor in tensors]
        return [torch.stack(by_head, dim=1).flatten(0, 2)]


@dataclass(frozen=True)
class Stack(Operation):
    """Stacks the tensors of a layer's experts along a new first dimension, and multiplies the result by a constant."""

    factor: float = 1.0

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.stack(tensors) * self.factor]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (stacked,) = tensors
        return [tensor.contiguous() for tensor in (stacked / self.factor).unbind()]


class PairsToHalves(Operation):
    """Reorders the rows of a q or k projection: rotary pairs (2i, 2i + 1) become pairs (i, i + K/2).

    The same permutation in q and k does not change the product of a query and a key.
    """

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [t.unflatten(0, (-1, heads.width // 2, 2)).transpose(1, 2).flatten(0, 2).contiguous() for t in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [t.unflatten(0, (-1, 2, heads.width // 2)).transpose(1, 2).flatten(0, 2).contiguous() for t in tensors]


@dataclass(frozen=True)
class SkipRows(Operation):
    """Removes the first rows of a table, which are never read. The inverse adds rows of zeros."""

    rows: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor[self.rows :].contiguous() for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.cat([tensor.new_zeros(self.rows, *tensor.shape[1:]), tensor]) for tensor in tensors]


class DropFirstAxis(Operation):
    """Reshapes (1, V) to (V,)."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.squeeze(0) for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.unsqueeze(0) for tensor in tensors]


@dataclass(frozen=True)
class Scale(Operation):
    """Multiplies weights by a constant of the source's forward pass, which Weft's forward pass does not have."""

    factor: Callable[[Heads], float]

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor * self.factor(heads) for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor / self.factor(heads) for tensor in tensors]

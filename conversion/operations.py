"""The few things that happen to a tensor on its way from a source to Weft, each with its way back.

Shape suffixes: H heads, K width of a head, D input width; `...` is (D,) for a weight and nothing for a bias.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

Tensors = list[torch.Tensor]


class Heads(NamedTuple):
    """What an operation may need to know of the attention it works on."""

    number: int
    key_value_number: int
    width: int


class Operation:
    """From the source's tensors to Weft's (`forward`) and back (`backward`; nothing where the way leads nowhere).

    This one changes nothing.
    """

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return tensors

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return tensors


class Transpose(Operation):
    """(in, out) to (out, in): Haiku stores what it multiplies from the right. A vector stays as it is."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.t().contiguous() for tensor in tensors]

    backward = forward


@dataclass(frozen=True)
class Split(Operation):
    """One fused projection whose parts stand one below the other, as in `nn.MultiheadAttention`."""

    parts: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (fused,) = tensors
        return list(fused.chunk(self.parts))

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.cat(tensors)]


@dataclass(frozen=True)
class SplitByHead(Operation):
    """One fused projection laid out head by head: (H, parts, K, ...), so that a plain split would mix the heads."""

    parts: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (fused,) = tensors
        by_head = fused.unflatten(0, (heads.number, self.parts, heads.width))
        return [by_head[:, part].flatten(0, 1).contiguous() for part in range(self.parts)]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        by_head = [tensor.unflatten(0, (heads.number, heads.width)) for tensor in tensors]
        return [torch.stack(by_head, dim=1).flatten(0, 2)]


class Stack(Operation):
    """The experts of a layer, one tensor each, as one tensor with a first dimension of experts."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.stack(tensors)]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        (stacked,) = tensors
        return [tensor.contiguous() for tensor in stacked.unbind()]


class PairsToHalves(Operation):
    """Rows of a q or k projection whose rotary pairs are neighbours (2i, 2i + 1), as pairs (i, i + K/2).

    The same permutation in q and k leaves every product of a query and a key as it was.
    """

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [t.unflatten(0, (-1, heads.width // 2, 2)).transpose(1, 2).flatten(0, 2).contiguous() for t in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [t.unflatten(0, (-1, 2, heads.width // 2)).transpose(1, 2).flatten(0, 2).contiguous() for t in tensors]


@dataclass(frozen=True)
class SkipRows(Operation):
    """A table whose first rows are never read; on the way back they are zeros."""

    rows: int

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor[self.rows :].contiguous() for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [torch.cat([tensor.new_zeros(self.rows, *tensor.shape[1:]), tensor]) for tensor in tensors]


class DropFirstAxis(Operation):
    """(1, V) to (V,)."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.squeeze(0) for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor.unsqueeze(0) for tensor in tensors]


@dataclass(frozen=True)
class Scale(Operation):
    """A constant of the source's forward pass, multiplied into its weights once."""

    factor: Callable[[Heads], float]

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor * self.factor(heads) for tensor in tensors]

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [tensor / self.factor(heads) for tensor in tensors]


class Chain(Operation):
    """Several operations, the first one first."""

    def __init__(self, *operations: Operation):
        self.operations = operations

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        for operation in self.operations:
            tensors = operation.forward(tensors, heads)
        return tensors

    def backward(self, tensors: Tensors, heads: Heads) -> Tensors:
        for operation in reversed(self.operations):
            tensors = operation.backward(tensors, heads)
        return tensors

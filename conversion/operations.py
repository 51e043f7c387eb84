"""The operations that convert tensors of a source to tensors of Weft, each with its inverse.

Shape suffixes: H heads, K width of a head, D input width. `...` is (D,) for a weight and nothing for a bias.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

Tensors = list[torch.Tensor]


class Heads(NamedTuple):
    """The head counts and the head width of an attention, which operations may need."""

    number: int
    key_value_number: int
    width: int


class Operation(NamedTuple):
    """Converts the source's tensors to Weft's (`forward`) and back (`backward`, which returns [] if it cannot)."""

    forward: Callable[[Tensors, Heads], Tensors]
    backward: Callable[[Tensors, Heads], Tensors]


Change = Callable[[torch.Tensor, Heads], torch.Tensor]


def each(forward: Change, backward: Change) -> Operation:
    """Return an operation that converts each tensor by itself."""
    return Operation(
        lambda tensors, heads: [forward(tensor, heads).contiguous() for tensor in tensors],
        lambda tensors, heads: [backward(tensor, heads).contiguous() for tensor in tensors],
    )


UNCHANGED = Operation(lambda tensors, heads: tensors, lambda tensors, heads: tensors)

# Transposes (in, out) to (out, in), because Haiku multiplies by its weights from the right. Vectors do not change.
TRANSPOSE = each(lambda tensor, heads: tensor.t(), lambda tensor, heads: tensor.t())

# Removes the batch axis of a table of positions, (1, L, D) or (L, 1, D). The inverse keeps the table (L, D).
SQUEEZE = each(lambda tensor, heads: tensor.reshape(-1, tensor.shape[-1]), lambda tensor, heads: tensor)

# Reshapes (1, V) to (V,).
DROP_FIRST_AXIS = each(lambda tensor, heads: tensor.squeeze(0), lambda tensor, heads: tensor.unsqueeze(0))

# Reorders the rows of a q or k projection: rotary pairs (2i, 2i + 1) become pairs (i, i + K/2). The same permutation
# in q and k does not change the product of a query and a key.
PAIRS_TO_HALVES = each(
    lambda tensor, heads: tensor.unflatten(0, (-1, heads.width // 2, 2)).transpose(1, 2).flatten(0, 2),
    lambda tensor, heads: tensor.unflatten(0, (-1, 2, heads.width // 2)).transpose(1, 2).flatten(0, 2),
)


def scale(factor: Callable[[Heads], float]) -> Operation:
    """Return the product with a constant of the source's forward pass, which Weft's forward pass does not have."""
    return each(lambda tensor, heads: tensor * factor(heads), lambda tensor, heads: tensor / factor(heads))


def skip_rows(rows: int) -> Operation:
    """Return the removal of the first rows of a table, which are never read. The inverse adds rows of zeros."""
    return each(
        lambda tensor, heads: tensor[rows:], lambda tensor, heads: torch.nn.functional.pad(tensor, (0, 0, rows, 0))
    )


def split(parts: int) -> Operation:
    """Return the split of a fused projection into parts along its rows, as in `nn.MultiheadAttention`."""
    return Operation(lambda tensors, heads: list(tensors[0].chunk(parts)), lambda tensors, heads: [torch.cat(tensors)])


def split_by_head(parts: int) -> Operation:
    """Return the split of a fused projection whose rows are ordered head by head: (H, parts, K, ...).

    A plain split would mix the heads.
    """

    def forward(tensors: Tensors, heads: Heads) -> Tensors:
        by_head = tensors[0].unflatten(0, (heads.number, parts, heads.width))
        return [by_head[:, part].flatten(0, 1).contiguous() for part in range(parts)]

    def backward(tensors: Tensors, heads: Heads) -> Tensors:
        by_head = [tensor.unflatten(0, (heads.number, heads.width)) for tensor in tensors]
        return [torch.stack(by_head, dim=1).flatten(0, 2)]

    return Operation(forward, backward)


def stack_experts(factor: float = 1.0) -> Operation:
    """Return the stack of a layer's experts along a new first dimension, multiplied by a constant."""
    return Operation(
        lambda tensors, heads: [torch.stack(tensors) * factor],
        lambda tensors, heads: [tensor.contiguous() for tensor in (tensors[0] / factor).unbind()],
    )


def also_scaled(factor: float) -> Operation:
    """Return the conversion of a table to two: itself, and itself times a factor."""

    def backward(tensors: Tensors, heads: Heads) -> Tensors:
        return tensors[:1] if torch.equal(tensors[0] * factor, tensors[1]) else []

    return Operation(lambda tensors, heads: [tensors[0], tensors[0] * factor], backward)

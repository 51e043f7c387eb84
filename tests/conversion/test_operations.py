"""Every operation, against literal tensors, and its way back."""

import pytest
import torch

from weftformer.conversion.operations import (
    DropFirstAxis,
    Heads,
    Operation,
    PairsToHalves,
    Scale,
    Split,
    SplitByHead,
    Stack,
    Transpose,
)

# two heads, four wide
HEADS = Heads(2, 2, 4)


def column(*values):
    """A weight of one input, and the bias that goes the same way."""
    return torch.tensor(values, dtype=torch.float)[:, None], torch.tensor(values, dtype=torch.float)


def test_split_by_head_finds_the_parts_of_each_head():
    heads = Heads(2, 2, 1)
    # head 0: q, k, v; head 1: q, k, v
    for fused in column(1, 2, 3, 4, 5, 6):
        assert [part.flatten().tolist() for part in SplitByHead(3).forward([fused], heads)] == [[1, 4], [2, 5], [3, 6]]


def test_pairs_go_to_halves_head_by_head():
    for weight in column(0, 1, 2, 3, 10, 11, 12, 13):
        (turned,) = PairsToHalves().forward([weight], HEADS)
        assert turned.flatten().tolist() == [0, 2, 1, 3, 10, 12, 11, 13]


@pytest.mark.parametrize(
    ("operation", "shapes"),
    [
        (Operation(), [(6, 3)]),
        (Transpose(), [(6, 3)]),
        (Split(3), [(24, 3)]),
        (SplitByHead(3), [(24, 3)]),
        (SplitByHead(2), [(16,)]),
        (Stack(), [(4, 3), (4, 3)]),
        (PairsToHalves(), [(8, 3)]),
        (PairsToHalves(), [(8,)]),
        (DropFirstAxis(), [(1, 7)]),
        (Scale(lambda heads: 0.5), [(3,)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operation) else None,
)
def test_the_way_back(operation, shapes):
    tensors = [torch.randn(shape) for shape in shapes]
    there = operation.forward(tensors, HEADS)
    back = operation.backward(there, HEADS)
    assert len(back) == len(tensors)
    for one, other in zip(tensors, back, strict=True):
        assert torch.equal(one, other) and other.is_contiguous()
    # what is kept must not be a view into the whole file
    assert all(tensor.is_contiguous() for tensor in there)

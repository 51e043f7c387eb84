"""Operations that move rows, on literal tensors. `test_parity.py` has the others, and every way back."""

import torch

from weftformer.conversion.operations import Heads, PairsToHalves, SplitByHead

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

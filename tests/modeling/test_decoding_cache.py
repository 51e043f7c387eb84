"""What the beams share and what they wrote themselves, against histories that are simply copied."""

import pytest
import torch

from weftformer.modeling.decoding_cache import BeamCache

LAYERS, HEADS, WIDTH = 2, 1, 3


def filled(sources, beams, prefix, mask=None):
    """A cache with a prefix, and the history of each rank: the numbers that were written, for each a key."""
    cache = BeamCache(sources, beams, mask)
    numbers = torch.arange(1.0, sources * prefix + 1).view(sources, prefix)
    by_layer = torch.stack([numbers + 1000 * layer for layer in range(LAYERS)])
    states = by_layer[:, :, None, :, None].expand(-1, -1, HEADS, -1, WIDTH)
    cache.fill(torch.stack([states, -states]))
    return cache, numbers.repeat_interleave(beams, dim=0).tolist()


def write(cache, numbers):
    """One more token of each rank."""
    cache.grow()
    by_slot = torch.empty_like(numbers)
    by_slot[slice(None) if cache.slots is None else cache.slots] = numbers
    column = cache.next_column()
    for layer in range(LAYERS):
        states = (by_slot + 1000 * layer)[:, None, None].expand(-1, HEADS, WIDTH)
        column[0, layer], column[1, layer] = states, -states
    cache.end_step()


def seen(cache):
    """What each rank would attend to, from the last layer's keys."""
    rows = range(cache.sources * cache.beams) if cache.slots is None else cache.slots.tolist()
    found = []
    for row in rows:
        own = cache.suffixes[:, -1, row, 0, : cache.suffix_length, 0]
        if cache.beams > 1:
            shared = cache.prefix[:, -1, row // cache.beams, 0, cache.padding : cache.prefix_length, 0]
            own = torch.cat([shared, own], dim=1)
        assert torch.equal(own[0], -own[1])
        found.append((own[0] - 1000 * (LAYERS - 1)).tolist())
    return found


@pytest.mark.parametrize(("sources", "beams", "prefix"), [(1, 5, 4), (3, 4, 1), (2, 2, 70)])
@pytest.mark.parametrize("habit", ["any", "one leads", "apart"])
def test_each_rank_sees_its_own_past(sources, beams, prefix, habit):
    generator = torch.Generator().manual_seed(0)
    cache, histories = filled(sources, beams, prefix)
    number = 100_000.0
    for step in range(150):
        if step:
            first = torch.arange(sources)[:, None] * beams
            if habit == "any":
                parents = torch.randint(0, beams, (sources, beams), generator=generator) + first
            elif habit == "one leads":
                parents = (torch.arange(beams) * (torch.rand(beams, generator=generator) < 0.5)) + first
            else:
                parents = torch.stack([torch.randperm(beams, generator=generator) for _ in range(sources)]) + first
            cache.reorder(parents.flatten().int())
            histories = [histories[parent][:] for parent in parents.flatten().tolist()]
        numbers = torch.arange(number, number + len(histories))
        number += len(histories)
        write(cache, numbers)
        for history, new in zip(histories, numbers.tolist(), strict=True):
            history.append(new)
        assert cache.length == prefix + step + 1
        assert seen(cache) == histories
    whole = cache.by_rank()
    assert torch.equal(whole[1], -whole[0])
    assert (whole[0, -1, :, 0, :, 0] - 1000 * (LAYERS - 1)).tolist() == histories
    if habit == "any":  # what all beams of a source descend from is long, and kept once
        assert cache.prefix_length > prefix + 80


def test_only_what_differs_is_copied(monkeypatch):
    cache, _ = filled(1, 3, 2)
    for step in range(6):
        if step:
            cache.reorder(torch.tensor([0, 1, 2]))
        write(cache, torch.arange(3.0) + 10 * step)
    cache.reorder(torch.tensor([0, 0, 2]))  # rank 1 takes over the past of rank 0
    write(cache, torch.tensor([90.0, 91.0, 92.0]))
    copied = []
    original = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda to, *args: copied.append(to.shape[3]) or original(to, *args))
    cache.reorder(torch.tensor([0, 0, 2]))
    monkeypatch.undo()
    assert copied == [1]  # the rest of rank 1 is rank 0's already


def test_a_renumbering_copies_nothing(monkeypatch):
    cache, histories = filled(1, 3, 2)
    write(cache, torch.arange(3.0))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args: pytest.fail("copied"))
    cache.reorder(torch.tensor([2, 0, 1]))
    monkeypatch.undo()
    assert seen(cache) == [[*histories[0], 2.0], [*histories[0], 0.0], [*histories[0], 1.0]]
    cache.reorder(torch.tensor([1, 2, 0]))
    assert cache.slots is None  # every beam is back in its place


@pytest.mark.parametrize("beams", [1, 3])
def test_what_nobody_sees_is_masked(beams):
    mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
    cache, _ = filled(2, beams, 3, mask)
    assert cache.is_masked and cache.mask[:, :3].isneginf().tolist() == [[True, True, False], [False] * 3]
    whole, _ = filled(2, beams, 3, torch.ones_like(mask))
    assert not whole.is_masked
    short, _ = filled(2, beams, 1)
    # a shared prefix of one token is padded, because graphs are compiled for lengths from two on
    assert short.is_masked == (beams > 1) and short.length == 1
    assert [positions.tolist() for positions in short.key_positions()] == ([[0]] if beams == 1 else [[-1, 0], []])

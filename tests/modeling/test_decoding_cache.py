"""The past that each beam sees, against copied histories, while sources join, leave and change their ranks."""

import random
from itertools import compress

import pytest
import torch

from weftformer import WeftConfig
from weftformer.modeling.decoding.cache import DecodingCache, FastPathRequest, compaction_order

from ..models import TINY_CONFIG

CONFIG = WeftConfig(**TINY_CONFIG)
LAYERS, HEADS, WIDTH, SOURCE = 2, 1, 3, 5


def states_of(numbers):
    """Return keys (B, T) as states (L, B, G, T, K) of both kinds, the values negated."""
    by_layer = [(numbers + 1000 * layer)[:, None, :, None].expand(-1, HEADS, -1, WIDTH) for layer in range(LAYERS)]
    return torch.stack(by_layer)


def add(cache, numbers, mask=None):
    """Let sources join with these prefixes, and return the history of each rank: the numbers that it sees."""
    request = FastPathRequest(CONFIG, cache.beams, mask)
    for layer in range(LAYERS):
        keys = states_of(numbers)[layer]
        request.self_attention_cache.update(keys, -keys, layer)
        source = states_of(numbers[:, :1].expand(-1, SOURCE))[layer]
        request.cross_attention_cache.update(source, -source, layer)
    cache.add(request)
    seen = [row.tolist() if mask is None else row[mask[index].bool()].tolist() for index, row in enumerate(numbers)]
    return [seen[row // cache.beams][:] for row in range(len(numbers) * cache.beams)]


def write(cache, numbers):
    """Write one more token of each rank."""
    cache.grow()
    by_slot = torch.empty_like(numbers)
    by_slot[slice(None) if cache.slots is None else cache.slots] = numbers
    column = cache.next_column()
    for layer in range(LAYERS):
        states = (by_slot + 1000 * layer)[:, None, None, None].expand(-1, HEADS, 1, WIDTH)
        column[0, layer], column[1, layer] = states, -states
    cache.end_step()


def seen(cache):
    """Return what each rank attends to: the keys of the last layer that no mask hides."""
    slots = range(cache.sources * cache.beams) if cache.slots is None else cache.slots.tolist()
    found = [[] for _ in slots]
    cache.grow()
    *prefix, suffixes = (part[:, -1, :, 0, :, 0] for part in cache.past())  # of the last layer
    parts = [*prefix, suffixes[:, :, :-1]]  # without the column of the next token
    assert all(part.isfinite().all() and torch.equal(part[0], -part[1]) for part in parts)
    by_slot = [part[0].repeat_interleave(len(slots) // part.shape[1], dim=0) for part in parts]
    keys = (torch.cat(by_slot, dim=1) - 1000 * (LAYERS - 1)).tolist()
    mask = cache.mask()
    for own, slot in zip(found, slots, strict=True):
        own += keys[slot] if mask is None else compress(keys[slot], mask[slot, 0, 0].tolist())
    return found


@pytest.mark.parametrize(
    ("beams", "together", "habit", "own_prefixes"),
    [
        (1, False, "any", [0, 6]),
        (3, False, "any", [0, 6]),
        (3, False, "one leads", [6]),
        (3, False, "apart", [0]),
        (4, True, "any", [6]),
        (4, True, "one leads", [0, 6]),
        (4, True, "apart", [0, 6]),
    ],
)
def test_ranks_see_their_history(monkeypatch, beams, together, habit, own_prefixes):
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda like, *shape: like.new_full(shape, float("nan")))
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    generator, chance = torch.Generator().manual_seed(0), random.Random(beams)
    cache, histories, number = DecodingCache(CONFIG, beams), [], 10_000.0
    for step in range(120):
        sources = len(histories) // beams
        if sources < 2 or (sources < 5 and chance.random() < 0.1 and not together):
            new = chance.randint(1, 3) if not together else 3
            cache.own_prefix = chance.choice(own_prefixes)
            prefix = torch.arange(number, number + new * 6).view(new, 6)
            mask = torch.ones(new, 6)
            if not together:
                for row in mask:
                    row[: chance.randint(0, 5)] = 0
            histories, number = histories + add(cache, prefix, mask), number + new * 6
        if step:
            first = torch.arange(len(histories) // beams)[:, None] * beams
            if habit == "any":
                parents = torch.randint(0, beams, (len(first), beams), generator=generator) + first
            elif habit == "one leads":
                parents = (torch.arange(beams) * (torch.rand(beams, generator=generator) < 0.5)) + first
            else:
                parents = torch.stack([torch.randperm(beams, generator=generator) for _ in first]) + first
            cache.reorder(parents.flatten().int())
            histories = [histories[parent][:] for parent in parents.flatten().tolist()]
        assert seen(cache) == histories
        write(cache, torch.arange(number, number + len(histories)))
        for row, history in enumerate(histories):
            history.append(number + row)
        number += len(histories)
        assert cache.lengths == [len(histories[row]) for row in range(0, len(histories), beams)]
        if chance.random() < 0.1 and not together:
            kept = compaction_order([chance.random() < 0.5 for _ in range(len(histories) // beams)])
            if kept is not None:
                cache.batch_select_indices(kept)
                histories = [histories[source * beams + rank] for source in kept for rank in range(beams)]
        assert seen(cache) == histories
        assert len(cache.source.lengths) == len(histories) // beams
    if together:  # no mask, and the common past of all beams of a source is kept once
        assert cache.mask() is None
        assert habit == "apart" or cache.prefix_lengths[0] > 60
    assert cache.suffixes.shape[4] == 64 or beams == 1 or habit == "apart"


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ([False] * 4, None),
        ([True] * 4, None),
        ([True, False, False, True], [2, 1]),
        ([False, True, True, True, False, False], [0, 4, 5]),
        ([False] * 9 + [True], list(range(9))),
    ],
)
def test_last_sources_take_the_place_of_done_sources(done, expected):
    assert compaction_order(done) == expected

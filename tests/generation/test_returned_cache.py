"""What `generate(return_dict_in_generate=True)` returns as `past_key_values`: an ordinary cache, whichever path decoded."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from .conftest import few_kinds, grid

PAD, START = 0, 1
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
PREFIX = torch.tensor([[START, 5, 6], [PAD, START, 9], [START, 7, 7], [PAD, PAD, START]])
PADDED = {"decoder_input_ids": PREFIX, "decoder_attention_mask": (PREFIX != PAD).long()}
REQUESTS = {
    "greedy": {},
    "sampling": {"do_sample": True, "num_return_sequences": 2},
    "beams": {"num_beams": 3},
    "beams that end": {
        "num_beams": 4,
        "num_return_sequences": 4,
        "early_stopping": True,
        "eos_token_id": [2, 5, 6, 7],
    },
    "beams that sample": {"do_sample": True, "num_beams": 3},
    "another search": {"num_beams": 3, "custom_generate": "sqrt_length"},
    "padded prefixes": PADDED,
    "padded prefixes, beams": PADDED | {"num_beams": 3},
    "one token": {"max_new_tokens": 1, "num_beams": 2},
}


def both(model, inputs, **request):
    """What the fast and the plain path return."""
    outputs = []
    for cache in ({}, {"cache_implementation": "dynamic"}):
        torch.manual_seed(3)
        settings = {"max_new_tokens": 20, "return_dict_in_generate": True, "output_scores": True} | request
        outputs.append(model.generate(**inputs, **settings, **cache))
    return outputs


def halves(cache):
    return cache.self_attention_cache, cache.cross_attention_cache


def assert_same_values(found, expected, **close):
    for one, other in zip(halves(found), halves(expected), strict=True):
        assert len(one.layers) == len(other.layers) > 0
        for layer, plain in zip(one.layers, other.layers, strict=True):
            assert type(layer) is type(plain) and layer.keys.dtype == plain.keys.dtype
            torch.testing.assert_close(layer.keys, plain.keys, **(CLOSE | close))
            torch.testing.assert_close(layer.values, plain.values, **(CLOSE | close))


@grid(REQUESTS, everywhere=("beams", "padded prefixes"))
def test_it_is_the_cache_of_the_plain_path(model, inputs, steps, request_):
    fast, plain = both(model, inputs, **REQUESTS[request_])
    takes_fast = not (model.config.has_relative_self_attention and "padded" in request_) and request_ != "one token"
    assert bool(steps) == takes_fast
    assert torch.equal(fast.sequences, plain.sequences)
    for cache in (fast.past_key_values, plain.past_key_values):
        assert type(cache) is EncoderDecoderCache
        assert [type(half) for half in halves(cache)] == [DynamicCache, DynamicCache]
    assert fast.past_key_values.is_updated == plain.past_key_values.is_updated
    assert_same_values(fast.past_key_values, plain.past_key_values)


@pytest.mark.parametrize("beams", [1, 3])
def test_all_positions_of_the_source_are_in_it(build, source, beams):
    """Those too that nobody may see, which the fast path leaves out: a longer mask may show them."""
    hidden = (source != PAD).long()
    hidden[:, 7:] = 0
    fast, plain = both(build("rotary"), {"input_ids": source, "attention_mask": hidden}, num_beams=beams)
    assert_same_values(fast.past_key_values, plain.past_key_values)
    assert fast.past_key_values.cross_attention_cache.layers[0].keys.shape == (4 * beams, 2, 9, 8)


@few_kinds
@pytest.mark.parametrize(("request_", "prefix"), [({}, PADDED), ({"do_sample": True, "temperature": 1.5}, {})])
def test_an_interrupted_generation_is_the_uninterrupted_one(model, inputs, request_, prefix):
    settings = {"return_dict_in_generate": True, "output_scores": True} | request_
    torch.manual_seed(7)
    whole = model.generate(**inputs, **settings, **prefix, min_new_tokens=12, max_new_tokens=12)
    torch.manual_seed(7)
    first = model.generate(**inputs, **settings, **prefix, min_new_tokens=5, max_new_tokens=5)
    longer = {"decoder_input_ids": first.sequences, "past_key_values": first.past_key_values}
    if prefix:
        mask = prefix["decoder_attention_mask"]
        longer["decoder_attention_mask"] = torch.nn.functional.pad(mask, (0, 5), value=1)
    rest = model.generate(**inputs, **settings, **longer, min_new_tokens=7, max_new_tokens=7)
    assert torch.equal(rest.sequences, whole.sequences)
    scores = torch.stack([*first.scores, *rest.scores])
    torch.testing.assert_close(scores, torch.stack(whole.scores), atol=1e-4, rtol=1e-4)
    assert_same_values(rest.past_key_values, whole.past_key_values, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_requests_that_the_fast_path_leaves_get_one_too(build, source, beams, steps, monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **kwargs: None)
    model = build("rotary")
    for settings in (
        {"synced_gpus": True},
        {"decoder_position_ids": torch.tensor([0])},
        {"decoder_position_mask": torch.tensor([True])},
    ):
        fast, plain = both(model, {"input_ids": source}, num_beams=beams, **settings)
        assert not steps and torch.equal(fast.sequences, plain.sequences)
        assert type(fast.past_key_values) is EncoderDecoderCache
        assert_same_values(fast.past_key_values, plain.past_key_values)

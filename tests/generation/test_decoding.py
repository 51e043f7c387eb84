"""The fast path of decoding against the plain path: the same tokens and scores over a grid of requests."""

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessor,
    LogitsProcessorList,
)  # fmt: skip
from transformers.generation.streamers import BaseStreamer

import weftformer
from weftformer.modeling.decoding import step, weights
from weftformer.modeling.decoding.cache import DecodingCache, SourceCache

from .conftest import CLOSE, PAD, PADDED, START, few_kinds, grid

REQUESTS = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "many beams, all returned": {"num_beams": 7, "num_return_sequences": 7, "max_new_tokens": 28},
    "early stopping": {"num_beams": 4, "early_stopping": True, "length_penalty": 2.0},
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 9},
    "several samples": {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 20},
    "one token": {"max_new_tokens": 1, "num_beams": 2},
    "processors": {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.4, "min_new_tokens": 6},
    "processors, greedy": {"suppress_tokens": [5, 6], "forced_eos_token_id": 2, "renormalize_logits": True},
    "a prefix": {"decoder_input_ids": torch.tensor([[START, 5, 6, 7]] * 4), "num_beams": 2},
    "many tokens that end": {
        "num_beams": 4,
        "num_return_sequences": 2,
        "eos_token_id": [2, 5, 6, 7],
        "max_new_tokens": 30,
    },
    "ends, greedy": {"eos_token_id": [2, 5, 6, 7, 8, 9], "max_new_tokens": 30},
    "until nothing can improve": {
        "num_beams": 3,
        "early_stopping": "never",
        "length_penalty": 2.0,
        "eos_token_id": [2, 5],
    },
    "short answers": {"num_beams": 3, "length_penalty": -1.0, "eos_token_id": [2, 5, 9], "max_new_tokens": 20},
    "no token that ends": {"num_beams": 2, "eos_token_id": None},
    "beams that sample and end": {"do_sample": True, "num_beams": 4, "eos_token_id": [2, 5, 6, 7], "top_k": 12},
    "another search": {"num_beams": 4, "num_return_sequences": 4, "custom_generate": "sqrt_length", "max_length": 20},
}


def both_ways(model, inputs, request, steps):
    settings = {"max_new_tokens": 12, "return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    if "max_length" in request:
        settings.pop("max_new_tokens")
    outputs = []
    for cache in ({}, {"cache_implementation": "dynamic"}):
        torch.manual_seed(3)
        outputs.append(model.generate(**inputs, **(settings | request | cache)))
        if not cache:
            prefix = request["decoder_input_ids"].shape[1] if "decoder_input_ids" in request else 1
            # the first token comes from a forward pass over the prefix
            assert steps or outputs[0].sequences.shape[1] == prefix + 1, "the fast path was not taken"
            steps.clear()
    assert not steps, "the plain path was not taken"
    return outputs


def assert_same(short, plain):
    assert torch.equal(short.sequences, plain.sequences)
    assert set(short.keys()) == set(plain.keys())
    for name in ("scores", "logits"):
        if getattr(plain, name) is not None:
            for one, other in zip(getattr(short, name), getattr(plain, name), strict=True):
                torch.testing.assert_close(one, other, **CLOSE)
    for name in ("sequences_scores", "beam_indices"):
        if getattr(plain, name, None) is not None:
            torch.testing.assert_close(getattr(short, name), getattr(plain, name), **CLOSE)
    assert_same_caches(short.cache, plain.cache)


def assert_same_caches(found, expected, **close):
    assert type(found) is type(expected) is EncoderDecoderCache and found.is_updated == expected.is_updated
    for half in ("self_attention_cache", "cross_attention_cache"):
        one, other = getattr(found, half), getattr(expected, half)
        assert type(one) is type(other) is DynamicCache
        assert len(one.layers) == len(other.layers) > 0
        for layer, plain in zip(one.layers, other.layers, strict=True):
            assert type(layer) is type(plain) and layer.keys.dtype == plain.keys.dtype
            torch.testing.assert_close(layer.keys, plain.keys, **(CLOSE | close))
            torch.testing.assert_close(layer.values, plain.values, **(CLOSE | close))


@grid(REQUESTS, everywhere=("greedy", "many beams, all returned"))
def test_both_ways_give_the_same(model, inputs, steps, request_):
    assert_same(*both_ways(model, inputs, REQUESTS[request_], steps))


@pytest.mark.parametrize("beams", [1, 3])
def test_prefixes_of_different_length(model, inputs, steps, beams):
    request = PADDED | {"num_beams": beams}
    if model.config.has_relative_self_attention:
        model.generate(**inputs, **request, max_new_tokens=4)
        assert not steps  # offsets between rows that are padded differently: the plain path
    else:
        assert_same(*both_ways(model, inputs, request, steps))


@pytest.mark.parametrize("beams", [1, 3])
def test_all_positions_of_the_source_are_in_the_cache(build, source, steps, beams):
    """Those too that nobody may see, which the fast path leaves out: a longer mask may show them."""
    hidden = (source != PAD).long()
    hidden[:, 7:] = 0
    inputs = {"input_ids": source, "attention_mask": hidden}
    fast, plain = both_ways(build("rotary"), inputs, {"num_beams": beams}, steps)
    assert_same(fast, plain)
    assert fast.cache.cross_attention_cache.layers[0].keys.shape == (4 * beams, 2, 9, 8)


@few_kinds
@pytest.mark.parametrize(("request_", "prefix"), [({}, PADDED), ({"do_sample": True, "temperature": 1.5}, {})])
def test_an_interrupted_generation_is_the_uninterrupted_one(model, inputs, request_, prefix):
    settings = {"return_dict_in_generate": True, "output_scores": True} | request_
    torch.manual_seed(7)
    whole = model.generate(**inputs, **settings, **prefix, min_new_tokens=12, max_new_tokens=12)
    torch.manual_seed(7)
    first = model.generate(**inputs, **settings, **prefix, min_new_tokens=5, max_new_tokens=5)
    longer = {"decoder_input_ids": first.sequences, "cache": first.cache}
    if prefix:
        mask = prefix["decoder_attention_mask"]
        longer["decoder_attention_mask"] = torch.nn.functional.pad(mask, (0, 5), value=1)
    lengths = []
    handle = model.model.decoder.layers[0].register_forward_hook(lambda m, args, out: lengths.append(args[0].shape[1]))
    rest = model.generate(**inputs, **settings, **longer, min_new_tokens=7, max_new_tokens=7)
    handle.remove()
    assert lengths == [1] * 7  # nothing was computed a second time
    assert torch.equal(rest.sequences, whole.sequences)
    scores = torch.stack([*first.scores, *rest.scores])
    torch.testing.assert_close(scores, torch.stack(whole.scores), atol=1e-4, rtol=1e-4)
    assert_same_caches(rest.cache, whole.cache, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_what_only_the_plain_path_can_do_it_does(build, source, beams, steps, monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **kwargs: None)
    model, settings = build("rotary"), {"num_beams": beams, "max_new_tokens": 12, "return_dict_in_generate": True}
    for given in ({"synced_gpus": True}, {"decoder_position_ids": torch.tensor([0])}):
        found = model.generate(source, **settings, **given)
        plain = model.generate(source, **settings, cache_implementation="dynamic")
        assert not steps and torch.equal(found.sequences, plain.sequences)
        assert_same_caches(found.cache, plain.cache)


@pytest.mark.parametrize("kind", ["relative", "bucketed"])
def test_prefixes_of_different_length_have_other_offsets_to_the_source(build, source, steps, kind):
    model = build("rotary", cross_attention_position_type=kind)
    request = PADDED | {"num_beams": 3, "max_new_tokens": 6}
    found = model.generate(source, **request)
    assert not steps
    assert torch.equal(found, model.generate(source, **request, cache_implementation="dynamic"))


def test_what_beams_share_is_kept_once_and_room_grows(build, source, steps, monkeypatch):
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 3)
    caches, original = [], DecodingCache.__init__
    monkeypatch.setattr(
        DecodingCache, "__init__", lambda self, *args, **kwargs: caches.append(self) or original(self, *args, **kwargs)
    )
    model = build("rotary")
    request = {"num_beams": 6, "max_new_tokens": 90, "min_new_tokens": 90}
    assert_same(*both_ways(model, {"input_ids": source}, request, steps))
    (cache,) = caches
    # the common past of all six beams is kept once
    assert cache.lengths == [90] * 4
    assert cache.prefix_lengths == cache.prefix_lengths[:1] * 4 and cache.prefix_lengths[0] > 60


def test_a_streamer_hears_each_token(build, source, steps):
    class Listener(BaseStreamer):
        def __init__(self):
            self.heard = []

        def put(self, value):
            self.heard.append(value.tolist())

        def end(self):
            self.heard.append("end")

    model, heard = build("rotary"), []
    for cache in ({}, {"cache_implementation": "dynamic"}):
        listener = Listener()
        model.generate(source[:1], max_new_tokens=9, streamer=listener, **cache)
        heard.append(listener.heard)
    assert heard[0] == heard[1] and heard[0][-1] == "end" and steps


def test_bfloat16_weights_decode(build, source, steps):
    model = build("learned", num_condition_features=0).to(torch.bfloat16)
    request = {"num_beams": 3, "max_new_tokens": 8, "output_scores": True, "return_dict_in_generate": True}
    short = model.generate(source, **request)
    plain = model.generate(source, **request, cache_implementation="dynamic")
    assert steps
    # the first step after the prefix; later ones may part where two tokens are a rounding apart
    torch.testing.assert_close(short.scores[0], plain.scores[0], atol=0.1, rtol=0.1)


def test_what_cannot_be_compiled_is_refused(build):
    with pytest.raises(ValueError, match=r"training mode \(`model.eval\(\)`"):
        weftformer.fast_decoding(build("rotary").train())
    growing = build("rotary", rope_parameters=ROTARY["dynamic"])
    with pytest.raises(ValueError, match='rotary positions of the type "dynamic" change with the length of the text'):
        weftformer.fast_decoding(growing)


ROTARY = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "original_max_position_embeddings": 8},
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "rope_theta": 100.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 8,
    },
}


@pytest.mark.parametrize("scaling", ROTARY)
def test_scaled_rotary_positions_past_their_first_length(build, source, steps, monkeypatch, scaling):
    monkeypatch.setattr(weights, "_SMALLEST", 0)  # small weights are laid out anew too
    limits = {"max_target_positions": 8, "max_source_positions": 12}
    model = build("rotary", rope_parameters=ROTARY[scaling], **limits)
    for _ in range(2):  # frequencies of some kinds are those of the longest text so far
        assert_same(*both_ways(model, {"input_ids": source}, {"max_new_tokens": 28, "num_beams": 3}, steps))
    # training in several processes writes to the buffers in place, which inference mode would forbid
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))
    model.train()(input_ids=source, labels=source).loss.backward()


def test_processors_may_change_scores_in_place(build, source, steps):
    class Halves(LogitsProcessor):
        def __call__(self, input_ids, scores):
            return scores.mul_(0.5)

    request = {"max_new_tokens": 12, "logits_processor": LogitsProcessorList([Halves()])}
    # in float32, because the logits of other models are copied to it
    assert_same(*both_ways(build("rotary").float(), {"input_ids": source}, request, steps))


def test_source_positions_that_nobody_sees_are_left_out():
    mask = torch.tensor([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]])
    states = torch.arange(10.0).view(1, 2, 1, 5, 1)
    cache = SourceCache()
    cache.add(torch.stack([states, -states]), mask)
    keys, values = cache.states[:, 0]
    assert keys[:, 0, :, 0].tolist() == [[0, 2], [6, 5]] and torch.equal(values, -keys)
    assert cache.mask[:, 0, 0].tolist() == [[True, True], [True, False]]
    assert cache.positions.tolist() == [[0, 2], [1, 0]]


def test_weights_that_count_for_nothing_are_zero(build, source, steps, monkeypatch):
    """A trained model has numbers below 1e-38 among its attention weights, and a product with them takes many times as long."""
    model = build("rotary")
    for layer in model.model.decoder.layers:
        layer.self_attn.q_proj.weight.data *= 100
    seen, mixed = [], step._mixed
    monkeypatch.setattr(step, "_mixed", lambda weights, values: seen.append(weights) or mixed(weights, values))
    prefix = torch.tensor([[START, *range(3, 23)]] * 4)  # long enough to be shared
    request = {"num_beams": 3, "decoder_input_ids": prefix, "max_new_tokens": 12}
    assert_same(*both_ways(model, {"input_ids": source}, request, steps))
    weights = torch.cat([one.flatten() for one in seen])
    assert (weights == 0).any() and not ((weights > 0) & (weights < 1e-30)).any()

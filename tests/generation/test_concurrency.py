"""Concurrent requests do not write to the shared configuration and do not affect each other."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from transformers import WatermarkingConfig

from weftformer import WeftConfig

START = 1
LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8}
PLAIN = {"cache_implementation": "dynamic"}
REQUESTS = {
    "greedy": {},
    "sampling, plain": PLAIN | {"do_sample": True},
    "beams, plain": PLAIN | {"num_beams": 3},
    "beams, static": {"num_beams": 3, "cache_implementation": "static"},
    "attentions": {"output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "watermark": {"watermarking_config": WatermarkingConfig(greenlist_ratio=0.5), "do_sample": True},
    "another search": {"num_beams": 3, "custom_generate": "sqrt_length"},
}


@pytest.fixture
def writes(monkeypatch):
    """Record the names of fields written to the configurations in `watched`."""
    writes = SimpleNamespace(names=[], watched=[])

    def recorded(original):
        def record(config, name, *value):
            writes.names += [name] if any(config is one for one in writes.watched) else []
            original(config, name, *value)

        return record

    for method in ("__setattr__", "__delattr__"):
        monkeypatch.setattr(WeftConfig, method, recorded(getattr(WeftConfig, method)))
    return writes


@pytest.mark.parametrize("request_", REQUESTS)
def test_no_request_writes_to_the_configuration(build, source, writes, request_):
    model = build("larger target")
    writes.watched.append(model.config)
    source = source[:1] if request_ == "prompt lookup" else source
    found = model.generate(source, **LENGTH, **REQUESTS[request_])
    sequences = found if isinstance(found, torch.Tensor) else found.sequences
    assert sequences.shape[1] == 9 and sequences.max() < model.config.target_vocab_size
    assert not writes.names


def test_layers_cannot_be_left_out_for_they_would_be_so_for_all(build, source, writes):
    model = build("rotary")
    writes.watched.append(model.config)
    with pytest.raises(ValueError, match="assistant_early_exit=1: this model cannot skip layers"):
        model.generate(source[:1], assistant_early_exit=1, **LENGTH)
    assert not writes.names


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_call_that_looks_ahead_is_the_only_one_that_does(build, source, writes, implementation):
    model, target, others = build("rotary"), torch.tensor([[START, 5, 6, 7]] * 4), []
    model.set_attn_implementation(implementation)
    expected = model(source, decoder_input_ids=target).logits
    alone = model(source, decoder_input_ids=target, is_causal=False).logits
    assert not torch.allclose(alone, expected, atol=1e-3)
    writes.watched.append(model.config)

    def another_request(*args):
        handle.remove()
        others.append(model(source, decoder_input_ids=target).logits)

    # in the middle of the call, as a thread may come in between
    handle = model.model.decoder.embed_tokens.register_forward_hook(another_request)
    found = model(source, decoder_input_ids=target, is_causal=False).logits
    torch.testing.assert_close(others, [expected])
    torch.testing.assert_close(found, alone)
    assert not writes.names


@pytest.mark.parametrize("kind", ["larger target", "smaller target"])
def test_searches_in_threads_are_those_one_after_the_other(build, source, kind):
    model = build(kind)
    before = model.config.to_dict()
    requests = [{"num_beams": beams, "use_cache": cached} for beams in (2, 3, 4) for cached in (True, False)] * 2
    requests = [LENGTH | request | (PLAIN if request["use_cache"] else {}) for request in requests]
    expected = [model.generate(source, **request) for request in requests]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda request: model.generate(source, **request), requests))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert model.config.to_dict() == before

"""Which requests take the fast path, and the messages when they do not."""

import logging

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import weftformer
from weftformer import WeftForConditionalGeneration
from weftformer.modeling.decoding import continuous, dispatch

from .conftest import PADDED


def louder(module, query, key, value, attention_mask, **kwargs):
    output, weights = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    return output * 3.0, weights


def assert_plain_with_change(model, source, steps, before):
    """Check that a change affects the generated tokens, and that all ways of generation agree."""
    settings = {"min_new_tokens": 12, "max_new_tokens": 12}
    found = model.generate(source, **settings)
    assert not steps and not torch.equal(found, before)
    assert torch.equal(found, model.generate(source, use_cache=False, **settings))


@pytest.fixture
def before(build, source, steps):
    tokens = build("rotary").generate(source, min_new_tokens=12, max_new_tokens=12)
    assert steps
    steps.clear()
    return tokens


@pytest.mark.parametrize("name", ["mine", "sdpa", "eager"])
def test_registered_attention_takes_the_plain_path(build, source, steps, before, monkeypatch, name):
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", dict(ALL_ATTENTION_FUNCTIONS._local_mapping))
    monkeypatch.setattr(
        type(ALL_ATTENTION_FUNCTIONS), "_global_mapping", dict(ALL_ATTENTION_FUNCTIONS._global_mapping)
    )
    ALL_ATTENTION_FUNCTIONS.register(name, louder)
    model = build("rotary")
    model.set_attn_implementation(name)
    assert_plain_with_change(model, source, steps, before)


class Softer(WeftForConditionalGeneration):
    """A subclass whose logits are not those of the head."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits.roll(1, dims=-1)
        return output


def test_subclass_takes_the_plain_path(build, source, steps, before):
    model = Softer(build("rotary").config).eval()
    model.load_state_dict(build("rotary").state_dict())
    assert_plain_with_change(model, source, steps, before)


def replaces_a_method(model):
    own = model.prepare_inputs_for_generation

    def replaced(*args, **kwargs):
        inputs = own(*args, **kwargs)
        inputs["decoder_input_ids"] = inputs["decoder_input_ids"].clamp(max=11)
        return inputs

    model.prepare_inputs_for_generation = replaced


def hooks_a_layer(model):
    model.model.decoder.layers[1].mlp.register_forward_hook(lambda module, args, output: output * 3)


def hooks_the_table(model):
    """Hook the decoder's table, which is also that of the encoder."""
    model.model.decoder.embed_tokens.register_forward_hook(lambda module, args, output: output.flip(-1))


def replaces_forward(model):
    attention = model.model.decoder.layers[0].encoder_attn
    own = attention.forward
    attention.forward = lambda *args, **kwargs: (own(*args, **kwargs)[0] * 3, None)


def replaces_a_module(model):
    class Adapted(torch.nn.Linear):
        def forward(self, states):
            return super().forward(states) * 3

    layer = model.model.decoder.layers[0].self_attn
    adapted = Adapted(16, 16, bias=False, dtype=layer.v_proj.weight.dtype)
    adapted.load_state_dict(layer.v_proj.state_dict())
    layer.v_proj = adapted


def replaces_an_activation(model):
    class Thrice(torch.nn.Module):
        def forward(self, states):
            return states * 3

    model.model.decoder.layers[1].mlp.act_fn = Thrice()


CHANGES = [
    replaces_a_method,
    hooks_a_layer,
    hooks_the_table,
    replaces_forward,
    replaces_a_module,
    replaces_an_activation,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_model_takes_the_plain_path(build, source, steps, before, change):
    model = build("rotary")
    change(model)
    model.eval()
    assert_plain_with_change(model, source, steps, before)


def test_global_hook_is_called_by_every_layer(build, source, steps):
    seen = []
    handle = register_module_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    try:
        build("rotary").generate(source, min_new_tokens=5, max_new_tokens=5)
    finally:
        handle.remove()
    assert not steps and seen.count("WeftDecoderLayer") == 2 * 5


@pytest.mark.parametrize("beams", [1, 3])
def test_experts_with_capacity_take_the_plain_path(build, source, steps, beams):
    """What an expert drops depends on all tokens of the call: beams of one prefix are several."""
    model = build("sparse", expert_capacity_factor=1.0)
    request = {"num_beams": beams, "min_new_tokens": 4, "max_new_tokens": 4, "return_dict_in_generate": True}
    found, plain = (
        model.generate(source[:1], **request, **cache, output_logits=True)
        for cache in ({}, {"cache_implementation": "dynamic"})
    )
    assert not steps and torch.equal(found.sequences, plain.sequences)
    torch.testing.assert_close(found.logits, plain.logits)
    assert "capacity" in continuous.reason_against(model)


@pytest.mark.parametrize("beams", [1, 3])
def test_requests_of_the_plain_path_equal_it(build, source, beams, steps, monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **kwargs: None)
    model, settings = build("rotary"), {"num_beams": beams, "max_new_tokens": 12, "return_dict_in_generate": True}
    for request in ({"synced_gpus": True}, {"output_attentions": True}):
        found = model.generate(source, **settings, **request)
        plain = model.generate(source, **settings, cache_implementation="dynamic")
        assert not steps and torch.equal(found.sequences, plain.sequences)
        assert found.cache.get_seq_length() == plain.cache.get_seq_length() > 0


@pytest.mark.parametrize("kind", ["relative", "bucketed"])
def test_padded_prefixes_with_relative_cross_attention_take_the_plain_path(build, source, steps, kind):
    model = build("rotary", cross_attention_position_type=kind)
    request = PADDED | {"num_beams": 3, "max_new_tokens": 6}
    found = model.generate(source, **request)
    assert not steps and torch.equal(found, model.generate(source, **request, cache_implementation="dynamic"))


def test_models_on_other_devices_take_the_fast_path_only_if_asked(build, monkeypatch, caplog):
    """The device "meta" stands for all but the CPU."""
    monkeypatch.setattr(dispatch, "_logged_reasons", set())
    caplog.set_level(logging.DEBUG, logger=dispatch.__name__)
    model = build("rotary").to("meta")
    for _ in range(2):
        assert dispatch.prepared_request(model, model.generation_config, {}, dispatch._MODES[0], 2) is None
    (record,) = [record for record in caplog.records if record.name == dispatch.__name__]
    assert record.levelno == logging.DEBUG and "`fast_decoding` was not called" in record.getMessage()
    assert weftformer.fast_decoding(model) is model
    assert dispatch.reason_against_model(model) is None and not dispatch.is_compiled(model)
    weftformer.fast_decoding(model, compile=False)
    assert dispatch.reason_against_model(model) is not None
    split = build("rotary", tie_word_embeddings=False)
    split.lm_head.to("meta")
    with pytest.raises(ValueError, match="weights are on cpu and meta"):
        weftformer.fast_decoding(split)


def test_returned_states_autocast_and_training_take_the_plain_path(build, source, steps):
    model = build("rotary")
    for request in (
        {"use_cache": False}, {"cache_implementation": "dynamic"}, {"output_attentions": True},
        {"output_hidden_states": True}, {"encoder_attention_mask": torch.ones(4, 1, 1, 9)},
    ):  # fmt: skip
        model.generate(source, max_new_tokens=4, return_dict_in_generate=True, **request)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.generate(source, max_new_tokens=4)
    model.train().generate(source, max_new_tokens=4)
    assert not steps
    model(input_ids=source, labels=source, output_attentions=True).loss.backward()  # leaves recorders behind
    model.eval().generate(source, max_new_tokens=4)
    assert steps


def test_offloaded_weights_take_the_plain_path(build, source, steps, before, tmp_path):
    """As `device_map="auto"` splits a model when memory is short."""
    build("rotary").save_pretrained(tmp_path)
    model = WeftForConditionalGeneration.from_pretrained(
        tmp_path, device_map={"model": "disk", "lm_head": "cpu"}, offload_folder=tmp_path / "offloaded"
    )
    assert any(parameter.device.type == "meta" for parameter in model.parameters())
    for request in ({}, {"cache_implementation": "static"}):
        assert torch.equal(model.generate(source, min_new_tokens=12, max_new_tokens=12, **request), before)
    assert not steps

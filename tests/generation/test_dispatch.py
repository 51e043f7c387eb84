"""Which requests take the fast path, and the messages when they do not."""

import logging

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from weftformer import WeftForConditionalGeneration
from weftformer.modeling.decoding import continuous, dispatch


def louder(module, query, key, value, attention_mask, **kwargs):
    output, weights = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    return output * 3.0, weights


def assert_plain_and_heard(model, source, steps, before):
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
def test_an_attention_of_the_users_takes_the_plain_path_whatever_its_name(
    build, source, steps, before, monkeypatch, name
):
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", dict(ALL_ATTENTION_FUNCTIONS._local_mapping))
    monkeypatch.setattr(
        type(ALL_ATTENTION_FUNCTIONS), "_global_mapping", dict(ALL_ATTENTION_FUNCTIONS._global_mapping)
    )
    ALL_ATTENTION_FUNCTIONS.register(name, louder)
    model = build("rotary")
    model.set_attn_implementation(name)
    assert_plain_and_heard(model, source, steps, before)


class Softer(WeftForConditionalGeneration):
    """A subclass whose logits are not those of the head."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits.roll(1, dims=-1)
        return output


def test_a_subclass_is_heard(build, source, steps, before):
    model = Softer(build("rotary").config).eval()
    model.load_state_dict(build("rotary").state_dict())
    assert_plain_and_heard(model, source, steps, before)


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
def test_a_change_of_the_model_is_heard(build, source, steps, before, change):
    model = build("rotary")
    change(model)
    model.eval()
    assert_plain_and_heard(model, source, steps, before)


def test_a_hook_on_every_module_is_called(build, source, steps):
    seen = []
    handle = register_module_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    try:
        build("rotary").generate(source, min_new_tokens=5, max_new_tokens=5)
    finally:
        handle.remove()
    assert not steps and seen.count("WeftDecoderLayer") == 2 * 5


@pytest.mark.parametrize("beams", [1, 3])
def test_experts_with_a_capacity_get_the_tokens_of_the_plain_path(build, source, steps, beams):
    """What an expert drops depends on all tokens of the call: beams of one prefix are several."""
    model = build("sparse", expert_capacity_factor=1.0)
    request = {"num_beams": beams, "min_new_tokens": 4, "max_new_tokens": 4, "return_dict_in_generate": True}
    found, plain = (
        model.generate(source[:1], **request, **cache, output_logits=True)
        for cache in ({}, {"cache_implementation": "dynamic"})
    )
    assert not steps and torch.equal(found.sequences, plain.sequences)
    for one, other in zip(found.logits, plain.logits, strict=True):
        torch.testing.assert_close(one, other)
    assert "capacity" in continuous.reason_against(model)


def test_another_machine_takes_the_plain_path_and_says_so_once(build, monkeypatch, caplog):
    """No weight is on another machine here: the device "meta" stands for all but the CPU."""
    monkeypatch.setattr(dispatch, "_logged_reasons", set())
    model = build("rotary").to("meta")
    caplog.set_level(logging.DEBUG, logger=dispatch.__name__)
    settings = model.generation_config
    for _ in range(3):
        request = dispatch.prepared_request(model, settings, {}, dispatch._MODES[0], 2)
        assert request is None
    (record,) = [record for record in caplog.records if record.name == dispatch.__name__]
    assert record.levelno == logging.DEBUG
    assert record.getMessage() == (
        "generate uses the plain path: weights are on meta, and `fast_decoding` was not called."
    )


def test_conditions_of_a_request_take_the_plain_path(build, source, steps):
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


def test_a_model_with_weights_on_the_disk_writes_the_same(build, source, steps, before, tmp_path):
    """As `device_map="auto"` splits a model when memory is short."""
    build("rotary").save_pretrained(tmp_path)
    model = WeftForConditionalGeneration.from_pretrained(
        tmp_path, device_map={"model": "disk", "lm_head": "cpu"}, offload_folder=tmp_path / "offloaded"
    )
    assert any(parameter.device.type == "meta" for parameter in model.parameters())
    for request in ({}, {"cache_implementation": "static"}):
        assert torch.equal(model.generate(source, min_new_tokens=12, max_new_tokens=12, **request), before)
    assert not steps

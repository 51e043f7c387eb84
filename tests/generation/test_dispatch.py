"""Which requests take the fast path, and the messages when they do not."""

from types import MethodType

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers import WatermarkingConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import weftformer
from weftformer import WeftForConditionalGeneration
from weftformer.modeling import attention, modeling_weft
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


def louder_outputs(forward):
    def replaced(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        if not isinstance(output, tuple):
            return output * 3
        return tuple(
            part * 3 if isinstance(part, torch.Tensor) and part.is_floating_point() else part for part in output
        )

    return replaced


def by_subclass(module, monkeypatch):
    kind = type(module)
    module.__class__ = type(kind.__name__, (kind,), {"forward": louder_outputs(kind.forward)})


def by_object(module, monkeypatch):
    module.forward = MethodType(louder_outputs(type(module).forward), module)


def by_class(module, monkeypatch):
    monkeypatch.setattr(type(module), "forward", louder_outputs(type(module).forward))


PARTS = {
    "self-attention": lambda layers: layers[0].self_attn,
    "cross-attention": lambda layers: layers[0].encoder_attn,
    "feed-forward": lambda layers: layers[1].mlp,
    "sparse feed-forward": lambda layers: layers[0].mlp,
    "router": lambda layers: layers[0].mlp.router,
    "layer": lambda layers: layers[0],
    "norm": lambda layers: layers[1].final_layer_norm,
    "projection": lambda layers: layers[0].self_attn.v_proj,
}


@pytest.mark.parametrize("change", [by_subclass, by_object, by_class])
@pytest.mark.parametrize("part", PARTS)
def test_replaced_forward_takes_the_plain_path(build, source, steps, monkeypatch, part, change):
    model, settings = build("sparse"), {"min_new_tokens": 12, "max_new_tokens": 12}
    before, state = model.generate(source, **settings), dispatch._State(model)
    assert dispatch.reason_against_model(model, with_encoder=True) is None
    steps.clear()
    change(PARTS[part](model.model.decoder.layers), monkeypatch)
    assert dispatch.reason_against_model(model)
    assert dispatch._State(model) != state  # which compiled searches are kept for
    assert_plain_with_change(model, source, steps, before)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (attention.AttentionBase, "queries"),
        (attention.SelfAttention, "attend"),
        (modeling_weft.ResidualLayer, "pre_norm"),
    ],
)
def test_replaced_method_takes_the_plain_path(build, source, steps, before, monkeypatch, kind, name):
    monkeypatch.setattr(kind, name, louder_outputs(getattr(kind, name)))
    model = build("rotary")
    assert kind.__name__ in dispatch.reason_against_model(model)
    assert_plain_with_change(model, source, steps, before)


def replaces_a_part_of_attention(model):
    """Replace a method that `forward` calls, for one layer."""
    attention = model.model.decoder.layers[0].self_attn
    own = attention.attend
    attention.attend = lambda *args, **kwargs: (own(*args, **kwargs)[0] * 3, None)


def replaces_a_method(model):
    own = model.prepare_inputs_for_generation

    def replaced(*args, **kwargs):
        inputs = own(*args, **kwargs)
        inputs["decoder_input_ids"] = inputs["decoder_input_ids"].clamp(max=11)
        return inputs

    model.prepare_inputs_for_generation = replaced


def replaces_an_inherited_method(model):
    own = model._update_model_kwargs_for_generation

    def replaced(outputs, *args, **options):
        outputs.logits = outputs.logits.roll(1, dims=-1)
        return own(outputs, *args, **options)

    model._update_model_kwargs_for_generation = replaced


def hooks_the_table(model):
    """Hook the decoder's table, which is also that of the encoder."""
    model.model.decoder.embed_tokens.register_forward_hook(lambda module, args, output: output.flip(-1))


class Quiet(torch.nn.Module):
    def forward(self, states):
        return states * 0.1


class Softer(WeftForConditionalGeneration):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits.roll(1, dims=-1)
        return output


CHANGES = [
    replaces_a_part_of_attention,
    replaces_a_method,
    replaces_an_inherited_method,
    hooks_the_table,
    lambda model: setattr(model, "__class__", Softer),
    lambda model: setattr(model.model.decoder.layers[1].mlp, "act_fn", Quiet()),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_model_takes_the_plain_path(build, source, steps, before, change):
    model = build("rotary")
    change(model)
    model.eval()
    assert_plain_with_change(model, source, steps, before)


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


def test_models_on_other_devices_take_the_fast_path_only_if_asked(build):
    """The device "meta" stands for all but the CPU."""
    model = build("rotary").to("meta")
    assert "`fast_decoding` was not called" in dispatch.reason_against_model(model)
    assert weftformer.fast_decoding(model) is model
    assert dispatch.reason_against_model(model) is None
    weftformer.fast_decoding(model, enable=False)
    assert dispatch.reason_against_model(model) is not None
    assert weftformer.fast_decoding(build("rotary")) is not None  # which has no effect on a CPU
    with pytest.raises(ValueError, match="training mode"):
        weftformer.fast_decoding(build("rotary").train())
    split = build("rotary", tie_word_embeddings=False)
    split.lm_head.to("meta")
    with pytest.raises(ValueError, match="weights are on cpu and meta"):
        weftformer.fast_decoding(split)


def test_requests_of_the_plain_path(build, source, steps, monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **kwargs: None)
    model = build("rotary")
    for request in (
        {"use_cache": False}, {"cache_implementation": "dynamic"}, {"output_attentions": True},
        {"output_hidden_states": True}, {"encoder_attention_mask": torch.ones(4, 1, 1, 9)}, {"synced_gpus": True},
    ):  # fmt: skip
        model.generate(source, max_new_tokens=4, return_dict_in_generate=True, **request)
    build("rotary", cross_attention_position_type="relative").generate(source, **PADDED, max_new_tokens=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.generate(source, max_new_tokens=4)
    handle = register_module_forward_hook(lambda module, args, output: None)
    model.generate(source, max_new_tokens=4)
    handle.remove()
    model.train().generate(source, max_new_tokens=4)
    assert not steps
    model(input_ids=source, labels=source, output_attentions=True).loss.backward()  # leaves recorders behind
    model.eval().generate(source, max_new_tokens=4)
    assert steps


@pytest.mark.parametrize("beams", [1, 2])
def test_unwrapped_generate_keeps_gradients(build, source, beams):
    model = build("rotary")
    settings = {"max_new_tokens": 4, "num_beams": beams, "return_dict_in_generate": True, "output_logits": True}
    output = model.generate.__wrapped__(model, source, **settings)
    assert output.logits[-1].requires_grad
    usual = model.generate(source, **settings)
    assert torch.equal(output.sequences, usual.sequences) and not usual.logits[-1].requires_grad


@pytest.mark.parametrize(
    "request_",
    [
        {"num_beams": 3, "cache_implementation": "static"},
        {"prompt_lookup_num_tokens": 2},
        {"watermarking_config": WatermarkingConfig(greenlist_ratio=0.5), "do_sample": True},
    ],
    ids=lambda request: next(iter(request)),
)
def test_requests_leave_the_shared_configuration_unchanged(build, source, writes, request_):
    model = build("larger target")
    writes.watched.append(model.config)
    found = model.generate(source[:1], min_new_tokens=8, max_new_tokens=8, **request_)
    assert found.shape[1] == 9 and not writes.names


def test_decoder_for_says_who_writes_and_why(build, source, steps, caplog):
    model = build("rotary")
    for settings in ({"num_beams": 3}, {"use_cache": False}, {"do_sample": True}, {"output_attentions": True}):
        steps.clear()
        choice = model.decoder_for(source, **settings)
        model.generate(source, max_new_tokens=3, return_dict_in_generate=True, **settings)
        assert choice.name == ("cached" if steps else "transformers") and choice.reason
    assert "use_cache=False" in model.decoder_for(source, use_cache=False).reason
    assert "weftformer compile" in model.decoder_for(source).reason
    assert "custom_generate" in model.decoder_for(source, custom_generate="sqrt_length").reason
    assert "training mode" in model.train().decoder_for(source).reason
    assert model.decoder_for(input_ids=source, attention_mask=torch.ones(4, 1, 9, 9)).name == "transformers"


def test_the_reason_of_a_slow_search_is_logged_once(build, source, monkeypatch):
    messages = []
    monkeypatch.setattr(dispatch.logger, "info_once", messages.append, raising=False)
    for _ in range(2):
        build("rotary").generate(source, max_new_tokens=2, use_cache=False)
    assert len(set(messages)) == 1 and "use_cache=False" in messages[0]


def test_a_method_that_computes_logits_is_followed(build, source, steps, before):
    class Rolled(WeftForConditionalGeneration):
        def compute_logits(self, hidden_states):
            return super().compute_logits(hidden_states).roll(1, dims=-1)

    model, settings = build("rotary"), {"min_new_tokens": 12, "max_new_tokens": 12}
    model.__class__ = Rolled
    tokens = model.generate(source, **settings)
    assert steps and not torch.equal(tokens, before)
    assert torch.equal(tokens, model.generate(source, use_cache=False, **settings))
    assert "compute_logits" in dispatch.reason_against_graphs(model)  # a compiled file would be that of another class


def test_another_search_in_transformers_takes_the_plain_path(build, source, steps, monkeypatch):
    model = build("rotary")
    monkeypatch.setattr(dispatch, "FITS_SEARCH", False)
    model.generate(source, max_new_tokens=3, num_beams=2)
    assert not steps and model.decoder_for(source).name == "transformers"

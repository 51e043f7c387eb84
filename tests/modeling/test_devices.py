"""Models on other devices than the CPU, without such a device: fake tensors have a device, but no values."""

from contextlib import nullcontext

import pytest
import torch
from accelerate import hooks
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import initialization

from weftformer.modeling import losses, modeling_weft, moe
from weftformer.modeling.transformers_names import ALL_EXPERTS_FUNCTIONS

SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "encoder_ffn_dim": 24}
KINDS = {
    "rotary": {"num_key_value_heads": 2, "use_qk_norm": True},
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none"},
    "own head": {"tie_word_embeddings": False},
    "sparse": SPARSE | {"router_bias_update_rate": 0.1},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "additive": {"self_attention_position_type": "additive", "cross_attention_position_type": "additive"},
    "conditions": {"num_condition_features": 2},
}
# the parts on the second of two devices
SECOND = {
    "decoder and head": ["model.decoder", "lm_head"],
    "last layers": ["model.encoder.layers.1", "model.decoder.layers.1", "model.decoder.layer_norm", "lm_head"],
}


@pytest.fixture
def two_devices(monkeypatch):
    """Fake tensors on `lazy:0` and `lazy:1`. Of all types of devices, a torch for CPUs can index only this one."""
    monkeypatch.setattr(hooks.AlignDevicesHook, "init_hook", lambda self, module: module)  # reads where a tensor lies
    for module in (losses, moe):  # this type of device has no autocast
        monkeypatch.setattr(module, "maybe_autocast", lambda *args, **kwargs: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *args: False)
    # the class of a fake parameter is not `Parameter`
    monkeypatch.setattr(modeling_weft, "chunks_loss", lambda head, chunked_loss, training: bool(chunked_loss))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def dispatched(model, second):
    """Place each module, and add the hooks that `device_map` adds: they move inputs to the device of the module."""

    def device_of(name):
        return f"lazy:{int(any(f'{name}.'.startswith(f'{part}.') for part in second))}"

    blocks = {}
    for name, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is not None:
                    moved = tensor.detach().to(device_of(name))
                    tensors[key] = torch.nn.Parameter(moved) if tensors is module._parameters else moved
        is_split = any(part.startswith(f"{name}.") for part in second)
        if name and not is_split and not any(name.startswith(f"{block}.") for block in blocks):
            blocks[name] = device_of(name)
    hooks.attach_align_device_hook_on_blocks(
        model,
        execution_device={"": "lazy:0"} | blocks,
        offload=dict.fromkeys(blocks, False),
        skip_keys=model._skip_keys_device_placement,
    )
    return model


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("kind", KINDS)
def test_model_split_over_two_devices(build, two_devices, kind, second):
    with torch.device("lazy:0"), initialization.no_init_weights():
        model = build(attention="sdpa", **KINDS[kind])
    for part in (model, model.model.encoder, model.model.decoder):
        part._has_checked_values = True  # fake tensors have none
    if kind == "sparse":
        model.set_experts_implementation("batched_mm")  # fake grouped products take 16 bits alone
    model = dispatched(model, SECOND[second])
    assert {str(weight.device) for weight in model.parameters()} == {"lazy:0", "lazy:1"}
    ids = torch.randint(5, 29, (3, 6), device="lazy:0")
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if kind == "conditions":
        given["condition_values"] = torch.ones(3, 2, device="lazy:0")
    for chunked_loss in (False, True):
        loss = model.train()(**given, labels=ids, chunked_loss=chunked_loss).loss
        loss.backward()
        assert str(loss.device) == "lazy:0"
    with torch.no_grad():
        output = model.eval()(**given, labels=ids)
        assert str(output.loss.device) == str(output.logits.device) == "lazy:0"
        output = model(**given, decoder_input_ids=ids[:, :1])
        given |= {"encoder_outputs": (output.encoder_last_hidden_state,), "cache": output.cache}
        for _ in range(2):
            assert str(model(**given, decoder_input_ids=ids[:, :1]).logits.device) == "lazy:0"


@torch.no_grad()
def test_experts_of_a_decoding_step_take_batched_mm_on_devices(build, monkeypatch):
    """The prefill keeps grouped products: the other implementation copies the weights of an expert for each token."""
    calls = []
    for name in ("grouped_mm", "batched_mm"):
        original = ALL_EXPERTS_FUNCTIONS[name]
        monkeypatch.setitem(
            ALL_EXPERTS_FUNCTIONS._global_mapping,
            name,
            lambda *args, name=name, original=original: calls.append(name) or original(*args),
        )
    for device, in_steps in (("meta", "batched_mm"), ("cpu", "grouped_mm")):
        model = build(attention="sdpa", dtype=torch.bfloat16, **SPARSE)
        model.set_experts_implementation("grouped_mm")
        model.to(device).tie_weights()
        ids = torch.full((3, 4), 5, device=device)
        mask = torch.ones_like(ids)
        given = {"attention_mask": mask}
        output = model(input_ids=ids, decoder_input_ids=ids[:, :2], **given)
        assert set(calls) == {"grouped_mm"}
        calls.clear()
        given |= {"encoder_outputs": (output.encoder_last_hidden_state,), "cache": output.cache}
        model(decoder_input_ids=ids[:, :1], **given)
        model(decoder_input_ids=ids[:, :1], decoder_attention_mask=mask, **given)  # with pads to leave out
        assert set(calls) == {in_steps} and len(calls) == 4
        assert model.config._experts_implementation == "grouped_mm"
        calls.clear()
        experts = model.model.decoder.layers[0].mlp.experts
        own = experts.forward
        experts.forward = lambda tokens, ids, weights, own=own: own(tokens, ids, weights)  # as expert parallelism does
        model(decoder_input_ids=ids[:, :1], **given)
        assert calls[0] == "grouped_mm"
        calls.clear()


def test_chunked_loss_multiplies_in_the_dtype_of_autocast(build):
    """Weights are converted once for all chunks, and no product is in float32."""
    model = build(attention="sdpa", vocab_size=64).train()
    ids = torch.full((4, 6), 5)
    found = []
    original = losses._add_product

    def add_product(d_weight, d_logits, hidden):
        found.append(hidden.dtype)
        original(d_weight, d_logits, hidden)

    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", dtype=torch.bfloat16):
        patch.setattr(losses, "_add_product", add_product)
        patch.setitem(losses._CHUNKS, "cpu", 8 * 64)
        loss = model(input_ids=ids, labels=ids, chunked_loss=True).loss
        whole = model(input_ids=ids, labels=ids).loss
    assert found == [torch.bfloat16] * 3 and loss.dtype == torch.float32
    torch.testing.assert_close(loss, whole)
    loss.backward()
    assert model.lm_head.weight.grad.dtype == torch.float32


def test_head_norms_compute_in_the_dtype_of_autocast(build):
    """Otherwise torch warns of mixed types, which the tests make an error, and takes more kernels."""
    model = build(attention="sdpa", use_qk_norm=True)
    found = []
    model.model.encoder.layers[0].self_attn.q_norm.register_forward_hook(lambda *call: found.append(call[2].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(input_ids=torch.full((2, 4), 5), labels=torch.full((2, 4), 5)).loss.backward()
    assert found == [torch.bfloat16]

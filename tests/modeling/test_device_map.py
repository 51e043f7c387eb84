"""A model that `device_map` splits over two devices, without such devices: fake tensors have a device, but no values."""

from contextlib import nullcontext

import pytest
import torch
from accelerate import hooks
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import initialization

from weftformer.modeling import losses, modeling_weft, moe

SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "encoder_ffn_dim": 24}
KINDS = {
    "own head": {"tie_word_embeddings": False, "num_condition_features": 2},
    "sparse": SPARSE | {"router_bias_update_rate": 0.1},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
}
SECOND = ["model.encoder.layers.1", "model.decoder", "lm_head"]


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


def dispatched(model):
    """Place each module, and add the hooks that `device_map` adds: they move inputs to the device of the module."""

    def device_of(name):
        return f"lazy:{int(any(f'{name}.'.startswith(f'{part}.') for part in SECOND))}"

    blocks = {}
    for name, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is not None:
                    moved = tensor.detach().to(device_of(name))
                    tensors[key] = torch.nn.Parameter(moved) if tensors is module._parameters else moved
        is_split = any(part.startswith(f"{name}.") for part in SECOND)
        if name and not is_split and not any(name.startswith(f"{block}.") for block in blocks):
            blocks[name] = device_of(name)
    hooks.attach_align_device_hook_on_blocks(
        model,
        execution_device={"": "lazy:0"} | blocks,
        offload=dict.fromkeys(blocks, False),
        skip_keys=model._skip_keys_device_placement,
    )
    return model


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_model_split_over_two_devices(build, two_devices, kind):
    with torch.device("lazy:0"), initialization.no_init_weights():
        model = build(attention="sdpa", **KINDS[kind])
    for part in (model, model.model.encoder, model.model.decoder):
        part.has_checked_values = True  # fake tensors have none
    if kind == "sparse":
        model.set_experts_implementation("batched_mm")  # fake grouped products take 16 bits alone
    model = dispatched(model)
    assert {str(weight.device) for weight in model.parameters()} == {"lazy:0", "lazy:1"}
    ids = torch.randint(5, 29, (3, 6), device="lazy:0")
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if kind == "own head":
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

"""Models on other devices than the CPU, without such a device: tensors on "meta" have a device, but no values."""

import pytest
import torch

from weftformer.modeling import losses
from weftformer.modeling.transformers_names import ALL_EXPERTS_FUNCTIONS

from .test_host_reads import SPARSE


def test_losses_are_computed_on_the_device_of_the_head(build):
    """As `device_map` splits a large model. Loads are counted on the device of their router."""
    head, states, labels = torch.nn.Linear(16, 31, device="meta"), torch.randn(2, 3, 16), torch.ones(2, 3).long()
    assert losses.cross_entropy(head(states.to("meta")), labels, 0.1, 9).is_meta
    assert losses.chunked_cross_entropy(states, head, labels, 0.1, 9).is_meta
    router = build(**SPARSE, router_bias_update_rate=0.1).to("meta").routers()[0]
    router.count_load(torch.ones(4))
    assert router.expert_load.is_meta


@torch.no_grad()
@pytest.mark.parametrize(("device", "in_steps"), [("meta", "batched_mm"), ("cpu", "grouped_mm")])
def test_experts_of_a_decoding_step_take_batched_mm_on_devices(build, monkeypatch, device, in_steps):
    """The prefill keeps grouped products: the other implementation copies the weights of an expert for each token."""
    calls = []
    for name in ("grouped_mm", "batched_mm"):
        original = ALL_EXPERTS_FUNCTIONS[name]
        called = lambda *args, name=name, original=original: calls.append(name) or original(*args)  # noqa: E731
        monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS._global_mapping, name, called)
    model = build(attention="sdpa", dtype=torch.bfloat16, **SPARSE)
    model.set_experts_implementation("grouped_mm")
    model.to(device).tie_weights()
    ids = torch.full((3, 4), 5, device=device)
    given = {"attention_mask": torch.ones_like(ids)}
    output = model(input_ids=ids, decoder_input_ids=ids[:, :2], **given)
    assert set(calls) == {"grouped_mm"}
    calls.clear()
    given |= {"encoder_outputs": (output.encoder_last_hidden_state,), "cache": output.cache}
    model(decoder_input_ids=ids[:, :1], **given)
    model(
        decoder_input_ids=ids[:, :1], decoder_attention_mask=given["attention_mask"], **given
    )  # with pads to leave out
    assert calls == [in_steps] * 4 and model.config._experts_implementation == "grouped_mm"
    experts = model.model.decoder.layers[0].mlp.experts
    own = experts.forward
    experts.forward = lambda tokens, ids, weights: own(tokens, ids, weights)  # as expert parallelism does
    calls.clear()
    model(decoder_input_ids=ids[:, :1], **given)
    assert calls[0] == "grouped_mm"


def test_products_are_in_the_dtype_of_autocast(build, monkeypatch):
    """Of the chunked loss, whose weights are converted once for all chunks, and the norms of heads."""
    model = build(attention="sdpa", vocab_size=64, use_qk_norm=True).train()
    ids, found, original = torch.full((4, 6), 5), [], losses._add_product
    norm = model.model.encoder.layers[0].self_attn.q_norm
    norm.register_forward_hook(lambda module, args, output: found.append(output.dtype))
    monkeypatch.setattr(losses, "_add_product", lambda *given: found.append(given[2].dtype) or original(*given))
    monkeypatch.setitem(losses._CHUNKS, "cpu", 8 * 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids, chunked_loss=True).loss
        whole = model(input_ids=ids, labels=ids).loss
    assert found == [torch.bfloat16] * 5 and loss.dtype == torch.float32
    torch.testing.assert_close(loss, whole)
    loss.backward()
    assert model.lm_head.weight.grad.dtype == torch.float32

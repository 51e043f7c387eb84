"""Weft with peft, accelerate and the Trainer of transformers."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from weftformer import WeftForConditionalGeneration

from ..models import tiny_model

pytestmark = pytest.mark.dtype(torch.float64)

BALANCED = {
    "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["dense", "sparse"], "num_experts": 4,
    "router_bias_update_rate": 0.1, "tie_word_embeddings": False, "share_encoder_decoder_embeddings": False,
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])


def build(**fields) -> WeftForConditionalGeneration:
    return tiny_model(dropout=0.0, init_std=0.3, **fields)


def test_a_router_that_is_trained_beside_an_adapter_is_the_one_that_counts():
    """PEFT keeps the router as it was, and trains and calls a copy."""
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], modules_to_save=["router"])
    model = get_peft_model(build(**BALANCED), settings).train()
    inner = model.get_base_model()
    layers = [*inner.model.encoder.layers, inner.model.decoder.layers[1]]
    kept = [layer.mlp.router.original_module for layer in layers]
    trained = [layer.mlp.router.modules_to_save["default"] for layer in layers]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        model(input_ids=IDS, labels=TARGET).loss.backward()
        assert [router.expert_load.sum() for router in trained] == [20, 20, 16]
        assert all(one.expert_load is other.expert_load for one, other in zip(inner.routers(), trained, strict=True))
        optimizer.step()
        assert all(router.selection_bias.any() and not router.expert_load.any() for router in trained)
    assert not any(router.selection_bias.any() or router.expert_load.any() for router in kept)
    trained[0].expert_load[0] = 5.0
    before = trained[0].selection_bias.clone()
    inner.routers()[0].update_selection_bias()
    assert not torch.equal(trained[0].selection_bias, before)
    with model.disable_adapter():
        assert inner.routers()[0].selection_bias is kept[0].selection_bias

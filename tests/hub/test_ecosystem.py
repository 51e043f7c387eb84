"""Weft with peft, accelerate and the Trainer of transformers."""

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from weftformer import WeftForConditionalGeneration
from weftformer.hub.export import flat_files

from ..models import tiny_model

pytestmark = pytest.mark.dtype(torch.float64)

BALANCED = {
    "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["dense", "sparse"], "num_experts": 4,
    "router_bias_update_rate": 0.1, "tie_word_embeddings": False, "share_encoder_decoder_embeddings": False,
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def build(**fields) -> WeftForConditionalGeneration:
    return tiny_model(dropout=0.0, init_std=0.3, **fields)


@torch.no_grad()
def scores(model) -> torch.Tensor:
    return model(input_ids=IDS, decoder_input_ids=TARGET).logits


def test_lora_trains_saves_loads_and_generates(tmp_path):
    base = build(**BALANCED)
    before = {name: parameter.clone() for name, parameter in base.named_parameters()}
    settings = {"target_modules": ["q_proj", "v_proj"], "task_type": peft.TaskType.SEQ_2_SEQ_LM, "lora_dropout": 0.0}
    model = get_peft_model(base, LoraConfig(r=4, **settings))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    # two stacks of two layers, the decoder's with two attentions; q and v, each with two small matrices
    assert len(trained) == (2 + 4) * 2 * 2 and all("lora_" in name for name in trained)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    losses = []
    for _ in range(8):
        loss = model(input_ids=IDS, labels=TARGET).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05
    model.eval()
    expected, text = scores(model), model.generate(input_ids=IDS, max_new_tokens=5)

    model.save_pretrained(tmp_path / "adapter")
    assert not list((tmp_path / "adapter").glob("*.py"))
    other = PeftModel.from_pretrained(build(**BALANCED), tmp_path / "adapter").eval()
    torch.testing.assert_close(scores(other), expected, **EXACT)
    assert torch.equal(other.generate(input_ids=IDS, max_new_tokens=5), text)
    for name, parameter in build(**BALANCED).named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_layer_is_never_split(tmp_path):
    """accelerate's plan for two devices with room for half a model each."""
    from accelerate import infer_auto_device_map

    model = build()
    half = sum(parameter.nbytes for parameter in model.parameters()) // 2
    plan = infer_auto_device_map(
        model, max_memory={0: half, 1: 4 * half}, no_split_module_classes=list(model._no_split_modules)
    )
    assert set(plan.values()) == {0, 1}
    for name in plan:
        assert ".layers." not in name or name.rsplit(".layers.", 1)[1].isdigit(), name


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
        assert len(inner.routers()) == 3
        for router, used, copied in zip(inner.routers(), trained, kept, strict=True):
            assert router.expert_load is used.expert_load and used.expert_load.sum() == 2 * (
                10 if used is not trained[2] else 8
            )
            assert not copied.expert_load.any()
        optimizer.step()
        assert all(router.selection_bias.any() and not router.expert_load.any() for router in trained)
    trained[0].expert_load[0] = 5.0
    before = trained[0].selection_bias.clone()
    for router in inner.routers():
        router.update_selection_bias()
    assert not torch.equal(trained[0].selection_bias, before)
    assert not any(router.selection_bias.any() for router in kept)
    with model.disable_adapter():
        assert all(
            one.selection_bias is other.selection_bias for one, other in zip(inner.routers(), kept, strict=True)
        )


TABLES = {
    "one table": {},
    "one table, own head": {"tie_word_embeddings": False},
    "two tables, tied head": {"share_encoder_decoder_embeddings": False},
}


@pytest.mark.parametrize("case", TABLES)
def test_a_merged_adapter_is_a_model_that_is_saved_and_loaded(case, tmp_path):
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(build(**TABLES[case]), settings).eval()
    expected = scores(model)
    merged = model.merge_and_unload()
    torch.testing.assert_close(scores(merged), expected, **EXACT)
    assert type(merged) is WeftForConditionalGeneration
    merged.save_pretrained(tmp_path)
    assert set(flat_files()) <= {path.name for path in tmp_path.iterdir()}
    torch.testing.assert_close(scores(WeftForConditionalGeneration.from_pretrained(tmp_path)), expected, **EXACT)

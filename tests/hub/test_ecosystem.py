"""Weft in the hands of peft, accelerate, the Trainer and torch.compile."""

import json

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from weftformer import WeftForConditionalGeneration
from weftformer.hub.export import flat_files

from ..models import tiny_model
from .conftest import words_tokenizer

pytestmark = pytest.mark.dtype(torch.float64)

KINDS = {
    "dense": {},
    "balanced": {
        "encoder_mlp_layer_types": "sparse",
        "decoder_mlp_layer_types": ["dense", "sparse"],
        "num_experts": 4,
        "router_type": "noisy_top_k",
        "router_bias_update_rate": 0.1,
        "mlp_bias": True,
        "self_attention_position_type": "relative",
        "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False,
    },
}
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def build(**fields) -> WeftForConditionalGeneration:
    return tiny_model(dropout=0.0, init_std=0.3, **fields)


@torch.no_grad()
def scores(model) -> torch.Tensor:
    return model(input_ids=IDS, decoder_input_ids=TARGET).logits


@pytest.mark.parametrize("kind", KINDS)
def test_lora_trains_saves_loads_merges_and_generates(kind, tmp_path):
    base = build(**KINDS[kind])
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
    other = PeftModel.from_pretrained(build(**KINDS[kind]), tmp_path / "adapter").eval()
    torch.testing.assert_close(scores(other), expected, **EXACT)
    assert torch.equal(other.generate(input_ids=IDS, max_new_tokens=5), text)

    merged = other.merge_and_unload()
    assert type(merged) is WeftForConditionalGeneration
    torch.testing.assert_close(scores(merged), expected, **EXACT)
    merged.save_pretrained(tmp_path / "merged")
    again = WeftForConditionalGeneration.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(scores(again), expected, **EXACT)
    assert set(flat_files()) <= {path.name for path in (tmp_path / "merged").iterdir()}
    for name, parameter in build(**KINDS[kind]).named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_prefix_tuning_reads_the_heads_of_the_configuration():
    model = build(num_key_value_heads=1, use_cache=False)
    before = scores(model)
    prefixed = get_peft_model(model, PrefixTuningConfig(task_type=peft.TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=3))
    table = prefixed.prompt_encoder["default"].embedding.weight
    # keys and values of two layers, for the heads that share them
    assert table.shape == (3, 2 * 2 * 1 * 8)
    table.data.normal_(generator=torch.Generator().manual_seed(0))
    mask = IDS.ne(0).long()
    found = prefixed(input_ids=IDS, attention_mask=mask, decoder_input_ids=TARGET).logits
    assert found.isfinite().all() and not torch.allclose(found, before, atol=1e-2)
    found.sum().backward()
    assert table.grad.abs().sum() > 0


# A table in three places is one module with one name to accelerate, which asks for all its names all the same.
@pytest.mark.filterwarnings("ignore:The following device_map keys do not match:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_model_may_lie_on_disk(kind, tmp_path):
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path / "model")
    on_disk = ("model.decoder.layers.1", "model.decoder.layer_norm")
    placement = dict.fromkeys(
        ["model.encoder", "model.decoder.embed_tokens", "model.decoder.layers.0", "lm_head"], "cpu"
    )
    placement |= dict.fromkeys(on_disk, "disk")
    if model.config.share_encoder_decoder_embeddings:
        placement["model.shared"] = "cpu"
    if model.config.self_attention_position_type == "rotary":
        placement["model.decoder.rotary_embedding"] = "cpu"
    other = AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "model", device_map=placement, offload_folder=tmp_path / "offload"
    )
    assert next(other.model.decoder.layers[1].parameters()).device.type == "meta"
    torch.testing.assert_close(scores(other), scores(model), **EXACT)
    for settings in ({}, {"num_beams": 3}):
        expected = model.generate(IDS, max_new_tokens=5, **settings)
        assert torch.equal(other.generate(IDS, max_new_tokens=5, **settings), expected)


def test_a_layer_is_never_split(tmp_path):
    """What accelerate would plan for two devices with room for half a model each."""
    from accelerate import infer_auto_device_map

    model = build()
    half = sum(parameter.nbytes for parameter in model.parameters()) // 2
    plan = infer_auto_device_map(
        model, max_memory={0: half, 1: 4 * half}, no_split_module_classes=list(model._no_split_modules)
    )
    assert set(plan.values()) == {0, 1}
    for name in plan:
        assert ".layers." not in name or name.rsplit(".layers.", 1)[1].isdigit(), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_trains_compiled(kind):
    model, twin = build(**KINDS[kind]), build(**KINDS[kind])
    torch._dynamo.reset()
    model.compile(backend="aot_eager")
    for one in (model, twin):
        one.train()
    expected = twin(input_ids=IDS, labels=TARGET).loss
    expected.backward()
    found = model(input_ids=IDS, labels=TARGET).loss
    found.backward()
    torch.testing.assert_close(found, expected)
    for (name, one), (_, two) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        if two.grad is None:
            assert one.grad is None, name
        else:
            torch.testing.assert_close(one.grad, two.grad, **EXACT, msg=name)


def test_a_router_that_is_trained_beside_an_adapter_is_the_one_that_counts():
    """PEFT keeps the router as it was, and trains and calls a copy."""
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], modules_to_save=["router"])
    model = get_peft_model(build(**KINDS["balanced"]), settings).train()
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
    inner.update_router_biases()
    assert not torch.equal(trained[0].selection_bias, before)
    assert not any(router.selection_bias.any() for router in kept)
    with model.disable_adapter():
        assert all(
            one.selection_bias is other.selection_bias for one, other in zip(inner.routers(), kept, strict=True)
        )


@pytest.mark.slow
def test_a_model_compiles_with_inductor_in_one_graph():
    model = build()
    expected = scores(model)
    torch._dynamo.reset()
    compiled = torch.compile(model.forward, fullgraph=True)
    with torch.no_grad():
        found = compiled(input_ids=IDS, decoder_input_ids=TARGET, use_cache=False).logits
    # rotary angles are of 32 bits, and inductor's sines and cosines of them are its own: 7e-7 were seen
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_trainer_trains_evaluates_generates_and_saves(tmp_path):
    model, tokenizer = build(**KINDS["balanced"]), words_tokenizer()
    rows = [
        {"input_ids": [3 + row] * length, "labels": [7 + row] * (length - 1) + [2]}
        for row, length in enumerate((3, 5, 2, 6))
    ]
    seen = []

    def metrics(prediction):
        seen.append(prediction.predictions)
        return {"rows": len(prediction.predictions)}

    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        eval_strategy="steps", eval_steps=2, save_steps=2, predict_with_generate=True, generation_max_length=6,
        report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer, compute_metrics=metrics,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )  # fmt: skip
    before = scores(model)
    assert trainer.train().global_step == 2 and not torch.equal(scores(model.eval()), before)
    assert seen[0].shape[0] == 4 and (seen[0][:, 0] == 1).all()
    assert (seen[0][:, 6:] == 0).all()  # the Trainer pads what it was told to keep short
    log = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert log[0]["eval_rows"] == 4 and 0 < log[0]["eval_loss"] < 20

    checkpoint = tmp_path / "checkpoint-2"
    assert {"config.json", "model.safetensors", *flat_files()} <= {path.name for path in checkpoint.iterdir()}
    assert "AutoModelForSeq2SeqLM" in json.loads((checkpoint / "config.json").read_text())["auto_map"]
    other = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
    torch.testing.assert_close(scores(other), scores(model), **EXACT)


def test_the_collator_asks_the_model_for_the_decoder_input():
    batch = DataCollatorForSeq2Seq(words_tokenizer(), model=build())(
        [{"input_ids": [5, 6, 7], "labels": [8, 2]}, {"input_ids": [5], "labels": [8, 9, 10, 2]}]
    )
    assert batch["decoder_input_ids"].tolist() == [[1, 8, 2, 0], [1, 8, 9, 10]]
    assert batch["labels"].tolist() == [[8, 2, -100, -100], [8, 9, 10, 2]]

"""What a model costs: operations and memory as real models have them, published figures, and refusals by name."""

import json
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.estimation import DEVICES, Device, Workload, estimate, find_device
from weftformer.estimation.costs import _build, _Kernels, _loss, _Values, _without_data, count_operations

from ..models import TINY_CONFIG

SMALL = TINY_CONFIG | {"encoder_layers": 1, "decoder_layers": 1}
SPARSE = {"encoder_mlp_layer_types": "dense", "decoder_mlp_layer_types": "sparse", "num_experts": 4}
PLAIN = {
    "norm_type": "layernorm", "norm_first": False, "is_gated_act": False, "mlp_bias": True, "attention_bias": True,
    "attention_out_bias": True, "position_embedding_type": "learned", "self_attention_position_type": "none",
}  # fmt: skip
KINDS = {
    "plain": PLAIN | {"dropout": 0.1, "activation_dropout": 0.1, "num_condition_features": 3},
    "sparse": SPARSE | {"num_key_value_heads": 1, "moe_intermediate_size": 32},
    "pieces": {"vocab_size": 5000, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
}
CPU = "cpu,memory_gb=16,fp32_tflops=0.1,bf16_tflops=0.1"


def cost_of(fields, device="h100", **settings):
    settings = {"tokens_per_batch": 512, "source_length": 16, "target_length": 16} | settings
    return estimate(WeftConfig(**SMALL | fields), Workload(**settings), device)


def real_inputs(config, rows, source, target):
    inputs = {
        "input_ids": torch.randint(3, config.vocab_size, (rows, source)),
        "attention_mask": torch.ones(rows, source, dtype=torch.long),
        "labels": torch.randint(3, config.vocab_size, (rows, target)),
    }
    if config.num_condition_features:
        inputs["condition_values"] = torch.ones(rows, config.num_condition_features)
    return inputs


@pytest.mark.parametrize("kind", KINDS)
def test_operations_are_those_of_a_real_step(kind):
    config = WeftConfig(**SMALL | KINDS[kind])
    experts = {"experts_implementation": "eager"} if config.has_sparse_layers else {}
    model = WeftForConditionalGeneration._from_config(config, attn_implementation="eager", **experts).train()
    with FlopCounterMode(display=False) as counter:
        model(**real_inputs(config, 1, 7, 5), chunked_loss=False).loss.backward()
    assert count_operations(config, (7, 5)) * 12 == pytest.approx(counter.get_total_flops(), rel=1e-3)
    assert count_operations(config, (7, 5), gradient_checkpointing=True) > 1.02 * count_operations(config, (7, 5))


@pytest.mark.filterwarnings("ignore:Mismatch dtype:UserWarning")
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_what_autograd_keeps(kind, bf16):
    """What a step without data keeps for the backward pass is what a real one keeps."""
    config = WeftConfig(**SMALL | {"d_model": 32} | KINDS[kind])

    def saved(model, loss_of):
        kept = {}

        def pack(tensor):
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            assert loss_of().requires_grad
        own = {tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers()]}
        return sum(storage.nbytes() for key, storage in kept.items() if key not in own)

    real = WeftForConditionalGeneration(config).train()

    def real_loss():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return real(**real_inputs(config, 4, 33, 21), chunked_loss=None).loss

    with _without_data(), _Values(config.num_experts), _Kernels():
        fake = _build(config, False, _Kernels)
        traced = saved(fake, lambda: _loss(fake, (4, 33, 21), None, is_bf16=bf16))
    assert traced == pytest.approx(saved(real, real_loss), rel=0.03)


def test_memory_of_each_split():
    one, ddp, half = (
        cost_of(SPARSE, precision="fp32", **settings)
        for settings in ({}, {"num_processes": 4}, {"distributed_config": "fsdp_size=2"})
    )
    weights = 4 * one.parameters
    assert one.memory.weights == pytest.approx(weights, rel=0.01) and one.memory.communication == 0
    assert one.memory.optimizer == ddp.memory.optimizer == 2 * weights
    assert half.memory.optimizer == pytest.approx(weights, rel=0.01)
    assert ddp.memory.communication == weights and half.memory.communication > 0
    assert (one.processes, ddp.processes, half.processes) == (1, 4, 2) and ddp.rows == one.rows / 4
    for cost in (one, ddp, half):
        parts = {name: size for name, size in vars(cost.memory).items() if name != "peak"}
        assert cost.memory.peak == sum(parts.values())
        assert cost.memory.peak >= 4 * cost.memory.optimizer // 2  # weights, gradients and moments


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "measured"),
    [
        ({"num_processes": 2}, 352.4),
        ({"distributed_config": "fsdp_size=2", "precision": "bf16"}, 251.5),
        ({"distributed_config": "fsdp_size=2", "gradient_checkpointing": True}, 167.6),
    ],
)
def test_the_peak_is_what_two_processes_took(settings, measured):
    """Megabytes of resident memory, measured with torch 2.13 on a CPU: see docs/results-scale.md."""
    sizes = TINY_CONFIG | {
        "vocab_size": 6000, "d_model": 384, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "dropout": 0.1,
    }  # fmt: skip
    work = {"tokens_per_batch": 2 * 2 * 8 * 96, "source_length": 96, "target_length": 96, "precision": "fp32"}
    assert cost_of(sizes, CPU, **work | settings).memory.peak / 1e6 == pytest.approx(measured, rel=0.05)


@pytest.mark.integration
def test_what_is_computed_again_is_not_kept_and_kernels_of_gpus_keep_less():
    fields = {"dropout": 0.1, "encoder_layers": 2, "decoder_layers": 2}
    gpu, again, cpu = (
        cost_of(fields, device, tokens_per_batch=8192, precision="fp32", gradient_checkpointing=flag)
        for flag, device in ((False, "h100"), (True, "h100"), (False, CPU))
    )
    assert again.memory.activations < 0.8 * gpu.memory.activations < 0.8 * cpu.memory.activations
    accumulated = cost_of({}, gradient_accumulation_steps=4)
    assert accumulated.rows == 4 and accumulated.tokens_per_step == 512 and accumulated.memory.gradients > 0


def test_time_and_decoding_follow():
    gpu = Device("made up", 16e9, 1e12, 4e12)
    cost = cost_of({}, gpu, tokens=1e6, utilization=0.5, num_processes=2, num_beams=2)
    assert cost.precision == "bf16" and cost.time.step == pytest.approx(cost.operations * 256 / 2e12)
    assert cost.time.tokens_per_second == pytest.approx(512 / cost.time.step)
    assert cost.time.days == pytest.approx(1e6 / cost.time.tokens_per_second / 86_400)
    assert cost.time.device_hours == pytest.approx(2 * 24 * cost.time.days)
    decoding = cost.decoding
    assert decoding.weights == 2 * cost.parameters
    assert decoding.cache_per_row == 32 * 2 * 16 * 2  # tokens, keys and values, width, bytes
    assert decoding.rows == int((0.9 * 16e9 - decoding.weights) // decoding.cache_per_row)
    assert decoding.sequences == decoding.rows // 2
    numbers = json.loads(json.dumps(cost.to_dict()))
    assert numbers["memory"]["peak"] == cost.memory.peak and numbers["device"]["name"] == "made up"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens_per_batch": 0}, "tokens_per_batch=0"),
        ({"num_beams": 1.5}, "num_beams=1.5"),
        ({"utilization": 1.2}, "utilization=1.2"),
        ({"tokens": -3}, "tokens=-3"),
        ({"precision": "fp8"}, "precision='fp8'"),
        ({"distributed_config": "fsdp_sise=2"}, "no key `fsdp_sise`.*fsdp_size"),
        ({"distributed_config": "fsdp_size=2,ep_size=2"}, "ep_size=2: an estimate is made of fsdp_size"),
        ({"distributed_config": "fsdp_size=2", "num_processes": 4}, "num_processes is 4"),
        ({"source_length": 600}, r"source_length=600 .*max_source_positions=20"),
        ({"device": "t4", "precision": "bf16"}, "t4 has no bf16"),
        ({"device": "h101"}, "no device 'h101'.*h100"),
        ({"device": "cpu"}, "needs memory_gb"),
        ({"device": "memory_gb=3"}, "needs fp32_tflops"),
        ({"device": "h100,volts=3"}, "no key 'volts'"),
        ({"device": "h100,memory_gb=-3"}, "memory_gb=-3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        cost_of(PLAIN | {"max_source_positions": 20}, **settings)


@pytest.mark.parametrize(
    "sizes",
    [{"d_model": 10**12}, {"encoder_ffn_dim": 10**18}, {"num_experts": 10**17}, {"source_length": 10**13}],
    ids=str,
)
def test_sizes_that_torch_cannot_count(sizes):
    ((name, size),) = sizes.items()
    settings = {name: size} if name == "source_length" else {}
    with pytest.raises(ValueError, match=f"{name}={size} is not allowed"):
        cost_of(SPARSE | ({} if settings else sizes), **settings)


def test_devices():
    assert find_device("H100") == DEVICES["h100"]
    assert find_device("h100,memory_gb=94") == replace(DEVICES["h100"], memory=94e9)
    cpu = find_device("cpu,memory_gb=16,fp32_tflops=0.2")
    assert cpu.is_cpu and cpu.memory == 16e9 and cpu.bf16_flops is None and cpu.name == "cpu"
    own = find_device("name=mine,memory_gb=16,fp32_tflops=2,bf16_tflops=4")
    assert (own.name, own.peak("bf16"), own.is_cpu) == ("mine", 4e12, False)

"""What a model costs: parameters, operations and memory as real models have them, and refusals by name."""

import inspect
import json
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration.presets import PRESETS
from weftformer.modeling.attention import AttentionBase
from weftformer.modeling.layers import FeedForward
from weftformer.modeling.moe import ExpertsBase, Router
from weftformer.training import DEVICES, Device, Workload, costs, count_parameters, estimate, find_device
from weftformer.training.costs import count_operations, split_of
from weftformer.training.tracing import Batch, Settings, Split, build_part, groups_of, trace_step

from ..conftest import one_stays

TINY = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
SPARSE = {"encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "num_experts": 4}
PLAIN = {
    "norm_type": "layernorm", "norm_first": False, "is_gated_act": False, "mlp_bias": True, "attention_bias": True,
    "attention_out_bias": True, "position_embedding_type": "learned", "self_attention_position_type": "none",
}  # fmt: skip
KINDS = {
    "gated": {},
    "plain": PLAIN,
    "grouped": {"num_key_value_heads": 2, "use_qk_norm": True, "cross_attention_position_type": "rotary"},
    "bucketed": {"self_attention_position_type": "bucketed", "tie_word_embeddings": False},
    "sparse": SPARSE | {"moe_intermediate_size": 24},
    "noisy": SPARSE | {"router_type": "noisy_top_k", "router_bias": True, "mlp_bias": True, "is_gated_act": False},
}
WORK = Workload(source_length=7, target_length=5)


def on_meta(config):
    with torch.device("meta"):
        model = WeftForConditionalGeneration(config)
    model.tie_weights()
    return model


def held_by(model, *classes):
    """Numbers of the weights that modules of these classes have, each once."""
    modules = [module for module in model.modules() if isinstance(module, classes)]
    return sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())


@pytest.mark.parametrize("preset", one_stays(sorted(PRESETS, reverse=True)))
def test_parameters_are_those_of_real_models(preset):
    config = WeftConfig.from_preset(preset)
    model, count = on_meta(config), count_parameters(config)
    assert count.total == sum(count.parts.values()) == model.num_parameters()
    assert count.parts["attention"] == held_by(model, AttentionBase)
    assert count.parts["experts"] == held_by(model, ExpertsBase)
    assert count.parts["routers"] == held_by(model, Router)
    assert count.parts["feed_forward"] == held_by(model, FeedForward)
    assert count.parts["norms"] == held_by(model, nn.RMSNorm, nn.LayerNorm) - _head_norms(model)
    idle = count.parts["experts"] / config.num_experts * (config.num_experts - config.num_experts_per_tok)
    assert count.active == count.total - idle


def _head_norms(model):
    """The norms within attentions, which are counted there."""
    attentions = [module for module in model.modules() if isinstance(module, AttentionBase)]
    return sum(held_by(module, nn.RMSNorm) for module in attentions)


def test_a_model_with_data_has_as_many_parameters():
    for fields in KINDS.values():
        config = WeftConfig(**TINY | fields)
        real = WeftForConditionalGeneration(config)
        assert count_parameters(config).total == real.num_parameters() == sum(p.numel() for p in real.parameters())


def inputs_of(config, rows=2, source=7, target=5):
    draw = torch.Generator().manual_seed(0)
    tokens = {
        "input_ids": torch.randint(3, config.vocab_size, (rows, source), generator=draw),
        "attention_mask": torch.ones(rows, source, dtype=torch.long),
        "labels": torch.randint(3, config.target_vocab_size, (rows, target), generator=draw),
    }
    if config.num_condition_features:
        tokens["condition_values"] = torch.ones(rows, config.num_condition_features)
    return tokens


@pytest.mark.parametrize("kind", one_stays(KINDS))
def test_operations_are_those_that_torch_counts(kind):
    config = WeftConfig(**TINY | KINDS[kind])
    model = WeftForConditionalGeneration._from_config(
        config,
        attn_implementation="eager",
        **({"experts_implementation": "eager"} if config.has_sparse_layers else {}),
    ).train()
    with FlopCounterMode(display=False) as counter:
        loss = model(**inputs_of(config)).loss
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    found = count_operations(config, WORK)
    pairs = 2 * (7 + 5)
    # rotary angles are a product of positions and frequencies too, which is counted nowhere here
    rotary = sum(2 * n * 4 for n in (7, 5)) if config.self_attention_position_type == "rotary" else 0
    assert found.forward * pairs == pytest.approx(forward, rel=0, abs=2 * rotary)
    assert found.training * pairs == pytest.approx(forward + counter.get_total_flops(), rel=1e-3)


def test_operations_of_parts():
    config = WeftConfig(**TINY | {"num_condition_features": 3})
    plain, again = (count_operations(config, replace(WORK, gradient_checkpointing=flag)) for flag in (False, True))
    assert sum(plain.parts.values()) == pytest.approx(plain.forward)
    assert plain.training == pytest.approx(3 * plain.forward) and plain.experts == 0
    assert again.training == pytest.approx(plain.training + plain.forward - plain.parts["head"])
    assert plain.parts["head"] * 12 == 2 * 5 * 32 * 64
    sparse = count_operations(WeftConfig(**TINY | SPARSE), WORK)
    wider = count_operations(WeftConfig(**TINY | SPARSE | {"num_experts": 8}), WORK)
    assert sparse.experts == wider.experts > 0  # a token goes to as many experts
    # one encoder layer for 7 tokens, two decoder layers for 5: two experts of three matrices, three times
    assert sparse.experts * 12 == 3 * (7 + 2 * 5) * 2 * 3 * 2 * 32 * 48


# -- memory ----------------------------------------------------------------------------------------------------------


def saved_by_autograd(model, config, batch, bf16):
    """Bytes that a real forward pass keeps for the backward pass, without weights."""
    weights = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = model(**inputs_of(config, batch.rows, batch.source, batch.target), chunked_loss=None).loss
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


MEMORY = {
    "gated": {"dropout": 0.1},
    "plain": PLAIN | {"dropout": 0.1, "activation_dropout": 0.1},
    "grouped": KINDS["grouped"],
    "bucketed": KINDS["bucketed"],
    "sparse": SPARSE | {"moe_intermediate_size": 32},
    "loop": SPARSE | {"moe_intermediate_size": 36},  # which grouped products do not take
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
    "pieces": {"vocab_size": 5000},
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype:UserWarning")
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", one_stays(MEMORY))
def test_activations_are_what_autograd_keeps(kind, bf16):
    config = WeftConfig(**TINY | {"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96} | MEMORY[kind])
    batch = Batch(4, 33, 21)
    model = WeftForConditionalGeneration(config).train()
    real = saved_by_autograd(model, config, batch, bf16)
    traced = trace_step(config, batch, Split(), Settings("bf16" if bf16 else "fp32", is_cpu=True))
    # the trace has what the output holds as well, such as the encoder's states, and the batch itself
    assert real <= traced.saved
    outputs = 4 * 33 * 64 * 4 + 4 * 21 * (64 + (0 if kind == "pieces" else config.vocab_size)) * 4 * 2
    assert traced.saved == pytest.approx(real, abs=outputs + 0.02 * real)
    assert traced.most["gradients"] == 4 * model.num_parameters()


def test_what_is_computed_again_is_not_kept():
    config, batch = WeftConfig(**TINY | {"encoder_layers": 4, "decoder_layers": 4}), Batch(4, 64, 64)
    whole, again = (
        trace_step(config, batch, Split(), Settings("fp32", gradient_checkpointing=flag)) for flag in (False, True)
    )
    assert again.saved < 0.2 * whole.saved
    assert sum(again.at_peak.values()) < 0.6 * sum(whole.at_peak.values())


def test_kernels_of_gpus():
    """Dropout keeps a byte for each number, and a fused RMSNorm no product of its own."""
    batch, states = Batch(2, 32, 32), 2 * 32 * 32
    kept, without, on_cpu = (
        trace_step(WeftConfig(**TINY | {"dropout": p}), batch, Split(), Settings("fp32", is_cpu=is_cpu)).saved
        for p, is_cpu in ((0.1, False), (0.0, False), (0.0, True))
    )
    assert kept - without == states * (1 + 2 * 2 + 1 + 2 * 3)  # after embeddings and each sub-layer
    assert on_cpu - without >= 4 * states * (
        2 * 2 + 1 + 2 * 3 + 1
    )  # before each sub-layer, and at the end of each stack


def cost_of(fields, device="h100", **settings):
    settings = {"tokens_per_batch": 512, "source_length": 16, "target_length": 16} | settings
    return estimate(WeftConfig(**TINY | fields), Workload(**settings), device)


def shards_of(fields, text):
    """Bytes of the weights that a process holds."""
    config = WeftConfig(**TINY | fields)
    sizes = split_of(config, Workload(distributed_config=text), DEVICES["h100"])
    with FakeTensorMode():
        groups = groups_of(build_part(config, sizes), sizes)
    if sizes.fsdp:
        return sum(group.local for group in groups)
    return sum(4 * weight.numel() for group in groups for weight in group.weights)


def test_weights_and_optimizer_of_each_sharding():
    """Every first dimension here is a multiple of the sizes, so shards are equal and exact."""
    one, ddp, half = (
        cost_of(SPARSE, **settings) for settings in ({}, {"num_processes": 4}, {"distributed_config": "fsdp_size=2"})
    )
    total = 4 * one.parameters.total
    assert (one.memory.gradients, one.memory.optimizer, one.processes) == (total, 2 * total, 1)
    buffers = on_meta(WeftConfig(**TINY | SPARSE)).buffers()  # rotary frequencies
    assert one.memory.weights == total + sum(buffer.numel() * buffer.element_size() for buffer in buffers)
    assert (ddp.memory.gradients, ddp.memory.communication, ddp.processes) == (total, total, 4)
    assert (half.memory.gradients, half.memory.optimizer, half.processes) == (total // 2, total, 2)
    assert shards_of(SPARSE, "fsdp_size=2,dp_replicate_size=2") == total // 2
    for text in ("fsdp_size=4", "fsdp_size=4,ep_size=4", "fsdp_size=4,ep_size=2"):
        assert shards_of(SPARSE, text) == total // 4
    untied = {"tie_word_embeddings": False}
    whole = count_parameters(WeftConfig(**TINY | untied))
    norms = whole.parts["norms"]
    assert shards_of(untied, {"tp_size": 2}) == 4 * ((whole.total - norms) // 2 + norms)
    assert shards_of(untied, {"tp_size": 2, "fsdp_size": 2}) == 2 * ((whole.total - norms) // 2 + norms)


def test_uneven_shards_are_filled_up():
    fields = {"vocab_size": 61, "d_model": 30, "head_dim": 6, "encoder_ffn_dim": 51, "decoder_ffn_dim": 51}
    model = on_meta(WeftConfig(**TINY | fields))
    expected = sum(4 * math.ceil(len(p) / 4) * (p.numel() // len(p)) for p in model.parameters())
    assert shards_of(fields, "fsdp_size=4") == expected > model.num_parameters()


@pytest.mark.integration
def test_memory_grows_with_the_batch_and_shrinks_with_pieces():
    peaks = [cost_of({}, tokens_per_batch=tokens).memory.peak for tokens in (512, 1024, 2048)]
    assert peaks == sorted(peaks) and peaks[2] - peaks[1] == pytest.approx(2 * (peaks[1] - peaks[0]), rel=0.05)
    large = {"vocab_size": 20_000}
    pieces, whole = (
        cost_of(large, tokens_per_batch=8_192, loss_in_pieces=flag).memory.activations for flag in (True, False)
    )
    assert pieces < 0.5 * whole
    accumulated = cost_of({}, gradient_accumulation_steps=4)
    once = cost_of({}, tokens_per_batch=128)
    assert accumulated.rows == once.rows == 4 and accumulated.tokens_per_step == 512
    assert accumulated.memory.at_peak["gradients"] >= accumulated.memory.gradients > once.memory.at_peak["gradients"]


@pytest.mark.integration
def test_the_peak_is_that_of_its_parts():
    for settings in ({}, {"num_processes": 2}, {"distributed_config": "fsdp_size=2"}):
        memory = cost_of({}, **settings).memory
        assert memory.peak == sum(memory.at_peak.values())
        parts = ("weights", "gradients", "optimizer", "activations", "communication")
        assert all(memory.at_peak[part] <= getattr(memory, part) for part in parts if part != "gradients")
        assert memory.peak >= memory.weights + memory.gradients + memory.optimizer


# -- time and decoding -----------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_time_follows_from_the_bounds():
    gpu = Device("made up", 16e9, 100e9, 1e12, 4e12, watts=100, link=1e9)
    cost = cost_of({}, gpu, tokens=1e6, utilization=0.5, pue=1.2, num_processes=2)
    tokens = cost.tokens_per_step
    assert cost.precision == "bf16" and tokens == 512
    assert cost.time.arithmetic == pytest.approx(cost.operations.training * tokens / 2 / 2e12)
    assert cost.time.sent == 4 * cost.parameters.total and cost.time.communication == cost.time.sent / 1e9
    assert cost.time.bound == "communication" and cost.time.step == cost.time.communication
    assert cost.time.tokens_per_second == pytest.approx(tokens / cost.time.step)
    assert cost.time.days == pytest.approx(1e6 / cost.time.tokens_per_second / 86_400)
    assert cost.time.device_hours == pytest.approx(2 * 24 * cost.time.days)
    assert cost.time.kilowatt_hours == pytest.approx(cost.time.device_hours * 0.1 * 1.2)
    slow = cost_of({}, Device("slow", 16e9, 100e9, 1e8, None, link=1e9), num_processes=2)
    assert slow.precision == "fp32" and slow.time.bound == "arithmetic" and slow.time.kilowatt_hours is None
    unknown = cost_of({}, Device("no link", 16e9, 100e9, 1e12), num_processes=2)
    assert unknown.time.communication is None and unknown.time.sent == cost.time.sent


@pytest.mark.integration
def test_groups_beyond_a_node_send_over_the_network():
    near, far = (cost_of({}, num_processes=count, tokens_per_batch=512 * count).time for count in (8, 16))
    assert near.communication == near.sent / 450e9 and far.communication == far.sent / 50e9
    split = cost_of(SPARSE, distributed_config="fsdp_size=2,ep_size=2").time
    whole = cost_of(SPARSE, distributed_config="fsdp_size=2").time
    assert split.sent != whole.sent


def test_decoding_reads_active_weights_and_the_cache():
    gpu = Device("made up", 10e6, 1e9, 1e12)
    cost = cost_of({"num_key_value_heads": 2}, gpu, num_beams=2)
    decoding = cost.decoding
    assert decoding.weights == 4 * cost.parameters.total
    position = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width, bytes
    assert decoding.cache_per_row == 32 * position
    decoder = 2 * (4 * 32 * 32 - 2 * 32 * 16) + 2 * (2 * 32 * 32) + 2 * 3 * 32 * 48 + 2 * 3 * 32  # without cross keys
    assert decoding.bytes_per_token == 4 * (decoder + 32 * 64) + 24 * position
    assert decoding.rows == int((0.9 * 10e6 - decoding.weights) // decoding.cache_per_row)
    assert decoding.sequences == decoding.rows // 2 and decoding.bound == "bandwidth"
    assert decoding.most_tokens_per_second > decoding.tokens_per_second > 0
    small = cost_of({}, Device("small", 1e5, 1e9, 1e12)).decoding
    assert small.rows == small.sequences == 0 and small.most_tokens_per_second == 0


@pytest.mark.integration
def test_cache_is_what_generate_fills():
    config = WeftConfig(**TINY | {"num_key_value_heads": 2})
    model = WeftForConditionalGeneration(config).eval()
    batch = inputs_of(config, rows=3, source=16, target=16)
    cache = model(batch["input_ids"], decoder_input_ids=batch["labels"], use_cache=True).past_key_values
    layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    held = sum(t.numel() * 4 for layer in layers for t in (layer.keys, layer.values))
    assert held == 3 * cost_of({"num_key_value_heads": 2}, precision="fp32").decoding.cache_per_row


@pytest.mark.integration
def test_experts_are_read_as_often_as_they_are_met():
    few, many = (cost_of(SPARSE | {"num_experts": count}, precision="bf16").decoding for count in (4, 8))
    assert few.bytes_per_token == pytest.approx(many.bytes_per_token, rel=0.02)  # but for the routers
    assert few.weights < many.weights


# -- published figures -----------------------------------------------------------------------------------------------

# Raffel et al. 2020 (arXiv:1910.10683): 1 million steps of 2^11 sequences of 512 tokens, with targets of 114.
T5_11B = {
    "vocab_size": 32128, "d_model": 1024, "encoder_layers": 24, "decoder_layers": 24, "encoder_ffn_dim": 65536,
    "decoder_ffn_dim": 65536, "encoder_attention_heads": 128, "decoder_attention_heads": 128, "head_dim": 128,
    "is_gated_act": False, "activation_function": "relu", "self_attention_position_type": "bucketed",
}  # fmt: skip
# NVIDIA's NeMo Framework, `conf/training/t5/3b.yaml`: biases, LayerNorm, GeGLU, learned positions, 512 + 128 tokens.
NEMO = PLAIN | {
    "norm_first": True, "is_gated_act": True, "activation_function": "gelu", "head_dim": 64, "vocab_size": 29184,
    "max_source_positions": 512, "max_target_positions": 512,
}  # fmt: skip


@pytest.mark.integration
def test_t5_11b_takes_the_published_operations():
    config = WeftConfig(**T5_11B)
    assert count_parameters(config).total == pytest.approx(11e9, rel=0.04)
    work = Workload(source_length=512, target_length=114)
    found = count_operations(config, work).training * (512 + 114) * 2**11 * 1e6
    # Patterson et al. 2021 (arXiv:2104.10350), table 4: what 512 TPU v3 did in 20 days
    assert found == pytest.approx(4.05e22, rel=0.2)


@pytest.mark.parametrize(
    ("size", "gpus", "published", "utilization"),
    [((12, 768, 2048, 12), 32, 3_273_728, 0.28), ((24, 2048, 5120, 32), 8, 110_769, 0.47)],
    ids=["220m", "3b"],
)
def test_nemo_reaches_its_published_throughput_at_a_plausible_utilization(size, gpus, published, utilization):
    layers, width, ffn, heads = size
    config = WeftConfig(
        **NEMO, d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn,
        encoder_attention_heads=heads, decoder_attention_heads=heads,
    )  # fmt: skip
    pair = count_operations(config, Workload(source_length=512, target_length=128)).training * 640
    reached = published / 512 * pair / gpus / DEVICES["a100-80gb"].peak("bf16")
    assert reached == pytest.approx(utilization, abs=0.01)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens_per_batch": 0}, "tokens_per_batch=0"),
        ({"source_length": -1}, "source_length=-1"),
        ({"num_beams": 1.5}, "num_beams=1.5"),
        ({"utilization": 1.2}, "utilization=1.2"),
        ({"utilization": math.nan}, "utilization=nan"),
        ({"pue": 0.5}, "pue=0.5"),
        ({"tokens": -3}, "tokens=-3"),
        ({"precision": "fp8"}, "precision='fp8'"),
        ({"distributed_config": "fsdp_sise=2"}, "no key `fsdp_sise`.*fsdp_size"),
        ({"distributed_config": "fsdp_size=0"}, "fsdp_size"),
        ({"distributed_config": "pp_size=2"}, "pp_size=2"),
        ({"distributed_config": "fsdp_size=2,ep_size=2"}, "ep_size=2 needs experts"),
        ({"distributed_config": "tp_size=3"}, "tp_size=3 does not divide"),
        ({"distributed_config": "tp_size=2,fsdp_size=2"}, "tie_word_embeddings=True"),
        ({"distributed_config": "fsdp_size=2,fsdp_cpu_offload=true"}, "fsdp_cpu_offload"),
        ({"distributed_config": "fsdp_size=2", "num_processes": 4}, "num_processes is 4"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=message):
            cost_of({}, **settings)


def test_lengths_beyond_a_table_are_refused():
    with pytest.raises(ValueError, match=r"source_length=600 .*max_source_positions=512"):
        cost_of(PLAIN | {"max_source_positions": 512}, source_length=600)
    assert estimate(WeftConfig(**TINY | PLAIN | {"max_source_positions": 20}), Workload(512)).workload.lengths == (
        20,
        512,
    )


def test_devices():
    assert find_device("H100") == DEVICES["h100"]
    assert find_device("h100,watts=500").watts == 500 and find_device("h100,watts=500").memory == 80e9
    cpu = find_device("cpu,memory_gb=16,bandwidth_gbs=40,fp32_tflops=0.2")
    assert cpu.is_cpu and cpu.memory == 16e9 and cpu.bf16_flops is None and cpu.name == "cpu"
    own = find_device("name=mine,memory_gb=16,bandwidth_gbs=40,fp32_tflops=2,bf16_tflops=4,link_gbs=1,node=2")
    assert (own.name, own.peak("bf16"), own.link_between(2), own.link_between(3)) == ("mine", 4e12, 1e9, 50e9)
    for device in DEVICES.values():
        assert device.bf16_flops is None or 2 * device.fp32_flops <= device.bf16_flops * 1.01
        assert device.bandwidth < device.fp32_flops and device.memory >= 16e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h101", "no device 'h101'.*h100"), ("cpu", "needs memory_gb"), ("memory_gb=3", "needs bandwidth_gbs, fp32_tflops"),
        ("h100,volts=3", "no key 'volts'"), ("h100,watts=many", "watts=many"), ("h100,watts=-3", "watts=-3"), ("", "needs"),
    ],
)  # fmt: skip
def test_devices_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        find_device(text)


def test_precision_that_a_device_lacks():
    with pytest.raises(ValueError, match="t4 has no bf16"):
        cost_of({}, "t4", precision="bf16")
    with pytest.raises(ValueError, match="GPUs only"):
        cost_of({}, "cpu,memory_gb=16,bandwidth_gbs=40,fp32_tflops=0.2", distributed_config="tp_size=2")


def test_numbers_are_json():
    cost = cost_of(SPARSE, distributed_config="fsdp_size=2,ep_size=2", tokens=1e9)
    numbers = json.loads(json.dumps(cost.to_dict()))
    assert numbers["memory"]["peak"] == cost.memory.peak and numbers["device"]["name"] == "h100"
    assert numbers["workload"]["distributed_config"] == "fsdp_size=2,ep_size=2"


def test_defaults_are_named_where_they_are_explained():
    text = inspect.getdoc(costs.Workload)
    assert f"defaults to {costs.UTILIZATION}" in text and f"defaults to {costs.PUE}" in text

"""What `weftformer estimate` says of memory is what two processes take."""

import sys

import pytest

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.training import Workload, estimate

ROWS, LENGTH = 8, 96
DENSE = {
    "vocab_size": 6000, "d_model": 384, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 6,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "dropout": 0.1,
}  # fmt: skip
SPARSE = DENSE | {
    "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": ["dense", "sparse"],
    "num_key_value_heads": 2, "use_qk_norm": True, "moe_intermediate_size": 512,
}  # fmt: skip
CPU = "cpu,memory_gb=16,bandwidth_gbs=20,fp32_tflops=0.1,bf16_tflops=0.1"


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("fields", "sizes", "settings"),
    [
        pytest.param(DENSE, None, {}, id="ddp"),
        pytest.param(DENSE, {"fsdp_size": 2}, {}, id="fsdp"),
        pytest.param(
            DENSE, {"fsdp_size": 2}, {"checkpointing": True}, id="fsdp-checkpointing", marks=pytest.mark.slow
        ),
        pytest.param(DENSE, {"fsdp_size": 2}, {"bf16": True}, id="fsdp-bf16", marks=pytest.mark.slow),
        pytest.param(SPARSE, {"fsdp_size": 2, "ep_size": 2}, {}, id="experts", marks=pytest.mark.slow),
    ],
)
def test_memory_is_within_a_tenth(pair, tmp_path, fields, sizes, settings):
    config = WeftConfig(**fields)
    WeftForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    workload = Workload(
        tokens_per_batch=2 * 2 * ROWS * LENGTH, source_length=LENGTH, target_length=LENGTH,
        num_processes=2, distributed_config=sizes, precision="bf16" if settings.get("bf16") else "fp32",
        gradient_checkpointing=settings.get("checkpointing", False),
    )  # fmt: skip
    memory = estimate(config, workload, CPU).memory
    found = pair.run(
        "memory_jobs.measure", folder=tmp_path / "model", rows=ROWS, length=LENGTH, sizes=sizes, **settings
    )
    for process in found:
        assert process["weights"] == pytest.approx(memory.weights, rel=1e-4)
        assert process["gradients"] == pytest.approx(memory.gradients, rel=1e-4)
        assert process["optimizer"] == pytest.approx(memory.optimizer, rel=1e-4)
        print(f"{process['peak'] / 1e6:.1f} MB, estimated {memory.peak / 1e6:.1f} MB")  # for the page, with -s
        assert memory.peak == pytest.approx(process["peak"], rel=0.1)

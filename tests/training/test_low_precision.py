"""Training in mixed precision on the CPU: products are in 16 bits, weights and losses as in 32."""

import pytest
import torch

from . import runs


def test_bf16_trains_as_float32_and_generates_in_16_bits(tmp_path):
    """accelerate puts only `forward` into autocast, and evaluation also calls the encoder outside it."""
    settings = {"max_steps": 3, "per_device_train_batch_size": 4, "predict_with_generate": True, **runs.PLAIN_STEPS}
    found, seen = [], []
    for bf16 in (False, True):
        run = runs.trainer(tmp_path / str(bf16), runs.build(vocab_size=4100), runs.rows(6), bf16=bf16, **settings)
        run.train()
        found.append(runs.losses(run))
    assert found[1] == pytest.approx(found[0], rel=0.03) and found[1] != found[0]
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float32}
    projection = run.model.get_encoder().layers[0].self_attn.q_proj
    projection.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    run.predict(run.eval_dataset, max_length=8)
    assert set(seen) == {torch.bfloat16}

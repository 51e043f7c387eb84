"""Training in mixed precision on the CPU: weights stay float32, and the model learns as in float32."""

import pytest
import torch

from . import runs

KINDS = {
    "large vocabulary": {"vocab_size": 4100},  # the loss in pieces
    "sparse": {
        "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4,
        "router_bias_update_rate": 0.01,
    },
}  # fmt: skip


def trained(folder, kind: str, checkpoint: str | None = None, **settings):
    generator = torch.Generator().manual_seed(0)
    # copies of the source, which is learned in a few steps
    texts = [torch.randint(23, 50, (5,), generator=generator).tolist() for _ in range(16)]
    model = runs.build(d_model=32, encoder_layers=1, decoder_layers=1, dropout=0.1, **KINDS[kind])
    run = runs.trainer(
        folder, model, [{"input_ids": text, "labels": text} for text in texts], max_steps=12, learning_rate=5e-3,
        warmup_steps=0, logging_steps=1, save_steps=6, save_strategy="steps", **settings,
    )  # fmt: skip
    run.train(resume_from_checkpoint=checkpoint)
    return run


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_bf16_learns_what_float32_learns(kind, tmp_path):
    expected = runs.losses(trained(tmp_path / "float32", kind))
    run = trained(tmp_path / "bf16", kind, bf16=True)
    found = runs.losses(run)
    assert expected[-1] < 0.8 * expected[0]
    assert found == pytest.approx(expected, rel=0.03) and found != expected
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float32}
    checkpoint = tmp_path / "bf16" / "checkpoint-6"
    assert runs.losses(trained(tmp_path / "bf16", kind, checkpoint=str(checkpoint), bf16=True)) == found

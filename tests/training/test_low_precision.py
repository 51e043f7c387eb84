"""Training in mixed precision on the CPU: weights stay float32, and it learns what float32 learns."""

import pytest
import torch
from transformers import DataCollatorForSeq2Seq

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import WeftTrainer, WeftTrainingArguments

SIZES = {"vocab_size": 60, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64,
         "decoder_ffn_dim": 64, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 52,
         "bos_token_id": 0, "eos_token_id": 22, "decoder_start_token_id": 0, "dropout": 0.1}  # fmt: skip
KINDS = {
    "dense": {},
    # the loss in pieces
    "large vocabulary": {"vocab_size": 4100},
    "sparse": {
        "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4,
        "router_bias_update_rate": 0.01,
    },
}  # fmt: skip


def losses(folder, kind: str, checkpoint: str | None = None, **settings) -> tuple[WeftTrainer, list[float]]:
    generator = torch.Generator().manual_seed(0)
    # copies of the source, which is learned in a few steps
    texts = [torch.randint(23, 50, (5,), generator=generator).tolist() for _ in range(16)]
    torch.manual_seed(0)
    trainer = WeftTrainer(
        WeftForConditionalGeneration(WeftConfig(**(SIZES | KINDS[kind]))),
        WeftTrainingArguments(
            output_dir=str(folder), max_steps=12, learning_rate=5e-3, warmup_steps=0, logging_steps=1, save_steps=6,
            save_strategy="steps", eval_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, **settings,
        ),
        DataCollatorForSeq2Seq(build_route_tokenizer()),
        [{"input_ids": text, "labels": text} for text in texts],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer, [log["loss"] for log in trainer.state.log_history if "loss" in log]


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_bf16_learns_what_float32_learns(kind, tmp_path):
    _, expected = losses(tmp_path / "float32", kind)
    trainer, found = losses(tmp_path / "bf16", kind, bf16=True)
    assert expected[-1] < 0.8 * expected[0]
    assert found == pytest.approx(expected, rel=0.03) and found != expected
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    checkpoint = tmp_path / "bf16" / "checkpoint-6"
    _, resumed = losses(tmp_path / "bf16", kind, checkpoint=str(checkpoint), bf16=True)
    assert resumed == found

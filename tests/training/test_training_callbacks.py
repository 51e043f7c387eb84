"""Selection biases are updated once per optimizer step with any Trainer."""

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from weftformer.training import WeftTrainer

from ..models import tiny_model

RATE = 0.01
SPARSE = {
    "encoder_layers": 1, "decoder_layers": 1, "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_bias_update_rate": RATE,
}  # fmt: skip


ROWS = [{name: torch.randint(3, 20, (5,), generator=torch.Generator().manual_seed(index)) for name in
         ("input_ids", "labels")} for index in range(12)]  # fmt: skip
STEPS = 4


@pytest.mark.parametrize(
    ("trainer_class", "settings"),
    [(Seq2SeqTrainer, {}), (WeftTrainer, {}), (Seq2SeqTrainer, {"gradient_checkpointing": True})],
)
def test_they_move_once_a_step(tmp_path, trainer_class, settings):
    model = tiny_model(**SPARSE, encoder_mlp_layer_types="sparse", router_aux_loss_coef=0.0)
    loads = []

    class Look(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            loads.append(torch.stack([router.expert_load for router in model.routers()]))

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        learning_rate=0.01, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer_class(model, arguments, train_dataset=ROWS, callbacks=[Look()]).train()
    # each load is that of two batches of two rows of five tokens, each with its experts
    assert [load.sum(dim=1).tolist() for load in loads] == [[2 * 2 * 5 * 2.0] * 2] * STEPS
    expected = sum(RATE * torch.sign(load.mean(dim=1, keepdim=True) - load) for load in loads)
    torch.testing.assert_close(torch.stack([router.selection_bias for router in model.routers()]), expected)
    assert expected.abs().max() > 2 * RATE and not any(router.expert_load.any() for router in model.routers())

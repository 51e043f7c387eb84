"""Selection biases are updated once per optimizer step with any Trainer, and code is put into the pushed folder."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from weftformer.training import WeftTrainer

from ..models import tiny_model

RATE = 0.01
SPARSE = {
    "encoder_layers": 1, "decoder_layers": 1, "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_bias_update_rate": RATE,
}  # fmt: skip


def _biases(model):
    return torch.cat([router.selection_bias for router in model.routers()])


ROWS = [{name: torch.randint(3, 20, (5,), generator=torch.Generator().manual_seed(index)) for name in
         ("input_ids", "labels")} for index in range(12)]  # fmt: skip
STEPS = 4


def train(trainer_class, model, folder, resume=False, **settings):
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        learning_rate=0.01, save_steps=2, report_to="none", use_cpu=True, disable_tqdm=True,
        **settings,
    )  # fmt: skip
    trainer = trainer_class(copy.deepcopy(model), arguments, train_dataset=ROWS)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2") if resume else None)
    return trainer.model


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model that transformers' own Trainer trained without a callback for biases, and its folder."""
    model = tiny_model(**SPARSE, encoder_mlp_layer_types="sparse", router_aux_loss_coef=0.0)
    folder = tmp_path_factory.mktemp("plain")
    return model, train(Seq2SeqTrainer, model, folder), folder


def test_they_move_under_transformers_own_trainer(plain, tmp_path):
    model, trained, _ = plain
    loads = []

    class Look(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            loads.append(torch.stack([router.expert_load for router in model.routers()]))

    class Looked(Seq2SeqTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs, callbacks=[Look()])

    again = train(Looked, model, tmp_path)
    # each load is that of two batches of two rows of five tokens, each with its experts
    assert [load.sum(dim=1).tolist() for load in loads] == [[2 * 2 * 5 * 2.0] * 2] * STEPS
    expected = sum(RATE * torch.sign(load.mean(dim=1, keepdim=True) - load) for load in loads)
    torch.testing.assert_close(torch.stack([router.selection_bias for router in again.routers()]), expected)
    assert torch.equal(_biases(again), _biases(trained)) and expected.abs().max() > 2 * RATE
    assert not any(router.expert_load.any() for router in trained.routers())


@pytest.mark.parametrize("how", [{"trainer_class": WeftTrainer}, {"gradient_checkpointing": True}], ids=str)
def test_they_move_as_far(plain, tmp_path, how):
    model, trained, _ = plain
    again = train(**{"trainer_class": Seq2SeqTrainer, "model": model, "folder": tmp_path} | how)
    assert torch.equal(_biases(again), _biases(trained))


def test_a_checkpoint_of_transformers_own_trainer_holds_them(plain):
    """Nothing waits for the next step: a run that is resumed ends with the same bits."""
    model, trained, folder = plain
    saved = load_file(folder / "checkpoint-2" / "model.safetensors")
    assert any(saved[name].any() for name in saved if name.endswith("selection_bias"))
    resumed = train(Seq2SeqTrainer, model, folder, resume=True)
    torch.testing.assert_close(resumed.state_dict(), trained.state_dict(), rtol=0, atol=0)

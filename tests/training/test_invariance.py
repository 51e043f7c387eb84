"""Losses and gradients do not depend on how rows are batched or padded. See `tests/distributed` for processes."""

import pytest
import torch

from weftformer.training import WeftTrainer

from . import runs

SPARSE = {
    "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_aux_loss_coef": 0.0, "router_z_loss_coef": 0.1, "router_bias_update_rate": 0.05,
}  # fmt: skip
ROWS, STEPS = 12, 2
# the models are in 64 bits, but the Trainer adds up losses in 32 bits
LOGGED = {"rel": 5e-6}


def trainer(folder, fields=SPARSE, data=None, **settings) -> WeftTrainer:
    plain = {"max_steps": STEPS, "label_smoothing_factor": 0.1, "per_device_train_batch_size": ROWS}
    model = runs.build(torch.float64, init_std=0.3, **fields)
    return runs.trainer(folder, model, data or runs.rows(ROWS), **(runs.PLAIN_STEPS | plain | settings))


def trained(folder, fields=SPARSE, **settings) -> WeftTrainer:
    run = trainer(folder, fields, **settings)
    run.train()
    return run


@pytest.fixture(scope="module")
def one_batch(tmp_path_factory):
    """A run whose steps take all rows at once."""
    folder = tmp_path_factory.mktemp("one")
    before = trainer(folder).model.state_dict()
    run = trained(folder)
    moved = [(value - before[name]).abs().max() for name, value in run.model.state_dict().items()]
    assert sum(change > 1e-3 for change in moved) > len(moved) // 2  # far above what is let pass below
    return run


@pytest.mark.parametrize(
    "split",
    [
        {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 3, "seed": 7},
        {"pad_to": 16, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2},
    ],
    ids=["unequal, other neighbours", "wider, in two"],
)
def test_a_step_is_that_of_one_batch(one_batch, tmp_path, split):
    run = trained(tmp_path, **split)
    assert runs.losses(run) == pytest.approx(runs.losses(one_batch), **LOGGED) and len(runs.losses(run)) == STEPS
    runs.assert_close(run.model.state_dict(), one_batch.model.state_dict())


@pytest.mark.parametrize("generate", [False, True])
def test_eval_loss_is_the_mean_over_labels(tmp_path, generate):
    data = runs.rows(11)  # a last batch that is not full
    settings = {"data": data, "predict_with_generate": generate, "generation_max_length": 3}
    found = [
        trainer(tmp_path, per_device_eval_batch_size=size, pad_to=pad, **settings).evaluate()["eval_loss"]
        for size, pad in ((4, None), (1, 8))
    ]
    run = trainer(tmp_path, **settings)
    model = run.model.eval()
    with torch.no_grad():
        losses = [(model(**run.data_collator([row])).loss.item(), len(row["labels"])) for row in data]
    expected = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    assert found == pytest.approx([expected] * 2, **LOGGED)
    by_rows = sum(loss for loss, _ in losses) / len(losses)
    assert abs(by_rows - expected) > 1e-3
    # `metric_for_best_model` and the log get the same
    assert run.evaluate()["eval_loss"] == run.state.log_history[-1]["eval_loss"] == pytest.approx(expected, **LOGGED)

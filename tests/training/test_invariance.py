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


ADAPTERS = {
    "prompt": ("PromptTuningConfig", {}), "p-tuning": ("PromptEncoderConfig", {"encoder_hidden_size": 8}),
    "prefix": ("PrefixTuningConfig", {}), "multitask": ("MultitaskPromptTuningConfig", {"num_tasks": 1, "num_ranks": 1}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("has_target_mask", [False, True])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_virtual_tokens_count_once(tmp_path, adapter, has_target_mask):
    peft = pytest.importorskip("peft")
    kind, settings = ADAPTERS[adapter]
    steps = []
    for split in ({}, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}):
        torch.manual_seed(0)
        model = runs.build(torch.float64, init_std=0.3, **SPARSE | {"router_bias_update_rate": None})
        model = peft.get_peft_model(
            model, getattr(peft, kind)(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3, **settings)
        )
        run = runs.trainer(
            tmp_path, model, runs.rows(ROWS), pad_to=16, **runs.PLAIN_STEPS, max_steps=1,
            **{"per_device_train_batch_size": ROWS} | split,
        )  # fmt: skip
        collate = run.data_collator

        def collated(rows, collate=collate):
            batch = dict(collate(rows))
            if has_target_mask:
                batch["decoder_attention_mask"] = batch["labels"] != -100
            if adapter == "multitask":
                batch["task_ids"] = torch.zeros(len(rows), dtype=torch.long)
            return batch

        run.data_collator = collated
        run.train()
        steps.append([run.state.log_history[0][name] for name in ("loss", "grad_norm", "z_loss")])
    assert steps[1] == pytest.approx(steps[0], rel=1e-5)


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


@pytest.mark.parametrize("returns_outputs", [True, False])
def test_experts_skip_pads_whose_states_nobody_sees(tmp_path, returns_outputs):
    run = trainer(tmp_path, pad_to=8)
    model = run.model
    batch = run.data_collator(runs.rows(4))
    masks = []
    block = model.model.decoder.layers[0].mlp
    block.register_forward_pre_hook(lambda module, inputs: masks.append(inputs[1]))
    run.compute_loss(model.train(), batch, return_outputs=returns_outputs)
    if returns_outputs:
        assert masks == [None]
    else:
        assert torch.equal(masks[0], batch["labels"] != -100)

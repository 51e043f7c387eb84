"""The statistics of experts are right, for routers with known choices."""

import math

import pytest
import torch
from transformers import TrainerCallback, TrainerState
from transformers.integrations import integration_utils

from weftformer.training import ExpertStatisticsCallback

from . import runs

PAD = runs.PAD
SPARSE = {
    "num_experts": 4, "decoder_layers": 1, "encoder_mlp_layer_types": ["dense", "sparse"],
    "decoder_mlp_layer_types": "sparse",
}  # fmt: skip
# Five real tokens and a pad: expert 3 is chosen by the pad alone.
SOURCE = torch.tensor([[5, 6, 7], [8, 9, PAD]])
LABELS = torch.tensor([[5, 22], [6, 22]])
IDS = torch.tensor([[0, 1], [0, 1], [0, 2], [0, 1], [0, 2], [3, 3]])
LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]] * 5 + [[9.0, 9.0, 9.0, 50.0]])
WEIGHTS = torch.tensor([[0.7, 0.3]] * 4 + [[0.0, 1.0], [0.0, 0.0]])


@pytest.fixture
def model():
    model = runs.build(**SPARSE, expert_capacity_factor=4.0).train()
    encoder_router = model.routers()[0]
    encoder_router._forward = encoder_router.forward
    encoder_router.forward = lambda tokens_ND: (LOGITS.clone(), WEIGHTS.clone(), IDS.clone())
    return model


@pytest.fixture
def watched(model):
    callback = ExpertStatisticsCallback()
    callback.watch(model)
    return callback


def numbers_of(callback, step=1):
    return callback.take(TrainerState(global_step=step))


def test_the_numbers_by_hand(model, watched):
    for _ in range(3):
        model(input_ids=SOURCE, labels=LABELS)
    layers = numbers_of(watched)
    assert list(layers) == ["encoder_1", "decoder_0"]
    found = layers["encoder_1"]
    probs = torch.tensor([2.0, 1.0, 0.0, -1.0]).softmax(0).tolist()
    log_z = math.log(sum(math.exp(value) for value in (2, 1, 0, -1)))
    expected = {
        "max_load": 5 / 2.5, "min_load": 0.0, "dead_experts": 1, "log_z": log_z, "z_loss": log_z**2, "tokens": 15,
        "entropy": -sum(p * math.log(p) for p in probs), "drop_rate": 1 / 10,
        "balance_loss": 4 * (0.5 * probs[0] + 0.3 * probs[1] + 0.2 * probs[2]),
    }  # fmt: skip
    assert found.pop("load") == pytest.approx([0.5, 0.3, 0.2, 0.0])
    assert found == pytest.approx(expected, rel=1e-5)
    assert layers["decoder_0"]["tokens"] == 12 and sum(layers["decoder_0"]["load"]) == pytest.approx(1)


def test_the_count_starts_again_after_each_log(model, watched):
    model(input_ids=SOURCE, labels=LABELS)
    first = numbers_of(watched)
    assert numbers_of(watched) is first  # the same step
    assert numbers_of(watched, step=2) == {}
    model(input_ids=SOURCE, labels=LABELS)
    assert numbers_of(watched, step=3)["encoder_1"]["tokens"] == 5


def test_only_training_passes_count(model, watched):
    with torch.no_grad():
        model(input_ids=SOURCE, labels=LABELS)
    model.eval()(input_ids=SOURCE, labels=LABELS)
    model.train()(input_ids=SOURCE, decoder_input_ids=LABELS)
    assert numbers_of(watched) == {}


def test_a_pass_in_backward_is_not_counted_again(model, watched):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for router in model.routers():
        if hasattr(router, "_forward"):
            router.forward = router._forward  # the stub gives no gradient
    for _ in range(2):
        model(input_ids=SOURCE, labels=LABELS).loss.backward()
    layers = numbers_of(watched)
    assert [layers[name]["tokens"] for name in ("encoder_1", "decoder_0")] == [10, 8]


# --- in a training


def trainer(folder, fields=None, **settings):
    steps = {
        "max_steps": 4, "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
    }  # fmt: skip
    data = [{"input_ids": SOURCE[0].tolist(), "labels": LABELS[0].tolist()}] * 4
    return runs.trainer(folder, runs.build(**SPARSE | (fields or {})), data, **(steps | settings))


class Listener(TrainerCallback):
    def __init__(self):
        type(self).logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


class Reporter(Listener):
    pass


class Screen(Listener):
    pass


def test_the_numbers_reach_report_to_and_the_history(tmp_path, monkeypatch):
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "reporter", Reporter)
    run = trainer(tmp_path, report_to=["reporter"])
    run.add_callback(Screen())
    run.train()
    history = [entry for entry in run.state.log_history if "loss" in entry]
    assert [entry["step"] for entry in history] == [2, 4]
    # two steps of two batches of two rows: three source tokens and two labels each
    assert [[entry[f"experts/{layer}/tokens"] for entry in history] for layer in ("encoder_1", "decoder_0")] == [
        [24, 24], [16, 16],
    ]  # fmt: skip
    assert len(history[0]["experts/encoder_1/load"]) == 4
    for entry in history:
        reported = {key: value for step, logs in Reporter.logs if step == entry["step"] for key, value in logs.items()}
        # a service takes numbers only
        expected = {key: value for key, value in entry.items() if key != "step" and not key.endswith("/load")}
        assert expected.items() <= reported.items()
        assert not any(key.endswith("/load") for key in reported) and "experts_max_load" in reported
    # short enough to read: five numbers beside the loss, and none beside an evaluation's
    extra = [{key for key in logs if "expert" in key or "z_loss" in key} for _, logs in Screen.logs]
    assert {len(keys) for keys in extra} == {0, 4} and not any(
        "experts/" in key for _, logs in Screen.logs for key in logs
    )
    assert run.expert_statistics is not None and run.expert_statistics._hooks == []


@pytest.mark.parametrize("why", ["dense", "off"])
def test_nothing_is_watched_where_there_is_nothing_or_it_is_not_wanted(tmp_path, why):
    dense = {"encoder_mlp_layer_types": "dense", "decoder_mlp_layer_types": "dense"}
    run = trainer(tmp_path, fields=dense if why == "dense" else {}, log_expert_statistics=why == "dense")
    assert run.expert_statistics is None
    run.train()
    assert not any("expert" in key for key in run.state.log_history[0])

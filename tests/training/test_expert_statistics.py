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
def log(model):
    """Return a function that logs, and returns the numbers for all loggers and those for the history alone."""
    callback = ExpertStatisticsCallback()
    callback.on_train_begin(None, None, None, model=model)

    def on_log() -> tuple[dict, dict]:
        logs, state = {"loss": 1.0}, TrainerState(log_history=[{}])
        callback.on_log(None, state, None, logs=logs)
        [history] = state.log_history
        return logs, {name: value for name, value in history.items() if name not in logs}

    return on_log


def test_statistics_equal_those_by_hand_for_one_layer(log, model):
    """The decoder's layer has no labels that count."""
    model(input_ids=SOURCE, labels=torch.full_like(LABELS, -100))
    probs = torch.tensor([2.0, 1.0, 0.0, -1.0]).softmax(0).tolist()
    log_z = math.log(sum(math.exp(value) for value in (2, 1, 0, -1)))
    logs, loads = log()
    assert list(loads) == ["experts/encoder_1/load", "experts/decoder_0/load"]
    assert loads["experts/encoder_1/load"] == pytest.approx([0.5, 0.3, 0.2, 0.0])
    expected = {
        "loss": 1.0, "experts_max_load": 2.0, "experts_dead": 1 + 4, "experts_drop_rate": 1 / 10 / 2,
        "balance_loss": 4 * (0.5 * probs[0] + 0.3 * probs[1] + 0.2 * probs[2]) / 2, "z_loss": log_z**2 / 2,
    }  # fmt: skip
    assert logs == pytest.approx(expected, rel=1e-5)


def test_each_log_counts_from_the_last(model, log):
    model(input_ids=SOURCE, labels=LABELS)
    first = log()
    assert not any(log()[1]["experts/encoder_1/load"])
    model(input_ids=SOURCE, labels=LABELS)
    assert log() == first


def test_only_training_passes_count(model, log):
    with torch.no_grad():
        model(input_ids=SOURCE, labels=LABELS)
    model.eval()(input_ids=SOURCE, labels=LABELS)
    model.train()(input_ids=SOURCE, decoder_input_ids=LABELS)
    assert log()[0]["experts_dead"] == 8


class Reporter(TrainerCallback):
    def __init__(self):
        type(self).logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(dict(logs))


def trainer(folder, fields=None, **settings):
    steps = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    data = [{"input_ids": SOURCE[0].tolist(), "labels": LABELS[0].tolist()}] * 4
    return runs.trainer(folder, runs.build(**SPARSE | (fields or {})), data, **(steps | settings))


def test_statistics_reach_report_to_and_the_history(tmp_path, monkeypatch):
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "reporter", Reporter)
    run = trainer(tmp_path, report_to=["reporter"])
    run.train()
    history = [entry for entry in run.state.log_history if "loss" in entry]
    assert [entry["step"] for entry in history] == [2, 4]
    for entry in history:
        assert len(entry["experts/encoder_1/load"]) == 4 and entry["balance_loss"] > 0
    reported = [logs for logs in Reporter.logs if "loss" in logs]
    assert len(reported) == 2 and reported[0]["balance_loss"] == history[0]["balance_loss"]
    assert not any("experts/" in name for logs in reported for name in logs)
    [callback] = [c for c in run.callback_handler.callbacks if isinstance(c, ExpertStatisticsCallback)]
    assert callback._hooks == []

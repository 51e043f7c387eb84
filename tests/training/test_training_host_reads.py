"""A step of the trainer waits for no value of the device: neither the model nor the optimizer reads one."""

import pytest
import torch
from transformers import TrainerCallback

from weftformer.modeling import checks

from ..modeling.test_host_reads import HostReads
from . import runs

SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "router_bias_update_rate": 0.1}


class _InSteps(TrainerCallback):
    """Finds reads in all steps but the first two, in which values are checked and optimizers begin."""

    def __init__(self):
        self.mode, self.found = None, []

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step >= 2:
            self.mode = HostReads()
            self.mode.__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
            self.found += self.mode.found


@pytest.mark.parametrize("muon", [False, True], ids=["adamw", "muon"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_steps_read_nothing(tmp_path, monkeypatch, kind, muon):
    monkeypatch.setattr(checks, "READABLE_DEVICES", ())
    if muon:  # without a fused kernel, AdamW looks at the step, which is on the CPU on any device
        monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    model = runs.build(**(SPARSE | {"encoder_ffn_dim": 24} if kind == "sparse" else {}))
    settings = {"max_steps": 5, "logging_steps": 100, "muon": muon, "gradient_accumulation_steps": 2, "bf16": True}
    run = runs.trainer(tmp_path, model, runs.rows(16), per_device_train_batch_size=2, **settings)
    run.add_callback(steps := _InSteps())
    run.train()
    assert steps.mode is not None and steps.found == []

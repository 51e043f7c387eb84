"""Averaged checkpoints: the mean of the last ones."""

import pytest
import torch

from weftformer.training import average_checkpoints

from ..models import tiny_model


@pytest.fixture
def run(tmp_path):
    """Three checkpoints whose weights, including the bias of a router, are all 1, 2 and 6."""
    model = tiny_model(decoder_mlp_layer_types="sparse", num_experts=2, router_bias_update_rate=0.1)
    for step, value in ((9, 1.0), (10, 2.0), (110, 6.0)):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.fill_(value)
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    return tmp_path


@pytest.mark.parametrize(("count", "mean"), [(1, 6.0), (2, 4.0), (3, 3.0), (10, 3.0)])
def test_the_last_ones_are_averaged(run, count, mean):
    state = average_checkpoints(run, count).state_dict()
    assert any("bias" in name for name in state)
    for name, value in state.items():
        assert value.dtype == torch.float32 and (value == mean).all(), name

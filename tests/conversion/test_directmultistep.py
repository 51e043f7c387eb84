"""DirectMultiStep itself: what is peculiar to it. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from .references import largest_error
from .references.directmultistep import DENSE, SPARSE, of_preset, preset_of, published, reference, sizes, small

# the package's way to its own files
pytestmark = [pytest.mark.filterwarnings("ignore:path is deprecated"), pytest.mark.dtype(torch.float64)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DENSE, *SPARSE])
@torch.no_grad()
def test_published_size(name):
    one = reference(published(name), "deterministic", preset_of(name), length=200)
    assert largest_error(one.found(one.converted().build()), one.expected()) <= 1e-10


@pytest.mark.parametrize("name", ["flash_10M", "flex_20M", "explorer_19M"])
@torch.no_grad()
def test_steps_noise_and_capacity_matter(name):
    """Else equal outputs would say nothing about them. The explorers do not read the steps."""
    one = of_preset(name)
    model = one.converted().build()
    base = one.found(model)
    assert ("condition_values" in one.inputs) != name.startswith("explorer")
    if "condition_values" in one.inputs:
        steps = one.inputs["condition_values"] + 1
        assert largest_error(one.found(model, condition_values=steps), base) > 1e-2
    capacity = {"expert_capacity_factor": 1.0, "expert_capacity_mode": "always"}
    for fields in ({"router_noise": "always"}, capacity) if name in SPARSE else ():
        assert largest_error(one.found(one.converted(**fields).build()), base) > 1e-2, fields


@torch.no_grad()
def test_the_whole_target_window_and_the_states_of_the_encoder():
    config = small("flash_10M")
    one = reference(config, "deterministic", preset_of("flash_10M"), length=1075, **sizes(config))
    model = one.converted().build()
    assert largest_error(one.found(model), one.expected()) <= 1e-10
    source, steps = one.inputs["input_ids"], one.inputs["condition_values"]
    states = one.module.encoder(source, one.module.make_src_mask(source), steps.long())
    found = model.model.encoder(source, condition_values=steps).last_hidden_state
    assert largest_error(found, states) <= 1e-10

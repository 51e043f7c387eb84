"""Weights that wait on the CPU or on disk until a layer needs them: the plain path, and the same answers."""

import pytest
import torch
from accelerate import cpu_offload

from weftformer import WeftForConditionalGeneration

CPU = torch.device("cpu")
REQUESTS = [{}, {"num_beams": 3}, {"use_cache": False}, {"cache_implementation": "static"}]


def with_hooks(model, folder):
    cpu_offload(model, execution_device=CPU, offload_buffers=True)
    return model


def loaded_in_parts(model, folder):
    """As `device_map="auto"` splits a model when memory is short."""
    model.save_pretrained(folder)
    places = {"model": "disk", "lm_head": "cpu"}
    return WeftForConditionalGeneration.from_pretrained(
        folder, device_map=places, offload_folder=folder / "offloaded"
    ).eval()


@pytest.mark.parametrize(("kind", "offload"), [("rotary", with_hooks), ("learned", loaded_in_parts)])
def test_an_offloaded_model_writes_the_same(build, source, steps, tmp_path, kind, offload):
    model, given = build(kind), {"input_ids": source, "min_new_tokens": 10, "max_new_tokens": 10}
    if model.config.num_condition_features:
        given["condition_values"] = torch.tensor([[2.0], [0.5], [-1.0], [3.0]])
    expected = [model.generate(**given, **request) for request in REQUESTS]
    assert steps
    steps.clear()
    offloaded = offload(model, tmp_path)
    assert any(parameter.device.type == "meta" for parameter in offloaded.parameters())
    for request, tokens in zip(REQUESTS, expected, strict=True):
        assert torch.equal(offloaded.generate(**given, **request), tokens)
    assert not steps

"""Requests do not write to the configuration, which concurrent requests read."""

from types import SimpleNamespace

import pytest
from transformers import WatermarkingConfig

from weftformer import WeftConfig

START = 1
LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8}
PLAIN = {"cache_implementation": "dynamic"}
REQUESTS = {
    "greedy": {},
    "sampling, plain": PLAIN | {"do_sample": True},
    "beams, plain": PLAIN | {"num_beams": 3},
    "beams, static": {"num_beams": 3, "cache_implementation": "static"},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "watermark": {"watermarking_config": WatermarkingConfig(greenlist_ratio=0.5), "do_sample": True},
    "another search": {"num_beams": 3, "custom_generate": "sqrt_length"},
}


@pytest.fixture
def writes(monkeypatch):
    """Record the names of fields written to the configurations in `watched`."""
    writes = SimpleNamespace(names=[], watched=[])

    def recorded(original):
        def record(config, name, *value):
            writes.names += [name] if any(config is watched for watched in writes.watched) else []
            original(config, name, *value)

        return record

    for method in ("__setattr__", "__delattr__"):
        monkeypatch.setattr(WeftConfig, method, recorded(getattr(WeftConfig, method)))
    return writes


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_leave_the_shared_configuration_unchanged(build, source, writes, request_):
    model = build("larger target")
    writes.watched.append(model.config)
    source = source[:1] if request_ == "prompt lookup" else source
    found = model.generate(source, **LENGTH, **REQUESTS[request_])
    assert found.shape[1] == 9 and not writes.names
    with pytest.raises(ValueError, match="assistant_early_exit=1: this model cannot skip layers"):
        model.generate(source[:1], assistant_early_exit=1, **LENGTH)

"""Nothing on the hot path waits for the device: after the first batch, no value is copied to the host."""

import pytest
import torch
import transformers
from packaging.version import Version
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from weftformer.modeling import checks

IDS = torch.tensor([[5, 6, 7, 8, 2], [5, 6, 2, 0, 0]])
LABELS = torch.tensor([[4, 5, 2], [5, 2, -100]])
MASKS = {"attention_mask": IDS.ne(0).long(), "decoder_attention_mask": LABELS.ne(-100).long()}
LEARNED = {"position_embedding_type": "learned", "self_attention_position_type": "none"}
# widths that transformers' grouped products take; the plain loop over experts looks which tokens each has
SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "encoder_ffn_dim": 24}
SHORT = {"max_source_positions": 4, "max_target_positions": 2}
LONGROPE = {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0, 1.5], "long_factor": [4.0, 3.0]}
KINDS = {
    "modern": {"num_key_value_heads": 2},
    "learned": LEARNED,
    "additive": {"self_attention_position_type": "additive", "cross_attention_position_type": "additive"},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "routes": LEARNED | {"infer_attention_mask": True},
    "sparse": SPARSE | {"router_bias_update_rate": 0.1},
    # longer than the length from which frequencies are scaled
    "dynamic": SHORT | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
}
if Version(transformers.__version__) >= Version("5.22"):  # until then transformers reads the length
    KINDS["longrope"] = SHORT | {"rope_parameters": LONGROPE}


class HostReads(TorchDispatchMode):
    """Finds operations whose result or its shape must be known on the host, and copies from other devices to it."""

    WAITING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique", "repeat_interleave")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name.startswith("index") and any(index is not None and index.dtype == torch.bool for index in args[1]):
            name = "nonzero"  # how many a mask picks is the shape of the result
        moved = isinstance(result, torch.Tensor) and result.device.type == "cpu"
        moved = moved and any(isinstance(arg, torch.Tensor) and arg.device.type != "cpu" for arg in args)
        if name in self.WAITING or name.startswith("_unique") or isinstance(result, (bool, int, float)) or moved:
            self.found.append(name)
        return result


class HostMethods(TorchFunctionMode):
    """Finds methods that need no operation on the CPU, but a copy from another device."""

    WAITING = ("tolist", "numpy", "cpu", "__array__")

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", None) in self.WAITING:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def slow_reads(monkeypatch):
    """Treat the CPU as a device whose values are slow to read."""
    monkeypatch.setattr(checks, "READABLE_DEVICES", ())


def reads(call):
    with HostReads() as mode, HostMethods(mode.found):
        call()
    return mode.found


@pytest.mark.parametrize(("kind", "attention"), [*((kind, "sdpa") for kind in KINDS), ("sparse", "eager")])
def test_training_step_reads_nothing(build, kind, attention):
    model = build(attention=attention, **KINDS[kind]).train()
    call = {"input_ids": IDS, "labels": LABELS} | MASKS
    assert reads(lambda: model(**call))  # of the first batch the values are looked at
    assert reads(lambda: model(**call).loss.backward()) == []
    assert reads(lambda: model(**call, num_items_in_batch=torch.tensor(9)).loss.backward()) == []
    assert reads(lambda: model.eval()(**call)) == []


@pytest.mark.parametrize(("kind", "attention"), [*((kind, "sdpa") for kind in KINDS), ("relative", "eager")])
@torch.no_grad()
def test_decoding_step_reads_nothing(build, kind, attention):
    model = build(attention=attention, **KINDS[kind])
    given = {} if attention == "eager" else {"attention_mask": MASKS["attention_mask"]}
    first = model(input_ids=IDS, decoder_input_ids=IDS[:, :2], **given)
    states, cache = (first.encoder_last_hidden_state,), first.cache
    for length in (3, 4, 5):
        if given:
            given["decoder_attention_mask"] = torch.ones(2, length, dtype=torch.long)
        step = {"encoder_outputs": states, "decoder_input_ids": IDS[:, :1], "cache": cache}
        assert reads(lambda step=step: model(**step, **given)) == []

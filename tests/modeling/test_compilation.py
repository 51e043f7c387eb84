"""A training step is one graph with any layers and loss, and computes the same as uncompiled."""

import copy

import pytest
import torch

from weftformer import WeftEncoder

from .. import models
from ..models import SPARSE, tiny_model

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
KINDS = {
    "dense": {"num_key_value_heads": 1, "lm_head_bias": True},
    "dms": models.KINDS["learned"] | {"infer_attention_mask": True},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "sparse": SPARSE | {"num_experts": 4, "router_bias": True, "router_bias_update_rate": 0.1},
}
EXACT = {"atol": 1e-10, "rtol": 1e-10}


def batch(length):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 29, (2, length), generator=generator)
    labels = torch.randint(3, 29, (2, length - 1), generator=generator)
    ids[1, 3:] = 0
    labels[1, 2:] = -100
    return {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": labels}


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pair(kind):
    """Return a model and its twin, neither of which has computed anything."""
    model = tiny_model(**SMALL, **KINDS[kind]).double().train()
    if kind == "sparse":
        model.set_experts_implementation("batched_mm")
    assert type(model)._can_compile_fullgraph
    return model, copy.deepcopy(model)


def check_steps(model, twin, settings, chunked_loss, lengths=(6, 5, 9), close=EXACT):
    """Compare steps over batches of several lengths, compiled and not: losses, gradients, and counts of routers."""
    step = torch.compile(twin, fullgraph=True, **settings)
    for length in lengths:
        outputs = [one(**batch(length), chunked_loss=chunked_loss) for one in (model, step)]
        assert all((output.logits is None) is chunked_loss for output in outputs)
        torch.testing.assert_close(outputs[1].loss, outputs[0].loss, **close)
        for one, output in zip((model, twin), outputs, strict=True):
            one.zero_grad()
            output.loss.backward()
        for (name, wanted), found in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad, **close, msg=lambda text, name=name: f"{name}: {text}")
    for wanted, found in zip(model.routers(), twin.routers(), strict=True):
        assert torch.equal(found.expert_load, wanted.expert_load) and wanted.expert_load.any()


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "checkpoints"), [("sparse", False), ("dense", True)])
def test_training_step_is_one_graph(kind, checkpoints):
    """Traced whole, and run as traced: every break of the graph or guess about a value would show."""
    model, twin = pair(kind)
    if checkpoints:
        twin.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    check_steps(model, twin, {"backend": "eager"}, chunked_loss=True, lengths=(6,))


@pytest.mark.integration
def test_recorded_encoder_states_are_one_graph():
    model = tiny_model(WeftEncoder, **SMALL)
    given = {name: batch(6)[name] for name in ("input_ids", "attention_mask")} | {"output_hidden_states": True}
    found = torch.compile(copy.deepcopy(model), fullgraph=True, backend="eager")(**given)
    torch.testing.assert_close(found.hidden_states, model(**given).hidden_states)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "chunked_loss"), [("dense", True), ("dms", True), ("relative", False), ("sparse", False)]
)
def test_compiled_step_equals_eager_step(kind, chunked_loss):
    # rotary angles are of 32 bits, and inductor's sines and cosines of them are its own
    check_steps(*pair(kind), {}, chunked_loss, close={"atol": 1e-5, "rtol": 1e-4})

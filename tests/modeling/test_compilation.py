"""A training step is one graph, whatever the layers and the loss, and computes what it computes uncompiled."""

import copy

import pytest
import torch

from weftformer import WeftConfig, WeftEncoderModel, WeftForConditionalGeneration, WeftForSequenceClassification

from ..conftest import one_stays

SMALL = {
    "vocab_size": 29, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "dropout": 0.0,
}  # fmt: skip
SPARSE = {
    "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4, "router_bias": True,
    "router_bias_update_rate": 0.1, "n_shared_experts": 1, "scoring_func": "sigmoid", "routed_scaling_factor": 1.5,
    "router_sequence_aux_loss_coef": 0.1,
}  # fmt: skip
KINDS = {
    "dense": {"num_key_value_heads": 1, "lm_head_bias": True},
    "dms": {
        "position_embedding_type": "learned",
        "self_attention_position_type": "none",
        "infer_attention_mask": True,
    },
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "sparse": SPARSE,
}
EXACT = {"atol": 1e-10, "rtol": 1e-10}


def batch(length, packed=False):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 29, (2, length), generator=generator)
    labels = torch.randint(3, 29, (2, length - 1), generator=generator)
    ids[1, 3:] = 0
    labels[1, 2:] = -100
    made = {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": labels}
    if packed:
        second = {"sequence_ids": (ids, 2), "decoder_sequence_ids": (labels, 1)}  # where the second pair begins
        made |= {
            name: (torch.arange(side.shape[1]) >= start).long().expand(2, -1) for name, (side, start) in second.items()
        }
    return made


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pair(kind, training=True, experts="batched_mm", dtype=torch.float64):
    """A model and its twin, neither of which has computed anything."""
    torch.manual_seed(0)
    model = WeftForConditionalGeneration(WeftConfig(**SMALL, **KINDS[kind])).to(dtype).train(training)
    if kind == "sparse":
        model.set_experts_implementation(experts)
    assert type(model)._can_compile_fullgraph
    return model, copy.deepcopy(model)


def check_steps(model, twin, settings, skip_logits, lengths=(6, 5, 9), close=EXACT, packed=False):
    """Steps over batches of several lengths, as traced and as they are: losses, gradients, and what routers count."""
    step = torch.compile(twin, fullgraph=True, **settings)
    for length in lengths:
        outputs = [one(**batch(length, packed), skip_logits=skip_logits) for one in (model, step)]
        assert all((output.logits is None) is skip_logits for output in outputs)
        torch.testing.assert_close(outputs[1].loss, outputs[0].loss, **close)
        for one, output in zip((model, twin), outputs, strict=True):
            one.zero_grad()
            output.loss.backward()
        for (name, wanted), found in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad, **close, msg=lambda text, name=name: f"{name}: {text}")
    for wanted, found in zip(model.routers(), twin.routers(), strict=True):
        assert torch.equal(found.expert_load, wanted.expert_load) and wanted.expert_load.any() == model.training


@pytest.mark.parametrize(
    "kind, skip_logits", one_stays([("dense", True), ("sparse", False), ("dms", True), ("relative", False)])
)
def test_a_training_step_is_one_graph(kind, skip_logits):
    """Traced whole, and run as traced: every break of the graph or guess about a value would show."""
    check_steps(*pair(kind), {"backend": "eager"}, skip_logits, lengths=(6, 9))


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["dms", "relative"])
def test_a_training_step_of_packed_rows_is_one_graph(kind):
    check_steps(*pair(kind), {"backend": "eager"}, skip_logits=False, lengths=(6, 9), packed=True)


@pytest.mark.integration
def test_router_outputs_that_are_asked_for_break_no_graph():
    model, twin = pair("sparse", training=False)
    call = batch(6) | {"output_router_logits": True}
    found = torch.compile(twin, fullgraph=True, backend="eager")(**call)
    for name in ("encoder_router_logits", "decoder_router_logits"):
        torch.testing.assert_close(found[name], model(**call)[name], **EXACT)


@pytest.mark.stays(part=("model",), asked=("by the call",))
@pytest.mark.stays(part=("stack",), asked=("by the configuration",))
@pytest.mark.parametrize("asked", ["by the call", "by the configuration"])
@pytest.mark.parametrize("part", ["model", "stack"])
def test_states_of_the_encoder_alone_break_no_graph(part, asked):
    torch.manual_seed(0)
    model = WeftEncoderModel(WeftConfig(**SMALL)).eval()
    model = model.encoder if part == "stack" else model
    given = {name: batch(6)[name] for name in ("input_ids", "attention_mask")}
    twin = copy.deepcopy(model)
    if asked == "by the call":
        call = given | {"output_hidden_states": True}
    else:
        call, twin.config.output_hidden_states = given, True
    found = torch.compile(twin, fullgraph=True, backend="eager")(**call)
    torch.testing.assert_close(found.hidden_states, model(**given, output_hidden_states=True).hidden_states)


def test_a_training_step_of_a_sparse_classifier_is_one_graph():
    torch.manual_seed(0)
    model = WeftForSequenceClassification(WeftConfig(**(SMALL | SPARSE), num_labels=3)).double().train()
    model.set_experts_implementation("batched_mm")
    twin = copy.deepcopy(model)
    given = batch(6) | {"labels": torch.tensor([2, 0])}
    found = torch.compile(twin, fullgraph=True, backend="eager")(**given)
    torch.testing.assert_close(found.loss, model(**given).loss, **EXACT)
    for wanted, router in zip(model.routers(), twin.routers(), strict=True):
        assert torch.equal(router.expert_load, wanted.expert_load) and wanted.expert_load.any()


@pytest.mark.slow
@pytest.mark.parametrize("skip_logits", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back_is_traced_too(kind, training, skip_logits):
    check_steps(*pair(kind, training), {"backend": "aot_eager"}, skip_logits)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False])
def test_lengths_may_be_dynamic_or_not(dynamic):
    check_steps(*pair("dense"), {"backend": "aot_eager", "dynamic": dynamic}, True)


@pytest.mark.slow
@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_other_implementations_of_experts(experts):
    """The loop; and grouped products, which have no doubles."""
    dtype, close = (torch.float64, EXACT) if experts == "eager" else (torch.float32, {"atol": 1e-5, "rtol": 1e-4})
    check_steps(*pair("sparse", True, experts, dtype), {"backend": "aot_eager"}, False, close=close)


@pytest.mark.slow
@pytest.mark.parametrize("skip_logits", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_machine_code_gives_what_eager_gives(kind, skip_logits):
    # rotary angles are of 32 bits, and inductor's sines and cosines of them are its own
    check_steps(*pair(kind), {}, skip_logits, close={"atol": 1e-5, "rtol": 1e-4})

"""The whole model: its outputs, its losses, their terms, and all ways through it, which must agree."""

import warnings

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from weftformer.modeling import checks
from weftformer.modeling.losses import balance_loss, cross_entropy, router_z_loss
from weftformer.modeling.modeling_weft import shift_tokens_right
from weftformer.modeling.transformers_names import CACHE

from .. import models
from ..models import IDS, LABELS, TARGET

pytestmark = pytest.mark.dtype(torch.float64)

MASK = IDS.ne(0)
SPARSE = {
    "encoder_mlp_layer_types": ["dense", "sparse"],
    "decoder_mlp_layer_types": ["sparse", "sparse"],
    "encoder_ffn_dim": 24,
}
KINDS = models.KINDS | {
    "sparse": SPARSE,
    "noisy sparse": SPARSE | {"router_type": "noisy_top_k", "router_bias": True, "router_bias_update_rate": 1e-3},
}


def inputs_of(model):
    given = {"input_ids": IDS, "attention_mask": MASK}
    if model.config.num_condition_features:
        given["condition_values"] = torch.tensor([[1.0], [0.5]])
    return given


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(build, kind):
    model = build(**KINDS[kind]).train()
    model(labels=LABELS, **inputs_of(model)).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if not name.endswith("k_proj.bias"):  # moves all logits of a query alike, so the softmax does not see it
            assert parameter.grad.abs().max() > 1e-9, name


# --- outputs


def test_recorded_outputs(build):
    model = build(encoder_layers=3, encoder_mlp_layer_types=["dense", "sparse", "dense"], **{
        key: value for key, value in SPARSE.items() if key != "encoder_mlp_layer_types"})  # fmt: skip
    output = model(
        input_ids=IDS, attention_mask=MASK, decoder_input_ids=TARGET, output_hidden_states=True,
        output_attentions=True, output_router_logits=True,
    )  # fmt: skip
    assert [tuple(one.shape) for one in output.encoder_router_logits] == [(12, 4)]
    assert [tuple(one.shape) for one in output.decoder_router_logits] == [(10, 4)] * 2
    torch.testing.assert_close(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)
    assert output.loss is None and output.aux_loss > 0 and output.z_loss > 0
    for attentions in (output.encoder_attentions, output.decoder_attentions, output.cross_attentions):
        for weights in attentions:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert output.encoder_attentions[0][0, :, :, 2:4].abs().max() == 0  # pads
    assert output.decoder_attentions[0].triu(1).abs().max() == 0


def test_outputs_without_requests(build):
    output = build(**SPARSE)(input_ids=IDS, decoder_input_ids=TARGET)
    assert set(output.keys()) == {"logits", CACHE, "encoder_last_hidden_state"}
    trained = build(**SPARSE)(input_ids=IDS, labels=LABELS, use_cache=True)  # labels need no cache
    assert set(trained.keys()) == {"loss", "logits", "encoder_last_hidden_state", "aux_loss", "z_loss"}


def test_logits_to_keep(build):
    model = build(num_key_value_heads=2)
    full = model(input_ids=IDS, decoder_input_ids=TARGET).logits
    for kept, places in ((2, [-2, -1]), (torch.tensor([0, 3]), [0, 3])):
        found = model(input_ids=IDS, decoder_input_ids=TARGET, logits_to_keep=kept).logits
        torch.testing.assert_close(found, full[:, places])


# --- roads that agree


@pytest.mark.parametrize("kind", KINDS)
def test_stacks_and_embeddings_equal_the_model(build, kind):
    model = build(**KINDS[kind])
    full = model(decoder_input_ids=TARGET, **inputs_of(model)).logits
    states = model.model.encoder(**inputs_of(model))
    hidden = states.last_hidden_state
    for encoder_outputs in (states, (hidden,), [hidden], {"last_hidden_state": hidden}, BaseModelOutput(hidden)):
        logits = model(encoder_outputs=encoder_outputs, attention_mask=IDS.ne(0), decoder_input_ids=TARGET).logits
        torch.testing.assert_close(logits, full, atol=1e-10, rtol=1e-10)
    hidden = model.model.decoder(
        input_ids=TARGET, encoder_hidden_states=states[0], encoder_attention_mask=IDS.ne(0)
    ).last_hidden_state
    torch.testing.assert_close(model.lm_head(hidden), full, atol=1e-10, rtol=1e-10)
    given = inputs_of(model)
    given["inputs_embeds"] = model.model.encoder.embed_tokens(given.pop("input_ids"))
    embedded = model(decoder_inputs_embeds=model.model.decoder.embed_tokens(TARGET), **given).logits
    torch.testing.assert_close(embedded, full)


# --- conditions


def test_conditions_are_added_at_every_source_position(build):
    model = build(num_condition_features=2, scale_embedding=True, norm_first=False, normalize_embedding=True)
    encoder, values = model.model.encoder, torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    seen = []
    encoder.layernorm_embedding.register_forward_hook(lambda _, args, output: seen.append(args[0]))
    found = encoder(input_ids=IDS, condition_values=values).last_hidden_state
    weight = encoder.condition_proj.weight  # one column a feature
    added = torch.stack([values[b, 0] * weight[:, 0] + values[b, 1] * weight[:, 1] for b in range(2)])
    torch.testing.assert_close(seen[0], encoder.embed_tokens(IDS) * 4.0 + added[:, None])
    missing = encoder(input_ids=IDS).last_hidden_state
    assert torch.equal(missing, encoder(input_ids=IDS, condition_values=torch.zeros(2, 2)).last_hidden_state)
    assert (missing - found).abs().max() > 1e-2


# --- losses


def parts_of_the_loss(model, output):
    """Return cross-entropy, balance loss and z-loss, computed from the outputs alone."""
    real = IDS.ne(0).flatten(), LABELS.ne(-100).flatten()
    stacks = ((output.encoder_router_logits, real[0]), (output.decoder_router_logits, real[1]))
    layers = [(logits, mask) for stack, mask in stacks for logits in stack]
    k = model.config.num_experts_per_tok
    aux = sum(balance_loss(logits, logits.topk(k).indices, mask) for logits, mask in layers) / len(layers)
    z = sum(router_z_loss(logits, mask) for logits, mask in layers) / len(layers)
    return cross_entropy(output.logits, LABELS), aux, z


def test_router_losses_enter_the_loss_in_training_alone(build):
    model = build(router_aux_loss_coef=0.3, router_z_loss_coef=0.07, **SPARSE)
    call = {"input_ids": IDS, "attention_mask": MASK, "labels": LABELS, "output_router_logits": True}
    output = model(**call)
    likelihood, aux, z = parts_of_the_loss(model, output)
    torch.testing.assert_close((output.loss, output.aux_loss, output.z_loss), (likelihood, aux, z))
    trained = model.train()(**call)
    torch.testing.assert_close(trained.loss, likelihood + 0.3 * aux + 0.07 * z)
    # masks of another form hide the same pads
    masks = {"attention_mask": MASK[:, None, None].expand(-1, -1, 6, -1), "decoder_attention_mask": LABELS.ne(-100)}
    torch.testing.assert_close(model(**(call | masks)).aux_loss, aux, atol=1e-10, rtol=1e-10)
    weights = [router.classifier.weight for router in model.routers()]
    assert all(gradient.any() for gradient in torch.autograd.grad(trained.aux_loss + trained.z_loss, weights))
    shared = model(**call, num_items_in_batch=torch.tensor(36))  # 9 labels here
    torch.testing.assert_close(shared.loss, (likelihood + 0.3 * aux + 0.07 * z) / 4)
    assert model(**call, num_items_in_batch=36).loss == shared.loss


def test_routers_learn_without_labels(build, caplog):
    """In a loop with a loss of its own, the load is counted and the losses are returned as with labels."""
    checks.logger.warning_once.cache_clear()
    model = build(router_bias_update_rate=0.5, **SPARSE).train()
    call = {"input_ids": IDS, "attention_mask": MASK, "decoder_attention_mask": LABELS.ne(-100)}
    start = shift_tokens_right(model.config, LABELS)

    def counted(**given):
        for router in model.routers():
            router.expert_load.zero_()
        output = model(**call, **given)
        return output, torch.stack([router.expert_load.clone() for router in model.routers()])

    expected, loads = counted(labels=LABELS)
    output, found = counted(decoder_input_ids=start, output_router_logits=True)
    assert torch.equal(found, loads) and loads.sum() > 0
    torch.testing.assert_close((output.aux_loss, output.z_loss), (expected.aux_loss, expected.z_loss))
    assert "output.aux_loss" not in caplog.text
    output, found = counted(decoder_input_ids=start)
    assert torch.equal(found, loads) and output.aux_loss is output.z_loss is output.decoder_router_logits is None
    assert "trained without `labels`" in caplog.text and "output.aux_loss" in caplog.text
    with torch.no_grad():  # as when a policy writes its samples
        assert not counted(decoder_input_ids=start)[1].any()
    model.eval()
    assert not counted(decoder_input_ids=start, output_router_logits=True)[1].any()


@pytest.mark.parametrize("count", [None, torch.tensor(0), 5])
@pytest.mark.parametrize("kind", ["rotary across", "noisy sparse"])
def test_labels_of_minus_100_alone_have_no_gradient_and_in_evaluation_no_loss(build, kind, count):
    model = build(**KINDS[kind], expert_capacity_factor=1.0).train()
    output = model(input_ids=IDS, labels=torch.full_like(LABELS, -100), num_items_in_batch=count)
    output.loss.backward()
    assert output.loss.item() == 0.0 and output.logits.isfinite().all()
    assert not any(gradient.any() for gradient in gradients(model).values())
    assert model.eval()(input_ids=IDS, labels=torch.full_like(LABELS, -100)).loss.isnan()  # 0 would be the best loss


# --- load and bias


def test_load_is_counted_in_training(build):
    model = build(**SPARSE, router_bias_update_rate=0.25).train()
    loads = [router.expert_load for router in model.routers()]
    model.eval()(input_ids=IDS, labels=LABELS)
    assert all(load.sum() == 0 for load in loads)
    output = model.train()(input_ids=IDS, attention_mask=MASK, labels=LABELS, output_router_logits=True)
    real = (IDS.ne(0).flatten(), LABELS.ne(-100).flatten(), LABELS.ne(-100).flatten())
    logits = (*output.encoder_router_logits, *output.decoder_router_logits)
    expected = [torch.bincount(row.topk(2).indices[mask].flatten(), minlength=4) for row, mask in
                zip(logits, real, strict=True)]  # fmt: skip
    assert [load.tolist() for load in loads] == [count.tolist() for count in expected]
    assert [load.sum().item() for load in loads] == [20.0, 18.0, 18.0]  # 10 and 9 real tokens, two experts each
    biases = [0.25 * torch.sign(count.float().mean() - count) for count in expected]
    for router in model.routers():
        router.update_selection_bias()
    assert [router.selection_bias.tolist() for router in model.routers()] == [bias.tolist() for bias in biases]


# --- memory and compilation


@pytest.mark.parametrize(
    ("kind", "reentrant"), [("learned", True), ("relative", None), ("noisy sparse", False), ("sparse", True)]
)
def test_gradient_checkpointing_equals_plain_training(build, kind, reentrant):
    model = build(**KINDS[kind], dropout=0.2, attention_dropout=0.1).train()

    def run():
        model.zero_grad()
        for router in model.routers():
            if router.expert_load is not None:
                router.expert_load.zero_()
        torch.manual_seed(1)
        loss = model(labels=LABELS, **inputs_of(model)).loss
        loss.backward()
        loads = [router.expert_load.clone() for router in model.routers() if router.expert_load is not None]
        return loss.item(), gradients(model), loads

    expected = run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its new name came with transformers 5.2x
        model.gradient_checkpointing_enable(None if reentrant is None else {"use_reentrant": reentrant})
    assert model.model.encoder.gradient_checkpointing and model.model.decoder.gradient_checkpointing
    torch.testing.assert_close(run(), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["rotary", "relative", "noisy sparse"])
def test_gradient_checkpointing_trains_a_given_cache(build, kind):
    model = build(**KINDS[kind]).train()
    prefix = torch.randn(2, 2, 2, 4, 3, 4, requires_grad=True, generator=torch.Generator().manual_seed(0))

    def run():
        prefix.grad = None
        torch.manual_seed(1)
        # as PEFT computes a prefix, one graph is shared by all layers
        cache = EncoderDecoderCache(DynamicCache([tuple(layer) for layer in prefix.sin()]), DynamicCache())
        loss = model(labels=LABELS, **inputs_of(model), **{CACHE: cache}).loss
        loss.backward()
        return loss.item(), prefix.grad.clone()

    expected = run()
    assert expected[1].abs().flatten(1).amax(dim=1).min() > 1e-3
    model.gradient_checkpointing_enable()
    torch.testing.assert_close(run(), expected, atol=1e-10, rtol=1e-10)
    if "sparse" not in kind:  # sparse models have no reentrant checkpointing
        model.gradient_checkpointing_enable({"use_reentrant": True})
        with pytest.raises(ValueError, match="use_reentrant"):
            run()


def test_labels_padded_on_the_left_are_refused(build):
    model = build()
    labels = torch.tensor([[-100, -100, 4, 5], [6, 7, 8, 9]])
    for call in (model.prepare_decoder_input_ids_from_labels, lambda labels: model(input_ids=IDS[:2], labels=labels)):
        with pytest.raises(ValueError, match="right"):
            call(labels)
    inputs = {"decoder_input_ids": torch.tensor([[0, 0, 1, 4], [1, 6, 7, 8]])}
    inputs["decoder_attention_mask"] = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    alone = model(input_ids=IDS[:1], attention_mask=IDS[:1].ne(0), labels=labels[:1, 2:])
    both = model(input_ids=IDS[:2], attention_mask=IDS[:2].ne(0), labels=labels, **inputs)
    torch.testing.assert_close(both.logits[0, 2:], alone.logits[0])

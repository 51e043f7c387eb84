"""A sparse model made from a dense one gives the same outputs before its first step, and then diverges."""

from functools import partial

import pytest
import torch

from weftformer import WeftDecoder
from weftformer.conversion import SOURCES, export, upcycle
from weftformer.exporting import write_ctranslate2

from ..models import IDS, LABELS, tiny_model

pytestmark = pytest.mark.dtype(torch.float64)

KINDS = {
    "gated": {},
    "plain with biases": {"is_gated_act": False, "mlp_bias": True, "activation_function": "gelu"},
    "gated with biases": {"mlp_bias": True},
    "plain": {"is_gated_act": False, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}


def dense(**fields):
    return tiny_model(random=True, decoder_layers=3, decoder_ffn_dim=32, dropout=0.0, **fields)


@pytest.mark.parametrize(("kind", "per_token"), list(zip(KINDS, (3, 2, 4, 3), strict=True)))
def test_step_0_is_the_dense_model(kind, per_token):
    model = dense(**KINDS[kind])
    model.generation_config.update(max_new_tokens=6, num_beams=3)
    sparse = upcycle(model, 4, per_token, every=1)
    expected = model(input_ids=IDS, labels=LABELS)
    found = sparse(input_ids=IDS, labels=LABELS)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(found.loss, expected.loss)
    assert len(sparse.routers()) == 5
    assert sum(p.numel() for p in sparse.parameters()) > 1.5 * sum(p.numel() for p in model.parameters())
    assert torch.equal(texts := sparse.generate(IDS), model.generate(IDS)) and texts.shape[1] == 7


@pytest.mark.parametrize("kind", ["gated", "plain with biases"])
def test_step_0_of_one_expert_is_nearly_the_dense_model(kind):
    """Its weight is a probability, which the labels train."""
    model = dense(**KINDS[kind])
    sparse = upcycle(model, 4, 1, router_aux_loss_coef=0.0, router_z_loss_coef=0.0)
    expected = model(input_ids=IDS, labels=LABELS).logits
    found = sparse(input_ids=IDS, labels=LABELS)
    assert (found.logits - expected).abs().mean() < 0.05 * expected.std()
    found.loss.backward()
    assert all(router.classifier.weight.grad.any() for router in sparse.routers())


def test_chosen_layers_only_and_a_stack_alone():
    assert upcycle(dense()).config.decoder_mlp_layer_types == ["dense", "sparse", "dense"]
    assert upcycle(tiny_model(decoder_layers=1)).config.decoder_mlp_layer_types == ["sparse"]
    sparse = upcycle(
        dense(), 3, 2, encoder_mlp_layer_types="dense", decoder_mlp_layer_types=["dense", "sparse", "dense"]
    )
    assert len(sparse.routers()) == 1
    model = dense()
    torch.testing.assert_close(sparse(input_ids=IDS, labels=LABELS).logits, model(input_ids=IDS, labels=LABELS).logits)
    decoder = WeftDecoder(model.config).eval()
    sparse_decoder = upcycle(decoder, 3, 2)
    torch.testing.assert_close(sparse_decoder(IDS).last_hidden_state, decoder(IDS).last_hidden_state)


def upcycled(**fields):
    return upcycle(dense(), **fields)


CHANGED = {"norm_topk_prob": False, "expert_capacity_factor": 1.0, "moe_intermediate_size": 8, "norm_first": False}
ALL_DENSE = {"encoder_mlp_layer_types": "dense", "decoder_mlp_layer_types": "dense"}
REFUSED = [
    *((partial(upcycled, **{name: value}), "differ from the dense one") for name, value in CHANGED.items()),
    (lambda: upcycle(upcycled()), "sparse layers already"),
    (lambda: upcycle(torch.nn.Linear(2, 2)), "is a Linear"),
    (partial(upcycled, dropuot=0.1), "dropuot"),
    (partial(upcycled, **ALL_DENSE), "No layer would be sparse"),
    (lambda: upcycle(tiny_model(), every=0), "every=0 is not allowed"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_would_not_be_the_dense_model_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_an_adapter_that_is_not_merged_is_refused(is_wrapped, tmp_path):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(tiny_model(), settings)
    model = adapted if is_wrapped else adapted.get_base_model()
    for use in (upcycle, partial(export, source=SOURCES["bart"]), partial(write_ctranslate2, folder=tmp_path)):
        with pytest.raises(ValueError, match=r"has an adapter.*merge_and_unload"):
            use(model)
    merged = adapted.merge_and_unload().eval()
    batch = {"input_ids": IDS, "decoder_input_ids": IDS}
    torch.testing.assert_close(upcycle(merged, 2)(**batch).logits, merged(**batch).logits)

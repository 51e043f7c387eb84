"""transformers' BART family: what is peculiar to it. `test_parity.py` compares outputs, gradients, weights and texts."""

import pytest
import torch
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts

from weftformer.conversion import SOURCES, convert, export, read_source_config, read_weights

from .references import largest_error
from .references.bart import FAMILIES, SKIP_PADS, RepairedExperts, original, reference

pytestmark = pytest.mark.dtype(torch.float64)

BART = SOURCES["bart"]
every_family = pytest.mark.parametrize("family", FAMILIES)


@torch.no_grad()
def error(one, **inputs):
    return largest_error(one.found(one.converted().build(), **inputs), one.expected()) / one.tolerance


@pytest.mark.parametrize("family", ["bart", "marian", *SKIP_PADS])
def test_without_a_mask_pads_are_tokens_like_others(family):
    one = reference(family)
    real, hidden = one.inputs.pop("attention_mask"), one.expected()
    # these give the pads no position, mask or not
    counted = {"position_ids": (real.cumsum(-1) - 1).clamp(min=0), "position_mask": real.bool()}
    one.run = lambda module: module(**one.inputs).logits
    assert largest_error(one.expected(), hidden) > 1e-3
    assert error(one, **(counted if family in SKIP_PADS else {})) <= 1


@every_family
def test_special_tokens(family):
    """Those that the family's configuration does not know are unknown here too."""
    one = reference(family)
    there, here = one.module, one.converted().build()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        assert getattr(here.config, name) == getattr(there.config, name, None), name
    for name in ("forced_bos_token_id", "forced_eos_token_id"):  # read by `generate` alone
        assert getattr(here.generation_config, name) == getattr(there.generation_config, name), name


@every_family
def test_a_saved_folder_has_one_copy_of_what_is_tied(family, tmp_path):
    one = reference(family)
    one.module.save_pretrained(tmp_path)
    weights = read_weights(tmp_path)
    tables = {key for key in weights if key.endswith(("shared.weight", "embed_tokens.weight", "lm_head.weight"))}
    assert len(tables) == {"vocabularies apart": 2, "all tables apart": 3}.get(family.rpartition(", ")[2], 1)
    saved, held = convert(weights, BART, source_config=read_source_config(tmp_path)), one.converted()
    assert "lm_head.weight" in one.module.state_dict()  # which has every copy
    assert saved.config.to_dict() == held.config.to_dict()
    assert saved.found.weights.keys() == held.found.weights.keys()
    assert all(torch.equal(tensor, held.found.weights[key]) for key, tensor in saved.found.weights.items())


@pytest.mark.parametrize("prefix", ["model.", ""], ids=["prefix", "as `BartModel` saves it"])
@torch.no_grad()
def test_a_file_without_the_bias_of_the_head(prefix):
    """transformers reads such files: the bias is zero."""
    one = reference("bart")
    one.module.final_logits_bias.zero_()
    weights = {prefix + key: tensor for key, tensor in one.module.model.state_dict().items()}
    assert largest_error(one.found(one.converted(weights).build()), one.expected()) <= one.tolerance


def test_a_head_of_its_own():
    one = reference("bart", tie_word_embeddings=False)
    for stack in (
        one.module.model.encoder,
        one.module.model.decoder,
    ):  # 5.23 parts them too, which no published model does
        stack.embed_tokens.weight = one.module.model.shared.weight
    here = one.converted().build()
    assert not here.config.tie_word_embeddings and error(one) <= 1
    back = export(here, BART, one.module.config.to_dict())
    assert torch.equal(back["lm_head.weight"], one.module.lm_head.weight)


NLLB_MOE = [
    {"router_bias": False},
    {"normalize_router_prob_before_dropping": True, "moe_token_dropout": 0.0},
    {"encoder_sparse_step": 0, "decoder_sparse_step": 3},
    {"num_experts": 5, "router_bias": False, "normalize_router_prob_before_dropping": True},
    {"batch_prioritized_routing": True},
    {"router_ignore_padding_tokens": True},
]


@pytest.mark.parametrize("fields", NLLB_MOE, ids=str)
def test_settings_of_nllb_moe(fields):
    assert error(reference("nllb-moe", **fields)) <= 1


def test_nllb_moe_as_transformers_has_it_is_another_model(monkeypatch):
    """When this fails, transformers is repaired: what stands in for it here, and the words about 5.23, can go."""
    one = reference("nllb-moe")
    with torch.no_grad():
        repaired = one.expected()
        monkeypatch.setattr(RepairedExperts, "forward", NllbMoeExperts.forward)
        assert largest_error(one.expected(), repaired) > 1e-2


@pytest.mark.parametrize(
    ("family", "copy", "of"),
    [("bart", f"{place}.weight", "model.shared.weight")
     for place in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens")]
    + [("marian, vocabularies apart", "lm_head.weight", "model.decoder.embed_tokens.weight")],
)  # fmt: skip
def test_a_copy_that_differs_is_refused(family, copy, of):
    one = reference(family)
    weights = one.module.state_dict()
    weights[copy] = weights[copy] + 1e-3
    with pytest.raises(ValueError, match=f"{copy} differs from {of}"):
        one.converted(weights)


@pytest.mark.parametrize("source_config", [None, {}, {"model_type": "t5"}, {"model_type": "blenderbot"}])
def test_the_family_has_to_be_told(source_config):
    there = original("bart")
    given = source_config and there.config.to_dict() | source_config
    with pytest.raises(ValueError, match=r"model_type=.* is none of bart, mbart, marian, pegasus, m2m_100, nllb-moe"):
        convert(there.state_dict(), BART, source_config=given)


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("nllb-moe", "second_expert_policy", "random"), ("nllb-moe", "moe_eval_capacity_token_fraction", 0.25),
     ("nllb-moe", "moe_eval_capacity_token_fraction", -1.0), ("m2m100", "pad_token_id", 0)],
)  # fmt: skip
def test_what_weft_has_no_form_for_is_refused(family, field, value):
    """Experts drawn at random; tokens dropped in evaluation; positions that do not begin at 2, which is the pad's + 1."""
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        reference(family, **{field: value}).converted()


OPUS_MT = {"decoder_start_token_id": 58100, "pad_token_id": 58100}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "width", "heads", "vocabulary", "lengths", "tokens"),
    [("bart", 768, 12, 50265, (300, 60), {}), ("marian", 512, 8, 58101, (512, 512), OPUS_MT)],
    ids=["bart-base", "opus-mt"],
)
def test_published_sizes(family, width, heads, vocabulary, lengths, tokens):
    sizes = {"layers": 6, "attention_heads": heads, "ffn_dim": 4 * width}
    fields = {f"{stack}_{name}": size for name, size in sizes.items() for stack in ("encoder", "decoder")}
    fields |= {"d_model": width, "vocab_size": vocabulary, "max_position_embeddings": 1024, "std": width**-0.5}
    one = reference(family, lengths=lengths, **fields, **tokens)
    assert error(one) <= 1
    with torch.no_grad():
        assert one.converted().build().generate(**one.generation).tolist() == one.written(one.module).tolist()

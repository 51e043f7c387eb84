"""transformers' BART family with random weights, and the Weft model made of each: the same numbers and the same text.

transformers 5.23 sends the tokens of NLLB-MoE to the wrong experts; that family is held against a mended one.
"""

import pytest
import torch
import transformers
from torch.func import functional_call
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts

from weftformer.conversion import SOURCES, convert, export, read_source_config, read_weights

pytestmark = pytest.mark.dtype(torch.float64)

BART = SOURCES["bart"]
# Wherever the two stacks can differ, they do.
SMALL = {
    "vocab_size": 50, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40, "encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 24,
}  # fmt: skip
MARIAN = {"pad_token_id": 45, "decoder_start_token_id": 45, "activation_function": "swish", "scale_embedding": True}
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 46}
SPARSE = {"encoder_sparse_step": 2, "decoder_sparse_step": 2, "num_experts": 4, "moe_token_dropout": 0.2}
FAMILIES = {
    "bart": ("BartForConditionalGeneration", "BartConfig", {}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", {"decoder_start_token_id": 2, "scale_embedding": True}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", {"activation_function": "relu"}),
    "marian": ("MarianMTModel", "MarianConfig", MARIAN),
    "marian, vocabularies apart": ("MarianMTModel", "MarianConfig", MARIAN | APART),
    "marian, all tables apart": ("MarianMTModel", "MarianConfig", MARIAN | APART | {"tie_word_embeddings": False}),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", {}),
    "nllb-moe": ("NllbMoeForConditionalGeneration", "NllbMoeConfig", SPARSE | {"router_bias": True}),
}
SKIP_PADS = ("m2m100", "nllb-moe")  # these count positions over real tokens, where Weft counts pads too
PADDED = {"right": ("right", "right"), "both sides": ("left", "right")}
every_family = pytest.mark.parametrize("family", FAMILIES)
AS_IN_TRANSFORMERS = NllbMoeExperts.forward


def mended_experts(self, hidden_states, router_mask, router_probs):
    """Every expert's output by its weight, which is 0 for all but two; `moe_token_dropout` as in evaluation."""
    outputs = [router_probs[:, e, None] * self[f"expert_{e}"](hidden_states) for e in range(self.num_experts)]
    return sum(outputs) * (1 - self.moe_token_dropout)


@pytest.fixture(autouse=True)
def mended(monkeypatch):
    monkeypatch.setattr(NllbMoeExperts, "forward", mended_experts)


def original(family, seed=0, scale=0.2, **fields):
    """Random values everywhere: biases start at zero and norms at one, where a mistake would not be seen."""
    model_class, config_class, own = FAMILIES[family]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**(SMALL | own | fields)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:  # sines and cosines do not
                noise = torch.randn(parameter.shape, generator=generator) * scale
                parameter.copy_(noise + 1.0 if "norm" in name and name.endswith("weight") else noise)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(generator=generator)
    return model.eval()


def converted(there, weights=None):
    return convert(weights or there.state_dict(), BART, source_config=there.config.to_dict())


def draw(config, padded="right", source_length=17, target_length=11):
    """Three sources, two of them padded, and targets that begin as in training."""
    generator = torch.Generator().manual_seed(1)
    pad, target_size = config.pad_token_id, getattr(config, "decoder_vocab_size", config.vocab_size)
    source = torch.randint(4, config.vocab_size, (3, source_length), generator=generator)
    target = torch.randint(4, target_size, (3, target_length), generator=generator)
    source[source == pad] = target[target == pad] = 4
    for row, side in enumerate(PADDED[padded], start=1):
        length = source_length // (2 * row)
        source[row, -length if side == "right" else 0 : None if side == "right" else length] = pad
    target[:, 0] = config.decoder_start_token_id
    return {"input_ids": source, "attention_mask": source.ne(pad).long(), "decoder_input_ids": target}


def tolerance(there):
    """What may be left of models of 64 bits: sines of positions and routers are of 32 in some (5e-8 were seen)."""
    return 1e-10 if there.config.model_type in ("bart", "mbart", "m2m_100") else 1e-6


def largest_error(found, expected):
    """Relative to the largest of the expected values; 0 where both are 0 everywhere."""
    return (found - expected).abs().max() / expected.abs().max().clamp(min=1e-30)


def assert_same(there, here, batch, **positions):
    """Logits and encoder states, where both are told which tokens are pads, or neither."""
    with torch.no_grad():
        expected, found = there(**batch), here(**batch, **positions)
    assert expected.logits.std() > 0.3
    assert largest_error(found.logits, expected.logits) <= tolerance(there)
    # what becomes of pads is each library's own affair
    real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    states, wanted = found.encoder_last_hidden_state[real], expected.encoder_last_hidden_state[real]
    assert largest_error(states, wanted) <= tolerance(there)


def assert_same_text(there, here, batch, beams):
    """Greedy where there is one beam.

    No token twice, or random weights write one again and again; and no pad, whose position M2M100 would not count.
    """
    settings = {"max_new_tokens": 14, "num_beams": beams, "do_sample": False, "no_repeat_ngram_size": 1,
                "suppress_tokens": [there.config.pad_token_id], "output_logits": True,
                "return_dict_in_generate": True}  # fmt: skip
    expected = there.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **settings)
    # with the original's settings, which a folder holds beside its weights
    found = here.generate(batch["input_ids"], generation_config=there.generation_config, **settings)
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert len(expected.logits) > 8
    assert (
        largest_error(torch.stack(found.logits), torch.stack(expected.logits)) <= 1e-6
    )  # which `generate` gives in 32 bits


@pytest.mark.parametrize(
    ("family", "padded"),
    [(family, padded) for family in FAMILIES for padded in PADDED if padded == "right" or family not in SKIP_PADS],
)
def test_logits_and_encoder_states(family, padded):
    there = original(family)
    assert_same(there, converted(there).build(), draw(there.config, padded))


@every_family
def test_without_a_mask_pads_are_tokens_like_others(family):
    there = original(family)
    batch = draw(there.config)
    counted = {}
    if family in SKIP_PADS:  # these give the pads no position, mask or not
        real = batch["attention_mask"]
        counted = {"position_ids": (real.cumsum(-1) - 1).clamp(min=0), "position_mask": real.bool()}
    hidden = there(**batch).logits
    del batch["attention_mask"]
    assert (there(**batch).logits - hidden).abs().max() > 1e-3
    assert_same(there, converted(there).build(), batch, **counted)


@pytest.mark.parametrize("family", SKIP_PADS)
def test_positions_over_real_tokens_can_be_given(family):
    there = original(family)
    batch = draw(there.config, "both sides")
    counted = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    assert_same(there, converted(there).build(), batch, position_ids=counted)


@pytest.mark.stays(beams=(3,))
@every_family
@pytest.mark.parametrize("beams", [1, 3])
def test_generation(family, beams):
    there = original(family)
    assert_same_text(there, converted(there).build(), draw(there.config), beams)


@every_family
def test_special_tokens(family):
    """Those that the family's configuration does not know are unknown here too."""
    there = original(family)
    here = converted(there).build()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        assert getattr(here.config, name) == getattr(there.config, name, None), name
    for name in ("forced_bos_token_id", "forced_eos_token_id"):  # read by `generate` alone
        assert getattr(here.generation_config, name) == getattr(there.generation_config, name), name


@every_family
def test_gradients(family):
    """Of the loss, for every parameter of the original: the model runs with what the table makes of them."""
    there = original(family)
    parameters = {name: p for name, p in there.named_parameters() if p.requires_grad}
    if hasattr(there, "final_logits_bias"):  # a buffer there, the bias of the head here
        parameters["final_logits_bias"] = there.final_logits_bias.requires_grad_()
    batch = draw(there.config)
    batch["labels"] = batch["decoder_input_ids"].roll(-1, 1)
    batch["labels"][:, -1] = batch["labels"][0, 5:] = -100
    conversion = converted(there, parameters)
    made, here = conversion.found.weights, conversion.build()
    assert len(made) == len(list(here.parameters()))
    expected, loss = there(**batch).loss, functional_call(here, made, kwargs=batch).loss
    torch.testing.assert_close(loss, expected, atol=tolerance(there), rtol=tolerance(there))
    wanted, got = (torch.autograd.grad(value, list(parameters.values())) for value in (expected, loss))
    rows = torch.arange(there.config.vocab_size) != there.config.pad_token_id
    for name, one, other in zip(parameters, got, wanted, strict=True):
        if name.endswith("k_proj.bias"):  # moves all logits of a query alike, so that its gradient is rounding alone
            assert max(one.abs().max(), other.abs().max()) < 1e-12, name
            continue
        if "shared" in name or "embed_tokens" in name:
            # where targets start with the pad, its row trains in Weft, and the original's `padding_idx` keeps it
            one, other = one[rows[: len(one)]], other[rows[: len(other)]]
        assert largest_error(one, other) <= tolerance(there), name


@every_family
def test_a_saved_folder_holds_one_copy_of_what_is_tied(family, tmp_path):
    there = original(family)
    there.save_pretrained(tmp_path)
    weights = read_weights(tmp_path)
    tables = {key for key in weights if key.endswith(("shared.weight", "embed_tokens.weight", "lm_head.weight"))}
    assert len(tables) == {"vocabularies apart": 2, "all tables apart": 3}.get(family.rpartition(", ")[2], 1)
    saved = convert(weights, BART, source_config=read_source_config(tmp_path))
    held = converted(there)
    assert "lm_head.weight" in there.state_dict()  # which has every copy
    assert saved.config.to_dict() == held.config.to_dict()
    assert saved.found.weights.keys() == held.found.weights.keys()
    assert all(torch.equal(tensor, held.found.weights[key]) for key, tensor in saved.found.weights.items())


@pytest.mark.parametrize("prefix", ["model.", ""], ids=["prefix", "as `BartModel` saves it"])
def test_a_file_without_the_bias_of_the_head(prefix):
    """transformers reads such files: the bias is zero."""
    there = original("bart")
    there.final_logits_bias.zero_()
    weights = {prefix + key: tensor for key, tensor in there.model.state_dict().items()}
    assert_same(there, converted(there, weights).build(), draw(there.config))


@pytest.mark.parametrize(
    ("family", "copy", "of"),
    [("bart", f"{place}.weight", "model.shared.weight")
     for place in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens")]
    + [("marian, vocabularies apart", "lm_head.weight", "model.decoder.embed_tokens.weight")],
)  # fmt: skip
def test_a_copy_that_differs_is_refused(family, copy, of):
    there = original(family)
    weights = there.state_dict()
    weights[copy] = weights[copy] + 1e-3
    with pytest.raises(ValueError, match=f"{copy} differs from {of}"):
        converted(there, weights)


@pytest.mark.parametrize("source_config", [None, {}, {"model_type": "t5"}, {"model_type": "blenderbot"}])
def test_the_family_has_to_be_told(source_config):
    there = original("bart")
    given = source_config and there.config.to_dict() | source_config
    with pytest.raises(ValueError, match=r"model_type=.* is none of bart, mbart, marian, pegasus, m2m_100, nllb-moe"):
        convert(there.state_dict(), BART, source_config=given)


def test_a_head_of_its_own():
    there = original("bart", tie_word_embeddings=False)
    for stack in (there.model.encoder, there.model.decoder):  # 5.23 parts them too, which no published model does
        stack.embed_tokens.weight = there.model.shared.weight
    here = converted(there).build()
    assert not here.config.tie_word_embeddings
    assert_same(there, here, draw(there.config))
    assert torch.equal(export(here, BART, there.config.to_dict())["lm_head.weight"], there.lm_head.weight)


@every_family
def test_the_way_back(family):
    there = original(family)
    back = export(converted(there).build(), BART, there.config.to_dict())
    other = original(family, seed=1)
    keys = other.load_state_dict(back, strict=False)
    positions = [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    assert keys.missing_keys == (positions if family.startswith(("marian", "pegasus")) else [])  # sines and cosines
    assert keys.unexpected_keys == []
    if family in ("bart", "mbart"):  # two rows that are never read
        for key in positions:
            assert back[key][:2].eq(0).all() and torch.equal(back[key][2:], there.state_dict()[key][2:])
    batch = draw(there.config)
    with torch.no_grad():
        assert largest_error(other(**batch).logits, there(**batch).logits) <= tolerance(there)


@pytest.mark.stays(bias=(True,), first=(True,))
@pytest.mark.stays(fields=({},))
@pytest.mark.parametrize("bias", [True, False], ids=["router bias", "no router bias"])
@pytest.mark.parametrize("first", [True, False], ids=["normalised first", "normalised last"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"moe_token_dropout": 0.0}, {"encoder_sparse_step": 0, "decoder_sparse_step": 3}, {"num_experts": 5},
     {"batch_prioritized_routing": True}, {"router_ignore_padding_tokens": True}],
    ids=str,
)  # fmt: skip
def test_settings_of_nllb_moe(bias, first, fields):
    there = original("nllb-moe", router_bias=bias, normalize_router_prob_before_dropping=first, **fields)
    assert_same(there, converted(there).build(), draw(there.config))


def test_nllb_moe_as_transformers_has_it_is_another_model(monkeypatch):
    """When this fails, transformers is mended: what stands in for it here, and the words about 5.23, can go."""
    there = original("nllb-moe")
    batch = draw(there.config)
    with torch.no_grad():
        mended = there(**batch).logits
        monkeypatch.setattr(NllbMoeExperts, "forward", AS_IN_TRANSFORMERS)
        assert largest_error(there(**batch).logits, mended) > 1e-2


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("nllb-moe", "second_expert_policy", "random"), ("nllb-moe", "moe_eval_capacity_token_fraction", 0.25),
     ("nllb-moe", "moe_eval_capacity_token_fraction", -1.0), ("m2m100", "pad_token_id", 0)],
)  # fmt: skip
def test_what_weft_has_no_form_for_is_refused(family, field, value):
    """Experts drawn at random; tokens dropped in evaluation; positions that do not begin at 2, which is the pad's + 1."""
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        converted(original(family, **{field: value}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "width", "heads", "vocabulary", "start", "lengths"),
    [("bart", 768, 12, 50265, 2, (300, 60)), ("marian", 512, 8, 58101, 58100, (512, 512))],
    ids=["bart-base", "opus-mt"],
)
def test_published_sizes(family, width, heads, vocabulary, start, lengths):
    sizes = {"layers": 6, "attention_heads": heads, "ffn_dim": 4 * width}
    fields = {f"{stack}_{name}": size for name, size in sizes.items() for stack in ("encoder", "decoder")}
    fields |= {"d_model": width, "vocab_size": vocabulary, "max_position_embeddings": 1024}
    fields |= {"decoder_start_token_id": start} | ({"pad_token_id": start} if family == "marian" else {})
    there = original(family, scale=width**-0.5, **fields)
    here, batch = converted(there).build(), draw(there.config, "right", *lengths)
    assert_same(there, here, batch)
    assert_same_text(there, here, batch, beams=2)

"""transformers' T5 family with random weights, and the Weft model made of each: the same numbers and the same text."""

import json

import pytest
import torch
import transformers
from torch import nn
from torch.func import functional_call

from weftformer.conversion import SOURCES, convert, export, read_source_config, read_weights

pytestmark = pytest.mark.dtype(torch.float64)

T5 = SOURCES["t5"]
# Heads that are not as wide together as the model; more layers in the decoder; a distance that the sequences exceed.
SMALL = {
    "vocab_size": 50, "d_model": 32, "d_kv": 10, "num_heads": 4, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# class, fields of its configuration, and whether the head is a table of its own
FAMILIES = {
    "t5": ("T5", {}, False),
    "t5, own head": ("T5", {}, True),
    "t5 1.1": ("T5", V1_1, False),
    "t5 1.1, own head": ("T5", V1_1, True),
    "ul2": ("T5", V1_1 | {"feed_forward_proj": "gated-silu"}, True),
    "mt5": ("MT5", {}, False),
    "mt5, own head": ("MT5", {}, True),
}
PADDED = {"right": ("right", "right"), "both sides": ("left", "right")}
every_family = pytest.mark.parametrize("family", FAMILIES)


def original(family, seed=0, sizes=SMALL):
    """Random values everywhere: norms start at one, where a mistake would not be seen.

    Little noise: T5 does not scale its logits down, and where they are large a softmax is a choice, in which the last
    bits decide and a comparison to 1e-5 would say nothing. The relative biases take more of it, and need it to count.
    """
    name, fields, has_own_head = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**(sizes | fields))
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if has_own_head:
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.shared.weight))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (1.0 if "relative_attention_bias" in key else 0.05))
    return model.eval()


def converted(there, weights=None):
    return convert(weights or there.state_dict(), T5, source_config=there.config.to_dict())


def draw(padded="right", vocabulary=50, source_length=30, target_length=25):
    """Three sources, two of them padded, and targets that begin as in training."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, vocabulary, (3, source_length), generator=generator)
    target = torch.randint(2, vocabulary, (3, target_length), generator=generator)
    for row, side in enumerate(PADDED[padded], start=1):
        length = source_length // (2 * row)
        source[row, -length if side == "right" else 0 : None if side == "right" else length] = 0
    target[:, 0] = 0
    return {"input_ids": source, "attention_mask": source.ne(0).long(), "decoder_input_ids": target}


def largest_error(found, expected):
    """Relative to the largest of the expected values."""
    return (found - expected).abs().max() / expected.abs().max()


def assert_same(there, here, batch):
    """Logits and encoder states, where both are told which tokens are pads."""
    with torch.no_grad():
        expected, found = there(**batch), here(**batch)
    assert expected.logits.std() > 0.1
    assert largest_error(found.logits, expected.logits) <= 1e-5
    real = batch["attention_mask"].bool()  # what becomes of pads is each library's own affair
    states, wanted = found.encoder_last_hidden_state[real], expected.encoder_last_hidden_state[real]
    assert largest_error(states, wanted) <= 1e-5


def assert_same_text(there, here, batch, beams):
    """Greedy where there is one beam; no token twice, or random weights write one again and again."""
    settings = {"max_new_tokens": 20, "min_new_tokens": 20, "num_beams": beams, "do_sample": False, "no_repeat_ngram_size": 1,
                "output_logits": True, "return_dict_in_generate": True}  # fmt: skip
    # the cache that 5.23 makes itself has as many layers as the encoder, and the decoder may have more
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    expected = there.generate(
        batch["input_ids"], attention_mask=batch["attention_mask"], past_key_values=cache, **settings
    )
    short = here.generate(batch["input_ids"], **settings)
    assert short.sequences.tolist() == expected.sequences.tolist()
    # The plain path sums in the original's order; T5's unscaled logits magnify another order's rounding.
    found = here.generate(batch["input_ids"], **settings, cache_implementation="dynamic")
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert len(expected.logits) > SMALL["relative_attention_max_distance"]
    assert largest_error(torch.stack(found.logits), torch.stack(expected.logits)) <= 1e-5


@pytest.mark.stays(padded=("both sides",))
@every_family
@pytest.mark.parametrize("padded", PADDED)
def test_logits_and_encoder_states(family, padded):
    there = original(family)
    here = converted(there).build()
    scales = FAMILIES[family][0] == "T5" and "tie_word_embeddings" not in FAMILIES[family][1]
    assert here.config.tie_word_embeddings == (not scales and not FAMILIES[family][2])
    assert_same(there, here, draw(padded))


@pytest.mark.stays(beams=(3,))
@every_family
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_generation(family, beams):
    there = original(family)
    assert_same_text(there, converted(there).build(), draw(), beams)


@every_family
def test_gradients(family):
    """Of the loss, for every parameter of the original: the model runs with what the table makes of them.

    So a parameter that has several copies in Weft gets the sum of theirs.
    """
    there = original(family)
    parameters = dict(there.named_parameters())
    batch = draw()
    batch["labels"] = batch["decoder_input_ids"].roll(-1, 1)
    batch["labels"][:, -1] = batch["labels"][0, 15:] = -100
    conversion = converted(there, parameters)
    here = conversion.build()
    assert len(list(here.parameters())) == len(conversion.found.weights)
    expected, loss = there(**batch).loss, functional_call(here, conversion.found.weights, kwargs=batch).loss
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    wanted, got = (torch.autograd.grad(value, list(parameters.values())) for value in (expected, loss))
    for name, one, other in zip(parameters, got, wanted, strict=True):
        assert largest_error(one, other) <= 5e-5, name


@every_family
def test_a_saved_folder(family, tmp_path):
    """It holds one copy of what is tied, and the field that says whether the output is scaled."""
    there = original(family)
    there.save_pretrained(tmp_path)
    weights = read_weights(tmp_path)
    assert ("lm_head.weight" in weights) == FAMILIES[family][2]
    assert "encoder.embed_tokens.weight" not in weights
    saved, held = convert(weights, T5, source_config=read_source_config(tmp_path)), converted(there)
    assert saved.config.to_dict() == held.config.to_dict()
    assert saved.found.weights.keys() == held.found.weights.keys()
    assert all(torch.equal(tensor, held.found.weights[key]) for key, tensor in saved.found.weights.items())


@pytest.mark.parametrize("filled", [True, False], ids=["defaults filled in", "as it is"])
def test_a_configuration_as_published(tmp_path, filled):
    """T5 1.1 and Flan-T5 say `tie_word_embeddings: false`, which transformers reads as: the output is not scaled."""
    there = original("t5 1.1, own head")
    published = {"model_type": "t5"} | SMALL | V1_1
    published |= {"dense_act_fn": "gelu_new", "is_gated_act": True, "layer_norm_epsilon": 1e-6, "dropout_rate": 0.1,
                  "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published), encoding="utf-8")
    source_config = read_source_config(tmp_path) if filled else published
    assert_same(there, convert(there.state_dict(), T5, source_config=source_config).build(), draw())


def test_a_bias_that_some_files_hold_and_nothing_reads():
    """The first T5s were published with one for cross-attention; transformers ignores it when it loads them."""
    there = original("t5")
    key = "decoder.block.0.layer.{}.relative_attention_bias.weight"
    weights = there.state_dict()
    weights[key.format("1.EncDecAttention")] = torch.randn_like(weights[key.format("0.SelfAttention")])
    assert_same(there, converted(there, weights).build(), draw())


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_copy_that_differs_is_refused(stack):
    there = original("t5")
    weights = there.state_dict()
    copy = f"{stack}.embed_tokens.weight"
    weights[copy] = weights[copy] + 1e-3
    with pytest.raises(ValueError, match=f"{copy} differs from shared.weight"):
        converted(there, weights)


@pytest.mark.parametrize("source_config", [None, {}, {"model_type": "bart"}, {"model_type": "umt5"}])
def test_the_family_has_to_be_told(source_config):
    there = original("t5")
    given = source_config and there.config.to_dict() | source_config
    with pytest.raises(ValueError, match=r"model_type=.* is none of t5, mt5"):
        convert(there.state_dict(), T5, source_config=given)


def test_each_family_knows_its_own_keys():
    weights = original("t5").state_dict()
    with pytest.raises(ValueError, match="not the keys of transformers' BART family"):
        convert(weights, SOURCES["bart"], source_config={"model_type": "bart"})


@every_family
def test_the_way_back(family):
    there = original(family)
    back = export(converted(there).build(), T5, there.config.to_dict())
    other = original(family, seed=1)
    keys = other.load_state_dict(back, strict=False)
    # a head that is the embeddings times a factor goes back as the embeddings alone
    assert keys.missing_keys == (["lm_head.weight"] if family == "t5" else [])
    assert keys.unexpected_keys == []
    batch = draw()
    with torch.no_grad():
        assert largest_error(other(**batch).logits, there(**batch).logits) <= 1e-5


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_relative_biases_that_went_apart_have_no_way_back(stack):
    there = original("t5")
    here = converted(there).build()
    with torch.no_grad():
        getattr(here.model, stack).layers[1].self_attn.relative_bias.add_(1.0)
    with pytest.raises(
        ValueError, match=f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight is one tensor for all"
    ):
        export(here, T5, there.config.to_dict())


def test_a_scaled_head_that_went_apart_goes_back_as_a_head_of_its_own():
    there = original("t5")
    here = converted(there).build()
    with torch.no_grad():
        here.lm_head.weight.add_(torch.randn_like(here.lm_head.weight) * 0.1)
    other = original("t5, own head", seed=1)
    assert not other.load_state_dict(export(here, T5, there.config.to_dict()), strict=False).missing_keys
    assert_same(other, here, draw())


@pytest.mark.slow
def test_the_size_of_t5_small():
    there = original("t5", sizes={"decoder_start_token_id": 0})
    here = converted(there).build()
    # beyond the distance of 128 where the last bucket begins
    batch = draw(vocabulary=there.config.vocab_size, source_length=400, target_length=200)
    assert_same(there, here, batch)
    assert_same_text(there, here, batch, beams=2)

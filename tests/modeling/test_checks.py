"""Bad input is refused by type and field before any layer has run, in the first batch and in later ones."""

import pytest
import torch

from weftformer import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel

from ..models import tiny_model

SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}
IDS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 0]])
STATES = torch.zeros(2, 4, 16)
GOOD = {"input_ids": IDS, "decoder_input_ids": IDS}
NEEDED = {
    WeftEncoder: {"input_ids": IDS},
    WeftDecoder: {"input_ids": IDS, "encoder_hidden_states": STATES},
    WeftModel: GOOD,
    WeftForConditionalGeneration: GOOD,
}
TABLES = {
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none"},
    "additive": {"self_attention_position_type": "additive"},
    "additive across": {"self_attention_position_type": "none", "cross_attention_position_type": "additive"},
}
SHORT = {"max_source_positions": 6, "max_target_positions": 5}


def check(model, field, inputs, after_encoder=False):
    """Check that a call is refused, with the name of the field, before any layer has run, or any of the decoder."""
    calls = []
    layers = model.model.decoder.layers if after_encoder else model
    for module in layers.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError) as error:
        model(**inputs)
    assert field in str(error.value)
    assert not calls


def check_values(field, inputs, after_encoder=False, **fields):
    """Check that the first batch and a later one are refused."""
    model = tiny_model(**fields)
    check(model, field, inputs, after_encoder)
    model(**GOOD, labels=IDS)
    check(model, field, inputs, after_encoder)


BAD_IDS = {
    "too high": torch.tensor([[5, 31]] * 2),
    "negative": torch.tensor([[5, -1]] * 2),
    "floats": torch.tensor([[5.0, 6.0]] * 2),
    "one dimension": torch.tensor([5, 6]),
    "empty": torch.zeros(2, 0, dtype=torch.long),
}


@pytest.mark.parametrize("case", BAD_IDS)
def test_bad_ids_and_labels(case):
    ids = BAD_IDS[case]
    check_values("`input_ids`", {"input_ids": ids, "decoder_input_ids": IDS})
    check_values("`decoder_input_ids`", {"input_ids": IDS, "decoder_input_ids": ids}, after_encoder=True)
    for settings in ({}, {"chunked_loss": True}, {"logits_to_keep": 2}):
        inputs = {"input_ids": IDS, "decoder_input_ids": torch.ones_like(ids), "labels": ids}
        check_values("`labels`", inputs | settings)


EMBEDS = torch.zeros(2, 4, 16)
# class, fields, what is given besides the least that the class needs (None takes it away), words of the message
OTHERS = [
    (WeftForConditionalGeneration, SEPARATE, {"decoder_input_ids": torch.full((2, 1), 23)}, "`decoder_input_ids`"),
    (WeftForConditionalGeneration, SEPARATE, {"decoder_input_ids": None, "labels": torch.full((2, 1), 23)}, "`labels`"),
    (WeftForConditionalGeneration, {}, {"labels": torch.full((2, 3), 5)}, "`labels`"),
    (WeftForConditionalGeneration, {"decoder_start_token_id": None}, {"decoder_input_ids": None, "labels": IDS},
     "without `decoder_start_token_id`"),
    (WeftModel, {"pad_token_id": None}, {"decoder_input_ids": None}, "without `pad_token_id`"),
    (WeftEncoder, {}, {"input_ids": None}, "got neither"),
    (WeftEncoder, {}, {"inputs_embeds": EMBEDS}, "got both"),
    (WeftDecoder, {}, {"input_ids": None}, "`decoder_inputs_embeds`: got neither"),
    (WeftModel, SEPARATE, {"decoder_input_ids": None}, "has its own vocabulary"),
    (WeftModel, {}, {"decoder_input_ids": None, "input_ids": None, "inputs_embeds": EMBEDS}, "Give `decoder_input_ids`"),
    (WeftEncoder, {}, {"input_ids": None, "inputs_embeds": torch.zeros(2, 4, 12)}, "`inputs_embeds`"),
    (WeftDecoder, {}, {"input_ids": None, "inputs_embeds": torch.zeros(2, 0, 16)}, "`decoder_inputs_embeds`"),
    (WeftDecoder, {}, {"encoder_hidden_states": torch.zeros(2, 4, 12)}, "`encoder_hidden_states`"),
    (WeftDecoder, {}, {"encoder_hidden_states": torch.zeros(3, 4, 16)}, "`encoder_hidden_states`"),
    (WeftEncoder, {"num_condition_features": 3}, {"condition_values": torch.ones(2, 2)}, "`condition_values`"),
    (WeftEncoder, {}, {"condition_values": torch.ones(2, 1)}, "num_condition_features=0"),
    (WeftEncoder, {}, {"position_ids": torch.arange(3)}, "`position_ids` has shape (3,)"),
    (WeftDecoder, {}, {"position_ids": torch.zeros(1, 2, 4)}, "`position_ids` has shape (1, 2, 4)"),
    (WeftDecoder, {}, {"encoder_position_ids": torch.arange(3)}, "`encoder_position_ids`"),
    (WeftDecoder, {"cross_attention_position_type": "additive", **SHORT},
     {"encoder_hidden_states": torch.zeros(2, 7, 16)}, "7 tokens is longer"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "inputs", "words"), OTHERS)
def test_other_bad_inputs(kind, fields, inputs, words):
    inputs = {name: value for name, value in (NEEDED[kind] | inputs).items() if value is not None}
    check(tiny_model(kind, **fields), words, inputs, after_encoder=words == "`decoder_input_ids`")


BAD_MASKS = [(2, 3), (3, 4), (4,), (2, 1, 4, 5), (2, 1, 3, 4), (3, 1, 4, 4), (2, 3, 4, 4)]


@pytest.mark.parametrize("name", ["attention_mask", "decoder_attention_mask", "encoder_attention_mask"])
def test_masks_of_a_wrong_shape(name):
    for shape in BAD_MASKS:
        inputs = GOOD | {name: torch.ones(shape).bool()}
        check(tiny_model(), f"`{name}` has shape {shape}", inputs, after_encoder=name != "attention_mask")
    if name == "decoder_attention_mask":  # one of the new tokens alone
        model = tiny_model()
        inputs = {name: torch.ones(2, 1), "decoder_input_ids": IDS[:, :1], "cache": model(**GOOD).cache}
        check(model, f"`{name}`", GOOD | inputs, after_encoder=True)


@pytest.mark.parametrize("kind", NEEDED)
def test_unknown_keywords_are_refused_and_those_of_transformers_pass(kind):
    model = tiny_model(kind)
    check(model, "Did you mean `attention_mask`?", NEEDED[kind] | {"attention_msk": 1})
    check(model, "unexpected keyword `qqqq`", NEEDED[kind] | {"qqqq": 1})
    passed = {"output_hidden_states": True, "return_dict": True, "use_cache": False}
    assert torch.equal(model(**NEEDED[kind], **passed)[0], model(**NEEDED[kind])[0])


@pytest.mark.parametrize("kind", [WeftModel, WeftForConditionalGeneration])
def test_decoder_input_defaults_to_the_shifted_source(kind):
    for fields in ({}, {"share_encoder_decoder_embeddings": False}):
        model = tiny_model(kind, **fields)
        shifted = torch.tensor([[1, 5, 6, 7], [1, 9, 4, 3]])
        assert torch.equal(model(input_ids=IDS)[0], model(input_ids=IDS, decoder_input_ids=shifted)[0])


@pytest.mark.parametrize("kind", TABLES)
def test_positions_outside_a_table(kind):
    fields = TABLES[kind] | SHORT
    long, row = torch.full((1, 9), 5), IDS[:1]
    for field, inputs in (
        ("max_source_positions", {"input_ids": long, "decoder_input_ids": row}),
        ("max_target_positions", {"input_ids": row, "decoder_input_ids": long}),
        ("max_target_positions", {"input_ids": row, "labels": long}),
    ):
        check_values(f"`{field}`", inputs, after_encoder=field == "max_target_positions", **fields)
    for position in (6, -1):
        inputs = {"input_ids": row, "decoder_input_ids": row, "position_ids": torch.tensor([0, 1, 2, position])}
        check_values(f"Position {position} is outside", inputs, **fields)
    model = tiny_model(**fields)
    cache = model(input_ids=long[:, :6], decoder_input_ids=long[:, :5], use_cache=True).cache
    with pytest.raises(ValueError, match="`max_target_positions`"):
        model(input_ids=row, decoder_input_ids=row[:, :1], cache=cache)


def test_left_pads_take_no_row_of_the_table():
    model = tiny_model(**TABLES["learned"], max_target_positions=3)
    for _ in range(2):
        found = model(**GOOD, decoder_attention_mask=torch.tensor([[0, 1, 1, 1]] * 2))
    alone = model(input_ids=IDS, decoder_input_ids=IDS[:, 1:]).logits
    torch.testing.assert_close(found.logits[:, 1:], alone)
    with pytest.raises(ValueError, match="A sequence of 4 tokens is longer"):
        model(**GOOD, decoder_attention_mask=torch.ones(2, 4))

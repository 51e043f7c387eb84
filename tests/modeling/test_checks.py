"""Bad input is refused before any computation, with a message about the given and the allowed values."""

import pytest
import torch

from weftformer import WeftConfig, WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel

from ..models import TINY_CONFIG, tiny_model

SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["dense", "sparse"], "num_experts": 4}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}
IDS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 0]])
STATES = torch.zeros(2, 4, 16)
GOOD = {"input_ids": IDS, "decoder_input_ids": IDS}
GIVEN = {
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


def check(model, words, given, after_encoder=False):
    """Check that the call is refused with these words before any layer has run, or before any layer of the decoder."""
    calls = []
    for module in (model.model.decoder.layers if after_encoder else model).modules():
        if isinstance(module, torch.nn.Linear) or (isinstance(module, torch.nn.Embedding) and not after_encoder):
            module.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError) as error:
        model(**given)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert not calls


BAD_IDS = {
    "one too high": (torch.tensor([[5, 31]] * 2), ["the id 31", "31 tokens (0 to 30)", "tokenizer", "-100"]),
    "negative": (torch.tensor([[5, -1]] * 2), ["the id -1", "31 tokens"]),
    "marks of labels": (torch.tensor([[5, -100]] * 2), ["the id -100", "Only labels may contain -100"]),
    "floats": (torch.tensor([[5.0, 6.0]]), ["must be integers of shape (batch, length)", "(1, 2)", "torch.float32"]),
    "booleans": (torch.tensor([[True, False]]), ["must be integers", "torch.bool"]),
    "one dimension": (torch.tensor([5, 6]), ["must be integers of shape (batch, length)", "(2,)"]),
    "no rows": (torch.zeros(0, 4, dtype=torch.long), ["is empty", "(0, 4)", "at least 1"]),
    "no columns": (torch.zeros(2, 0, dtype=torch.long), ["is empty", "(2, 0)"]),
}
BAD_LABELS = {
    "one too high": (torch.tensor([[5, 31], [1, 1]]), ["contains the id 31", "31 tokens (0 to 30)", "Use -100"]),
    "negative": (torch.tensor([[5, -1], [1, 1]]), ["contains the id -1"]),
    "almost the mark": (torch.tensor([[5, -101], [1, -100]]), ["contains the id -101"]),
    "floats": (torch.tensor([[5.0], [6.0]]), ["must be integers of shape (batch, length)", "torch.float32"]),
    "one dimension": (torch.tensor([5, 6]), ["must be integers of shape (batch, length)", "(2,)"]),
    "no columns": (torch.zeros(2, 0, dtype=torch.long), ["is empty"]),
}


EMBEDS = torch.zeros(2, 4, 16)
OTHERS = {
    # class, fields, what is given besides the least that the class needs (None takes it away), words of the message
    "target ids of another vocabulary": (
        WeftForConditionalGeneration, SEPARATE, {"decoder_input_ids": torch.full((2, 1), 23)},
        ["`decoder_input_ids` contains the id 23", "23 tokens (0 to 22)"]),
    "labels of another vocabulary": (
        WeftForConditionalGeneration, SEPARATE, {"decoder_input_ids": None, "labels": torch.full((2, 1), 23)},
        ["the id 23", "23 tokens (0 to 22)"]),
    "labels for fewer tokens": (
        WeftForConditionalGeneration, {}, {"labels": torch.full((2, 3), 5)}, ["`labels`", "(2, 3)", "(2, 4)"]),
    "no start token": (
        WeftForConditionalGeneration, {"decoder_start_token_id": None}, {"decoder_input_ids": None, "labels": IDS},
        ["`decoder_start_token_id` is None", "cannot be shifted"]),
    "no pad token": (
        WeftModel, {"pad_token_id": None}, {"decoder_input_ids": None}, ["`pad_token_id` is None", "cannot be shifted"]),
    "no source": (WeftEncoder, {}, {"input_ids": None}, ["either `input_ids` or `inputs_embeds`", "got neither"]),
    "two sources": (WeftEncoder, {}, {"inputs_embeds": EMBEDS}, ["either `input_ids` or `inputs_embeds`", "got both"]),
    "no target": (
        WeftDecoder, {}, {"input_ids": None}, ["either `decoder_input_ids` or `decoder_inputs_embeds`", "got neither"]),
    "no target of its own vocabulary": (
        WeftModel, SEPARATE, {"decoder_input_ids": None}, ["Give `decoder_input_ids`", "its own vocabulary"]),
    "nothing to be shifted": (
        WeftModel, {}, {"decoder_input_ids": None, "input_ids": None, "inputs_embeds": EMBEDS},
        ["Give `decoder_input_ids`", "are not given either"]),
    "embeddings of another width": (
        WeftEncoder, {}, {"input_ids": None, "inputs_embeds": torch.zeros(2, 4, 12)},
        ["`inputs_embeds` must have shape (batch, length, 16), with batch and length at least 1", "(2, 4, 12)"]),
    "no embeddings": (
        WeftDecoder, {}, {"input_ids": None, "inputs_embeds": torch.zeros(2, 0, 16)},
        ["`decoder_inputs_embeds` must have shape (batch, length, 16)", "(2, 0, 16)"]),
    "states of another width": (
        WeftDecoder, {}, {"encoder_hidden_states": torch.zeros(2, 4, 12)},
        ["`encoder_hidden_states` must have shape (2, length, 16)", "(2, 4, 12)"]),
    "states of another batch": (
        WeftDecoder, {}, {"encoder_hidden_states": torch.zeros(3, 4, 16)}, ["(2, length, 16)", "(3, 4, 16)"]),
    "conditions in one dimension": (
        WeftEncoder, {"num_condition_features": 3}, {"condition_values": torch.ones(3)},
        ["`condition_values` has shape (3,), but must be (2, 3)"]),
    "conditions of another number": (
        WeftEncoder, {"num_condition_features": 3}, {"condition_values": torch.ones(2, 2)}, ["has shape (2, 2)"]),
    "conditions of nothing": (
        WeftEncoder, {}, {"condition_values": torch.ones(2, 1)}, ["this model has none", "num_condition_features=0"]),
    "too few positions": (
        WeftEncoder, {}, {"position_ids": torch.arange(3)}, ["`position_ids` has shape (3,), but must be (4,) or (2, 4)"]),
    "a mask of positions of another batch": (
        WeftEncoder, {}, {"position_mask": torch.ones(3, 4).bool()}, ["`position_mask` has shape (3, 4)"]),
    "three dimensions of positions": (
        WeftDecoder, {}, {"position_ids": torch.zeros(1, 2, 4)}, ["`decoder_position_ids` has shape (1, 2, 4)"]),
    "too few positions of the source": (
        WeftDecoder, {}, {"encoder_position_ids": torch.arange(3)}, ["`encoder_position_ids` has shape (3,)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_other_bad_inputs(case):
    kind, fields, given, words = OTHERS[case]
    given = {name: value for name, value in (GIVEN[kind] | given).items() if value is not None}
    check(tiny_model(kind, **fields), words, given, after_encoder="target ids" in case)


BAD_MASKS = [(2, 3), (3, 4), (4,), (2, 1, 4, 5), (2, 1, 3, 4), (3, 1, 4, 4), (2, 3, 4, 4)]


@pytest.mark.parametrize("shape", BAD_MASKS, ids=str)
@pytest.mark.parametrize("name", ["attention_mask", "decoder_attention_mask", "encoder_attention_mask"])
def test_masks_of_a_wrong_shape(shape, name):
    words = [f"`{name}` has shape {shape}, but must be (2, 4), or 4-D"]
    check(tiny_model(), words, GOOD | {name: torch.ones(shape).bool()}, after_encoder=name != "attention_mask")


def test_a_mask_of_new_tokens_alone_is_refused_over_a_filled_cache():
    model = tiny_model()
    cache = model(**GOOD, use_cache=True).cache
    given = {"decoder_input_ids": IDS[:, :1], "decoder_attention_mask": torch.ones(2, 1), "cache": cache}
    check(model, ["`decoder_attention_mask` has shape (2, 1), but must be (2, 5)"], GOOD | given, after_encoder=True)


@pytest.mark.parametrize("kind", GIVEN)
def test_keywords(kind):
    model = tiny_model(kind)
    for name, words in (
        ("attention_msk", ["unexpected keyword `attention_msk`", "Did you mean `attention_mask`?"]),
        ("position_id", ["Did you mean `position_ids`?"]),
        ("qqqq", ["unexpected keyword `qqqq`."]),
    ):
        check(model, words, GIVEN[kind] | {name: 1})
    expected = model(**GIVEN[kind])[0]
    given = {"output_hidden_states": True, "return_dict": True, "use_cache": False}  # transformers itself passes them
    assert torch.equal(model(**GIVEN[kind], **given)[0], expected)


@pytest.mark.parametrize("kind", [WeftModel, WeftForConditionalGeneration])
def test_what_the_decoder_reads_where_nothing_is_given_to_it(kind):
    """The source shifted right."""
    for fields in ({}, {"share_encoder_decoder_embeddings": False}):
        model = tiny_model(kind, **fields)
        shifted = torch.tensor([[1, 5, 6, 7], [1, 9, 4, 3]])
        assert torch.equal(model(input_ids=IDS)[0], model(input_ids=IDS, decoder_input_ids=shifted)[0])


# torch knows the shapes of grouped products of 16 bits alone
@pytest.mark.parametrize(
    "experts", [None, "batched_mm", pytest.param("grouped_mm", marks=pytest.mark.dtype(torch.bfloat16))]
)
@pytest.mark.parametrize("kind", [WeftDecoder, WeftForConditionalGeneration])
def test_meta_tensors_pass(kind, experts):
    """For counting memory and planning devices: there are no values to read."""
    with torch.device("meta"):
        model = kind(WeftConfig(**(TINY_CONFIG | ({} if experts is None else SPARSE))))
    if experts is not None:  # the loop reads how many tokens an expert has
        model.set_experts_implementation(experts)
    states = torch.empty(STATES.shape, device="meta")
    given = {name: states if value is STATES else value.to("meta") for name, value in GIVEN[kind].items()}
    assert model(**given)[0].device.type == "meta"


# --- in the first batch and in a later one


def check_values(words, given, after_encoder=False, **fields):
    """The first batch is refused before a layer runs, a later one too, and the model goes on with the next good one."""
    check(tiny_model(dropout=0.0, **fields), words, given, after_encoder)
    model = tiny_model(dropout=0.0, **fields)
    expected = model(**GOOD, labels=IDS)
    with pytest.raises(ValueError) as error:
        model(**given)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert torch.equal(model(**GOOD, labels=IDS).loss, expected.loss)


@pytest.mark.parametrize("case", BAD_IDS)
def test_bad_ids(case):
    ids, words = BAD_IDS[case]
    check_values(["`input_ids`", *words], {"input_ids": ids, "decoder_input_ids": IDS})
    check_values(["`decoder_input_ids`", *words], {"input_ids": IDS, "decoder_input_ids": ids}, after_encoder=True)


@pytest.mark.parametrize("case", BAD_LABELS)
@pytest.mark.parametrize("given", [{}, {"chunked_loss": True}, {"logits_to_keep": 2}], ids=str)
def test_bad_labels(given, case):
    labels, words = BAD_LABELS[case]
    given = given | {"input_ids": IDS, "decoder_input_ids": torch.ones_like(labels), "labels": labels}
    check_values(["`labels`", *words], given)


def test_bad_labels_of_a_later_batch_that_become_the_decoders_input():
    model = tiny_model()
    model(**GOOD, labels=IDS)
    with pytest.raises(ValueError, match=r"`decoder_input_ids` contains the id 31.*`labels` shifted right"):
        model(input_ids=IDS, labels=torch.tensor([[31, 5], [1, 1]]))


@pytest.mark.parametrize("kind", TABLES)
def test_positions_outside_a_table(kind):
    fields = TABLES[kind] | SHORT
    long, row = torch.full((1, 9), 5), IDS[:1]
    for field, given in (
        ("max_source_positions", {"input_ids": long, "decoder_input_ids": row}),
        ("max_target_positions", {"input_ids": row, "decoder_input_ids": long}),
        ("max_target_positions", {"input_ids": row, "labels": long}),
    ):
        words = ["A sequence of 9 tokens is longer", f"`{field}`"]
        check_values(words, given, after_encoder=field == "max_target_positions", **fields)
    for name in ("position_ids", "decoder_position_ids"):
        for position in (6, -1):
            given = {"input_ids": row, "decoder_input_ids": row, name: torch.tensor([0, 1, 2, position])}
            words = [f"Position {position} is outside the learned position table of"]
            check_values(words, given, after_encoder=name == "decoder_position_ids", **fields)
    tiny_model(**fields)(input_ids=long[:, :6], decoder_input_ids=long[:, :5])


@pytest.mark.parametrize("kind", ["learned", "additive"])
def test_a_step_past_the_table_is_refused(kind):
    model = tiny_model(**TABLES[kind], **SHORT)
    cache = model(**GOOD, use_cache=True).cache
    cache = model(input_ids=IDS, decoder_input_ids=IDS[:, :1], cache=cache).cache
    with pytest.raises(ValueError, match=r"A sequence of 6 tokens is longer .* 5 rows \(`max_target_positions`\)"):
        model(input_ids=IDS, decoder_input_ids=IDS[:, :1], cache=cache)


def test_left_pads_take_no_row_of_the_table():
    """The mask says where the first token stands, so that the sequence may be longer than the table."""
    model = tiny_model(**TABLES["learned"], max_target_positions=3)
    for _ in range(2):
        found = model(**GOOD, decoder_attention_mask=torch.tensor([[0, 1, 1, 1]] * 2))
    alone = model(input_ids=IDS, decoder_input_ids=IDS[:, 1:]).logits
    torch.testing.assert_close(found.logits[:, 1:], alone)
    with pytest.raises(ValueError, match="A sequence of 4 tokens is longer"):
        model(**GOOD, decoder_attention_mask=torch.ones(2, 4))


@pytest.mark.parametrize("chunked_loss", [False, True])
def test_integers_of_32_bits_are_labels_and_ids_too(chunked_loss):
    model = tiny_model().train()
    losses = []
    for kind in (torch.int64, torch.int32):
        torch.manual_seed(0)
        losses.append(model(input_ids=IDS.to(kind), labels=IDS.to(kind), chunked_loss=chunked_loss).loss)
    assert losses[0] == losses[1]

"""Bad input: refused with a message that says what was given and what is allowed, before anything is computed."""

import pytest
import torch
from transformers import BartConfig, BartModel

from weftformer import WeftConfig, WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel

from ..models import TINY_CONFIG

TINY = TINY_CONFIG | {"dropout": 0.0}
SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["dense", "sparse"], "num_experts": 4}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}
IDS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 0]])
STATES = torch.zeros(2, 4, 16)
CLASSES = [WeftEncoder, WeftDecoder, WeftModel, WeftForConditionalGeneration]


def build(kind=WeftForConditionalGeneration, **fields):
    torch.manual_seed(0)
    return kind(WeftConfig(**(TINY | fields)))


def arguments(kind) -> dict[str, torch.Tensor]:
    """What each class needs at least."""
    if kind is WeftEncoder:
        return {"input_ids": IDS}
    if kind is WeftDecoder:
        return {"input_ids": IDS, "encoder_hidden_states": STATES}
    return {"input_ids": IDS, "decoder_input_ids": IDS}


def refused(model, *words, **kwargs):
    """The call is refused with these words, and no layer and no embedding has run."""
    calls = []
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            module.register_forward_hook(lambda module, args, output: calls.append(module))
    with pytest.raises(ValueError) as error:
        model(**kwargs)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert not calls


def refused_by_decoder(model, *words, **kwargs):
    """As `refused`, where the encoder has run before the decoder's input is read."""
    calls = []
    target = model.model.decoder
    for module in [*target.layers.modules(), getattr(model, "lm_head", None)]:
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, args, output: calls.append(module))
    with pytest.raises(ValueError) as error:
        model(**kwargs)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert not calls


BAD_IDS = {
    "one too high": (torch.tensor([[5, 31]]), ["the id 31", "31 tokens (0 to 30)", "tokenizer", "-100"]),
    "far too high": (torch.tensor([[10**9, 5]]), ["the id 1000000000"]),
    "negative": (torch.tensor([[5, -1]]), ["the id -1", "31 tokens"]),
    "marks of labels": (torch.tensor([[5, -100]]), ["the id -100", "Only labels may contain -100"]),
    "floats": (torch.tensor([[5.0, 6.0]]), ["must be integers of shape (batch, length)", "(1, 2)", "torch.float32"]),
    "booleans": (torch.tensor([[True, False]]), ["must be integers", "torch.bool"]),
    "one dimension": (torch.tensor([5, 6]), ["must be integers of shape (batch, length)", "(2,)"]),
    "three dimensions": (torch.zeros(1, 2, 3, dtype=torch.long), ["(1, 2, 3)"]),
    "no rows": (torch.zeros(0, 4, dtype=torch.long), ["is empty", "(0, 4)", "at least 1"]),
    "no columns": (torch.zeros(2, 0, dtype=torch.long), ["is empty", "(2, 0)"]),
}


@pytest.mark.parametrize("case", BAD_IDS)
@pytest.mark.parametrize("kind", [WeftEncoder, WeftModel, WeftForConditionalGeneration])
def test_bad_source_ids(case, kind):
    ids, words = BAD_IDS[case]
    refused(build(kind), "`input_ids`", *words, **(arguments(kind) | {"input_ids": ids}))


@pytest.mark.parametrize("case", BAD_IDS)
def test_bad_decoder_ids(case):
    ids, words = BAD_IDS[case]
    refused(build(WeftDecoder), "`decoder_input_ids`", *words, input_ids=ids, encoder_hidden_states=STATES)
    refused_by_decoder(build(), "`decoder_input_ids`", *words, input_ids=IDS, decoder_input_ids=ids)


def test_each_side_has_its_own_vocabulary():
    model = build(**SEPARATE)
    model(input_ids=torch.tensor([[30]]), decoder_input_ids=torch.tensor([[22]]))
    refused_by_decoder(
        model,
        "`decoder_input_ids` contains the id 23",
        "23 tokens (0 to 22)",
        input_ids=torch.tensor([[30]]),
        decoder_input_ids=torch.tensor([[23]]),
    )
    refused(build(**SEPARATE), "the id 23", "23 tokens (0 to 22)", input_ids=IDS, labels=torch.tensor([[23], [1]]))


BAD_LABELS = {
    "one too high": (torch.tensor([[5, 31], [1, 1]]), ["contains the id 31", "31 tokens (0 to 30)", "Use -100"]),
    "negative": (torch.tensor([[5, -1], [1, 1]]), ["contains the id -1"]),
    "almost the mark": (torch.tensor([[5, -101], [1, -100]]), ["contains the id -101"]),
    "floats": (torch.tensor([[5.0], [6.0]]), ["must be integers of shape (batch, length)", "torch.float32"]),
    "one dimension": (torch.tensor([5, 6]), ["must be integers of shape (batch, length)", "(2,)"]),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels(case):
    labels, words = BAD_LABELS[case]
    refused(build(), "`labels`", *words, input_ids=IDS, labels=labels)


@pytest.mark.parametrize("labels", [torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, 3, dtype=torch.long)])
def test_empty_labels(labels):
    refused_by_decoder(build(), "is empty", input_ids=IDS[: max(labels.shape[0], 1)], labels=labels)


@pytest.mark.parametrize("labels", [torch.full((3, 4), 5), torch.full((2, 3), 5)], ids=["batch", "length"])
def test_labels_that_do_not_fit_the_decoder_input(labels):
    refused_by_decoder(
        build(), "`labels`", str(tuple(labels.shape)), input_ids=IDS, decoder_input_ids=IDS, labels=labels
    )


@pytest.mark.parametrize("field", ["decoder_start_token_id", "pad_token_id"])
def test_labels_cannot_be_shifted_without_special_tokens(field):
    model = build(**{field: None})
    refused(model, f"`{field}` is None", "cannot be shifted", input_ids=IDS, labels=IDS)


def test_neither_or_both_of_ids_and_embeddings():
    embeds = torch.zeros(2, 4, 16)
    refused(build(WeftEncoder), "either `input_ids` or `inputs_embeds`", "got neither")
    refused(build(WeftEncoder), "either `input_ids` or `inputs_embeds`", "both", input_ids=IDS, inputs_embeds=embeds)
    words = ["either `decoder_input_ids` or `decoder_inputs_embeds`"]
    refused(build(WeftDecoder), *words, "got neither", encoder_hidden_states=STATES)
    refused_by_decoder(build(), *words, "got both", input_ids=IDS, decoder_input_ids=IDS, decoder_inputs_embeds=embeds)


@pytest.mark.parametrize("kind", [WeftModel, WeftForConditionalGeneration])
def test_what_the_decoder_reads_where_nothing_is_given_to_it(kind):
    """As BART, which reads the source shifted right; it must be of the target's vocabulary."""
    embeds = torch.zeros(2, 4, 16)
    refused(build(kind, **SEPARATE), "Give `decoder_input_ids`", "its own vocabulary", input_ids=IDS)
    refused(build(kind), "Give `decoder_input_ids`", "are not given either", inputs_embeds=embeds)
    refused(build(kind, pad_token_id=None), "`pad_token_id` is None", "cannot be shifted", input_ids=IDS)
    for fields in ({}, {"share_encoder_decoder_embeddings": False}):
        model = build(kind, **fields).eval()
        shifted = torch.tensor([[model.config.decoder_start_token_id, 5, 6, 7], [1, 9, 4, 3]])
        assert torch.equal(model(input_ids=IDS)[0], model(input_ids=IDS, decoder_input_ids=shifted)[0])
    bart = {"d_model": 16, "vocab_size": 31, "pad_token_id": 0, "decoder_start_token_id": 1} | {
        f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in (
            ("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))
    }  # fmt: skip
    theirs = BartModel(BartConfig(**bart)).eval()
    assert torch.equal(theirs(input_ids=IDS)[0], theirs(input_ids=IDS, decoder_input_ids=shifted)[0])


@pytest.mark.parametrize("shape", [(0, 4, 16), (2, 0, 16), (4, 16), (2, 4, 12)], ids=str)
def test_embeddings_of_a_wrong_shape(shape):
    words = ["must have shape (batch, length, 16), with batch and length at least 1", str(shape)]
    refused(build(WeftEncoder), "`inputs_embeds`", *words, inputs_embeds=torch.zeros(shape))
    given = {"inputs_embeds": torch.zeros(shape), "encoder_hidden_states": STATES}
    refused(build(WeftDecoder), "`decoder_inputs_embeds`", *words, **given)


@pytest.mark.parametrize("shape", [(3, 16), (2, 4, 12), (3, 4, 16), (2, 0, 16)], ids=str)
def test_states_of_the_encoder_of_a_wrong_shape(shape):
    """Two dimensions, another width, another batch, none at all."""
    refused_by_decoder(
        build(),
        "`encoder_hidden_states` must have shape (2, length, 16)",
        str(shape),
        input_ids=IDS,
        encoder_outputs=(torch.zeros(shape),),
        decoder_input_ids=IDS,
    )


BAD_MASKS = {
    "too short": torch.ones(2, 3),
    "too long": torch.ones(2, 5),
    "another batch": torch.ones(3, 4),
    "one dimension": torch.ones(4),
    "three dimensions": torch.ones(2, 4, 4),
    "four dimensions, other keys": torch.ones(2, 1, 4, 5).bool(),
    "four dimensions, other queries": torch.ones(2, 1, 3, 4).bool(),
    "four dimensions, another batch": torch.ones(3, 1, 4, 4).bool(),
    "four dimensions, other heads": torch.ones(2, 3, 4, 4).bool(),
}


def computed_before(model, mask_name):
    """Layers that must not have run when this mask is read."""
    return model.model.encoder.layers if mask_name == "attention_mask" else model.model.decoder.layers


@pytest.mark.parametrize("case", BAD_MASKS)
@pytest.mark.parametrize("name", ["attention_mask", "decoder_attention_mask", "encoder_attention_mask"])
def test_masks_of_a_wrong_shape(case, name):
    model, calls = build(), []
    for layer in computed_before(model, name):
        layer.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError) as error:
        model(**arguments(type(model)), **{name: BAD_MASKS[case]})
    assert f"`{name}` has shape {tuple(BAD_MASKS[case].shape)}, but must be (2, 4), or 4-D" in str(error.value)
    assert not calls


def test_a_mask_of_new_tokens_alone_is_refused_over_a_filled_cache():
    model = build()
    cache = model(input_ids=IDS, decoder_input_ids=IDS, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"`decoder_attention_mask` has shape \(2, 1\), but must be \(2, 5\)"):
        model(
            input_ids=IDS,
            decoder_input_ids=IDS[:, :1],
            decoder_attention_mask=torch.ones(2, 1),
            past_key_values=cache,
        )


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (3,), (2, 3, 1), (3, 2)], ids=str)
def test_condition_values_of_a_wrong_shape(shape):
    model, calls = build(num_condition_features=3), []
    for layer in model.model.encoder.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError) as error:
        model(input_ids=IDS, decoder_input_ids=IDS, condition_values=torch.ones(shape))
    assert f"`condition_values` has shape {shape}, but must be (2, 3)" in str(error.value)
    assert not calls


def test_condition_values_must_be_wanted():
    with pytest.raises(ValueError, match="this model has none: it was built with num_condition_features=0"):
        build()(input_ids=IDS, decoder_input_ids=IDS, condition_values=torch.ones(2, 1))
    wanting = build(WeftEncoder, num_condition_features=3)
    assert wanting(input_ids=IDS, condition_values=torch.ones(2, 3)).last_hidden_state.shape == (2, 4, 16)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("name", "meant"),
    [("attention_msk", "attention_mask"), ("input_embeds", "inputs_embeds"), ("position_id", "position_ids")],
)
def test_a_mistyped_keyword_is_refused_with_the_one_that_was_meant(kind, name, meant):
    refused(build(kind), f"unexpected keyword `{name}`", f"Did you mean `{meant}`?", **arguments(kind), **{name: IDS})


@pytest.mark.parametrize("kind", CLASSES)
def test_a_keyword_that_resembles_none_gets_no_hint(kind):
    refused(build(kind), "unexpected keyword `qqqq`, which nothing reads.", **arguments(kind), qqqq=1)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_transformers_itself_hands_to_forward_is_accepted(kind):
    model = build(kind)
    expected = model(**arguments(kind))[0]
    given = {"output_hidden_states": True, "return_dict": True, "use_cache": False}
    assert torch.equal(model(**arguments(kind), **given)[0], expected)


BAD_POSITIONS = {
    "too few": torch.arange(3),
    "too many": torch.arange(5),
    "another batch": torch.zeros(3, 4, dtype=torch.long),
    "three dimensions": torch.zeros(1, 2, 4, dtype=torch.long),
}


@pytest.mark.parametrize("case", BAD_POSITIONS)
@pytest.mark.parametrize("name", ["position_ids", "position_mask", "decoder_position_ids", "decoder_position_mask"])
def test_positions_of_a_wrong_shape(case, name):
    values = BAD_POSITIONS[case]
    model, calls = build(), []
    for layer in (model.model.decoder if name.startswith("decoder") else model.model.encoder).layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError) as error:
        model(**arguments(type(model)), **{name: values.bool() if name.endswith("mask") else values})
    assert f"`{name}` has shape {tuple(values.shape)}, but must be (4,) or (2, 4)" in str(error.value)
    assert not calls


TABLES = {
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none"},
    "additive": {"self_attention_position_type": "additive"},
}


@pytest.mark.parametrize("kind", TABLES)
def test_positions_outside_a_learned_table(kind):
    fields = TABLES[kind] | {"max_source_positions": 6, "max_target_positions": 5}
    model, calls = build(**fields), []
    for layer in model.model.decoder.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    long = torch.full((1, 7), 5)
    cases = [
        (
            {"input_ids": long, "decoder_input_ids": IDS[:1]},
            "A sequence of 7 tokens",
            "6 rows (`max_source_positions`)",
        ),
        (
            {"input_ids": IDS[:1], "decoder_input_ids": long},
            "A sequence of 7 tokens",
            "5 rows (`max_target_positions`)",
        ),
        ({"input_ids": IDS[:1], "labels": long}, "A sequence of 7 tokens", "5 rows (`max_target_positions`)"),
        (
            {"input_ids": IDS, "decoder_input_ids": IDS, "position_ids": torch.tensor([0, 1, 2, 6])},
            "Position 6 is outside",
            "6 rows (`max_source_positions`)",
        ),
        (
            {"input_ids": IDS, "decoder_input_ids": IDS, "position_ids": torch.tensor([0, 1, -1, 2])},
            "Position -1 is outside",
            "6 rows",
        ),
        (
            {"input_ids": IDS, "decoder_input_ids": IDS, "decoder_position_ids": torch.tensor([0, 1, 2, 5])},
            "Position 5 is outside",
            "5 rows (`max_target_positions`)",
        ),
    ]
    for given, *words in cases:
        with pytest.raises(ValueError) as error:
            model(**given)
        for word in words:
            assert word in str(error.value)
    assert not calls
    model(input_ids=long[:, :6], decoder_input_ids=long[:, :5])


def test_positions_without_a_table_may_be_anywhere():
    for kind in ("rotary", "relative", "none"):
        model = build(self_attention_position_type=kind, max_source_positions=2, max_target_positions=2)
        model(input_ids=IDS, decoder_input_ids=IDS, position_ids=torch.tensor([0, 900, -3, 2]))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        SPARSE,
        SPARSE | {"router_bias_update_rate": 0.1},
        SPARSE | {"expert_capacity_factor": 1.0, "router_type": "noisy_top_k"},
        SEPARATE,
    ],
    ids=["dense", "sparse", "balanced", "capacity", "separate"],
)
def test_labels_that_all_do_not_count_give_no_loss_and_no_gradient(fields, training):
    model = build(**fields).train(training)
    output = model(input_ids=IDS, labels=torch.full((2, 5), -100))
    assert output.loss.item() == 0.0
    output.loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert (parameter.grad == 0).all(), name
    assert torch.isfinite(output.logits).all()


@pytest.mark.dtype(torch.float64)
def test_a_row_whose_labels_all_do_not_count_changes_nothing_for_the_others():
    model = build(**SPARSE, router_aux_loss_coef=0.0, router_z_loss_coef=0.0)
    labels = torch.tensor([[5, 6, 7], [-100, -100, -100]])
    both = model(input_ids=IDS, labels=labels).loss
    alone = model(input_ids=IDS[:1], labels=labels[:1]).loss
    torch.testing.assert_close(both, alone)


@pytest.mark.dtype(torch.float64)
def test_nothing_is_checked_by_value_while_a_graph_is_captured():
    """Reading values would break the graph; shapes and names are still refused."""
    model = build().eval()
    compiled = torch.compile(model.forward, fullgraph=True, backend="eager")
    given = {"input_ids": IDS, "decoder_input_ids": IDS, "use_cache": False}
    torch.testing.assert_close(compiled(**given).logits, model(**given).logits)


# torch knows the shapes of grouped products of 16 bits alone
@pytest.mark.parametrize(
    "experts", [None, "batched_mm", pytest.param("grouped_mm", marks=pytest.mark.dtype(torch.bfloat16))]
)
@pytest.mark.parametrize("kind", CLASSES)
def test_meta_tensors_pass(kind, experts):
    """For counting memory and planning devices: there are no values to read."""
    with torch.device("meta"):
        model = kind(WeftConfig(**(TINY | ({} if experts is None else SPARSE))))
    if experts is not None:  # the loop reads how many tokens an expert has
        model.set_experts_implementation(experts)
    states = torch.empty(STATES.shape, device="meta")
    given = {name: states if value is STATES else value.to("meta") for name, value in arguments(kind).items()}
    assert model(**given)[0].device.type == "meta"


# --- what comes after the first batch, of which alone the values are read beforehand

PLACES = {
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none"},
    "additive": {"self_attention_position_type": "additive"},
    "additive across": {"self_attention_position_type": "none", "cross_attention_position_type": "additive"},
}
GOOD = {"input_ids": IDS, "decoder_input_ids": IDS}


def later(words, given, **fields):
    """A model that has seen a good batch refuses this one with these words, and goes on with the next good one."""
    model = build(**fields)
    expected = model(**GOOD, labels=IDS)
    with pytest.raises(ValueError) as error:
        model(**given)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert torch.equal(model(**GOOD, labels=IDS).loss, expected.loss)


@pytest.mark.parametrize("case", ["one too high", "far too high", "negative", "marks of labels"])
@pytest.mark.parametrize("name", ["input_ids", "decoder_input_ids"])
def test_bad_ids_of_a_later_batch(name, case):
    ids, words = BAD_IDS[case]
    good = torch.full_like(ids, 5)
    later([f"`{name}`", *words], {"input_ids": good, "decoder_input_ids": good} | {name: ids})
    if name == "input_ids":
        later([f"`{name}`", *words], {"input_ids": ids, "labels": good})


@pytest.mark.parametrize("case", ["one too high", "negative", "almost the mark"])
@pytest.mark.parametrize(
    "given",
    [{}, {"skip_logits": True}, {"num_items_in_batch": 4}, {"logits_to_keep": 2}, {"smoothing": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("fields", [{}, {"lm_head_bias": True}], ids=str)
def test_bad_labels_of_a_later_batch(fields, given, case):
    labels, words = BAD_LABELS[case]
    given = given | {"input_ids": IDS, "decoder_input_ids": torch.ones_like(labels), "labels": labels}
    later(["`labels`", *words], given, **fields)


def test_bad_labels_of_a_later_batch_that_become_the_decoders_input():
    later(
        ["`decoder_input_ids` contains the id 31", "`labels` shifted right"],
        {"input_ids": IDS, "labels": torch.tensor([[31, 5], [1, 1]])},
    )


@pytest.mark.parametrize("kind", PLACES)
def test_positions_outside_a_table_in_a_later_batch(kind):
    fields = PLACES[kind] | {"max_source_positions": 6, "max_target_positions": 5}
    long, row = torch.full((1, 9), 5), IDS[:1]
    outside = ["is outside the learned position table of"]
    for field, given in (
        ("max_source_positions", {"input_ids": long, "decoder_input_ids": row}),
        ("max_target_positions", {"input_ids": row, "decoder_input_ids": long}),
        ("max_target_positions", {"input_ids": row, "labels": long}),
    ):
        later(["A sequence of 9 tokens is longer", f"`{field}`"], given, **fields)
    given = {"input_ids": row, "decoder_input_ids": row}
    for position in (6, -1):
        later(
            [f"Position {position} {outside[0]}"],
            given | {"position_ids": torch.tensor([0, 1, 2, position])},
            **fields,
        )
        later([f"Position {position} {outside[0]}"], given | {"decoder_position_ids": torch.tensor([0, 1, 2, position])},
              **fields)  # fmt: skip


@pytest.mark.parametrize("kind", ["learned", "additive"])
def test_a_step_past_the_table_is_refused(kind):
    model = build(**PLACES[kind], max_source_positions=6, max_target_positions=5)
    cache = model(**GOOD, use_cache=True).past_key_values
    cache = model(input_ids=IDS, decoder_input_ids=IDS[:, :1], past_key_values=cache).past_key_values
    with pytest.raises(ValueError, match=r"A sequence of 6 tokens is longer .* 5 rows \(`max_target_positions`\)"):
        model(input_ids=IDS, decoder_input_ids=IDS[:, :1], past_key_values=cache)


def test_left_pads_take_no_row_of_the_table():
    """The mask says where the first token stands, so that the sequence may be longer than the table."""
    model = build(**PLACES["learned"], max_target_positions=3)
    for _ in range(2):
        found = model(input_ids=IDS, decoder_input_ids=IDS, decoder_attention_mask=torch.tensor([[0, 1, 1, 1]] * 2))
    alone = model(input_ids=IDS, decoder_input_ids=IDS[:, 1:]).logits
    torch.testing.assert_close(found.logits[:, 1:], alone)
    with pytest.raises(ValueError, match="A sequence of 4 tokens is longer"):
        model(input_ids=IDS, decoder_input_ids=IDS, decoder_attention_mask=torch.ones(2, 4))


def test_an_error_that_is_nobodys_input_stays_what_it_is():
    model = build()
    model(**GOOD)

    def broken(*args, **kwargs):
        raise IndexError("of my own")

    model.model.encoder.embed_tokens.forward = broken
    with pytest.raises(IndexError, match="of my own"):
        model(**GOOD)

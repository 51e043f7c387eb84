"""Several pairs in a row: losses, gradients and states are those of the same pairs each in a row of its own."""

import pytest
import torch
from torch import nn

from weftformer import WeftDecoder, WeftEncoder, WeftEncoderModel, WeftForConditionalGeneration, WeftModel
from weftformer.modeling import masks
from weftformer.modeling.masks import cross_mask, decoder_mask, encoder_mask
from weftformer.modeling.positions import positions_in_sequences

from .test_masks import picture, seen

pytestmark = pytest.mark.dtype(torch.float64)

PAD, START = 28, 1
# (source, labels); the third source has pads inside, as those of DirectMultiStep, and the last has a label that does not count
PAIRS = [
    ([5, 6, 7], [8, 9, 2]),
    ([10, 11], [12, 13, 14, 15, 2]),
    ([5, PAD, PAD, 16, 17], [2]),
    ([18, 19, 20, 21], [22, -100, 23, 2]),
    ([24], [25, 2]),
]
ROWS = [[3, 0], [1, 4, 2]]
CONDITIONS = [[1.0], [2.0], [-3.0], [0.5], [4.0]]
POSITIONS = {
    "rotary": {},
    "dynamic rotary": {
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}, "max_position_embeddings": 4,
    },
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none",
                "max_source_positions": 5, "max_target_positions": 5},
    "sinusoidal": {"position_embedding_type": "sinusoidal", "self_attention_position_type": "none"},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "relative"},
    "bucketed": {"self_attention_position_type": "bucketed", "cross_attention_position_type": "bucketed"},
    "additive": {"self_attention_position_type": "additive", "cross_attention_position_type": "additive",
                 "max_source_positions": 5, "max_target_positions": 5},
    "rotary across": {"cross_attention_position_type": "rotary"},
}  # fmt: skip
SPARSE = {
    "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "router_aux_loss_coef": 0.5,
    "router_z_loss_coef": 0.1, "router_bias_update_rate": 0.05, "router_sequence_aux_loss_coef": 0.3,
}  # fmt: skip
LEARNING = {
    "dense": {},
    "sparse": SPARSE,
    "sparse, all in fives": SPARSE | {"num_experts": 5, "num_experts_per_tok": 3},
}
SPECIAL = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": 2, "decoder_start_token_id": START,
           "num_condition_features": 1}  # fmt: skip


def joined(parts: list[list[torch.Tensor]], fill: int) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence([torch.cat(part) for part in parts], batch_first=True, padding_value=fill)


def batch_of(rows: list[list[int]], packed: bool) -> dict[str, torch.Tensor]:
    """The pairs of each row, in their order."""
    source, target = ([[torch.tensor(PAIRS[pair][side]) for pair in row] for row in rows] for side in (0, 1))
    ids, labels = joined(source, PAD), joined(target, -100)
    values = [[torch.tensor(CONDITIONS[pair]).expand(len(PAIRS[pair][0]), -1) for pair in row] for row in rows]
    batch = {"input_ids": ids, "attention_mask": ids.ne(PAD).long(), "labels": labels}
    if not packed:
        return batch | {"condition_values": torch.tensor([CONDITIONS[pair] for (pair,) in rows])}
    # ids in no order, and another in each row
    numbers = [[torch.full((len(part),), 7 - place) for place, part in enumerate(row)] for row in source]
    target_numbers = [[torch.full((len(part),), 7 - place) for place, part in enumerate(row)] for row in target]
    return batch | {
        "condition_values": joined(values, 0),
        "sequence_ids": joined(numbers, -1),
        "decoder_sequence_ids": joined(target_numbers, -1),
    }


def alone() -> dict[str, torch.Tensor]:
    return batch_of([[pair] for row in ROWS for pair in row], packed=False)


def learned(model, batch, **more) -> tuple[torch.Tensor, dict[str, torch.Tensor], object]:
    model.zero_grad()
    output = model(**batch, **more)
    output.loss.backward()
    return output.loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters()}, output


def assert_same(found, expected) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-10, atol=1e-10)
    for name, grad in expected[1].items():
        torch.testing.assert_close(found[1][name], grad, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", POSITIONS)
def test_loss_and_gradients_are_those_of_pairs_in_rows_of_their_own(build, kind, attention):
    model = build(attention=attention, **SPECIAL, **POSITIONS[kind]).train()
    expected = learned(model, alone())
    assert_same(learned(model, batch_of(ROWS, packed=True)), expected)


BROKEN = {
    "one sequence": lambda batch: {name: ids.clamp(max=0) for name, ids in batch.items() if "sequence_ids" in name},
    "every source seen": lambda batch: {
        "sequence_ids": None,
        "position_ids": positions_in_sequences(batch["sequence_ids"]),
    },
    "positions that go on": lambda batch: {"position_ids": torch.arange(batch["input_ids"].shape[1])},
    "target positions that go on": lambda batch: {"decoder_position_ids": torch.arange(batch["labels"].shape[1])},
    "one start token": lambda batch: {"decoder_input_ids": shifted(batch["labels"])},
    "conditions of others": lambda batch: {"condition_values": batch["condition_values"].flip(1)},
}


def shifted(labels: torch.Tensor) -> torch.Tensor:
    ids = torch.cat([labels.new_full((len(labels), 1), START), labels[:, :-1]], dim=1)
    return ids.masked_fill(ids == -100, PAD)


@pytest.mark.parametrize("broken", BROKEN)
def test_nothing_of_it_can_be_left_out(build, broken):
    # rotary positions are differences: where they begin is all the same
    model = build(attention="sdpa", **SPECIAL, **POSITIONS["sinusoidal"]).train()
    expected = learned(model, alone())[0]
    batch = batch_of(ROWS, packed=True)
    given = batch | BROKEN[broken](batch)
    assert abs(learned(model, given)[0] - expected) > 1e-3


@pytest.mark.parametrize("kind", LEARNING)
@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole", "in pieces"])
def test_router_losses_count_the_same_tokens(build, kind, in_pieces):
    model = build(attention="sdpa", **SPECIAL, **LEARNING[kind]).train()
    expected = learned(model, alone(), skip_logits=in_pieces)
    loads = [router.expert_load.clone() for router in model.routers()]
    for router in model.routers():
        router.expert_load.zero_()
    found = learned(model, batch_of(ROWS, packed=True), skip_logits=in_pieces)
    assert_same(found, expected)
    assert len(loads) == (0 if "sparse" not in kind else 3)
    for router, load in zip(model.routers(), loads, strict=True):
        assert load.sum() > 0 and torch.equal(router.expert_load, load)
    for name in ("aux_loss", "z_loss", "sequence_aux_loss"):
        if loads:
            torch.testing.assert_close(getattr(found[2], name), getattr(expected[2], name))


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@torch.no_grad()
def test_masks_are_blocks(small, eager_flex, implementation):
    config = small()
    config._attn_implementation = implementation
    source, target = torch.tensor([[4, 4, 9, 9, -1], [0, 1, 1, 1, 1]]), torch.tensor([[4, 9, 9, -1], [1, 1, 0, 0]])
    shown = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    states, others = torch.zeros(2, 5, 16), torch.zeros(2, 4, 16)
    found = seen(encoder_mask(config, states, shown, source), 2, 5, 5)
    expected = [picture("##... ##... ..#.. ..#.. ....."), picture("#.... .###. .###. .###. .###.")]
    assert torch.equal(found, torch.stack(expected)[:, None])
    found = seen(decoder_mask(config, others, None, None, target), 2, 4, 4)
    expected = [picture("#... .#.. .##. ...."), picture("#... ##.. ..#. ..##")]
    assert torch.equal(found, torch.stack(expected)[:, None])
    found = seen(cross_mask(config, others, states, shown, (target, source)), 2, 4, 5)
    expected = [picture("##... ..#.. ..#.. ....."), picture(".###. .###. #.... #....")]
    assert torch.equal(found, torch.stack(expected)[:, None])
    config.is_causal = False
    found = seen(decoder_mask(config, others, None, None, target), 2, 4, 4)
    expected = [picture("#... .##. .##. ...."), picture("##.. ##.. ..## ..##")]
    assert torch.equal(found, torch.stack(expected)[:, None])


@pytest.mark.parametrize("has_function", [True, False], ids=["blocks", "dense"])
@pytest.mark.parametrize("kind", ["rotary", "relative", "learned"])
def test_flex_attention_gives_the_same(build, eager_flex, monkeypatch, kind, has_function):
    """In blocks that are left out whole; and without the parameter of transformers that they need, with a dense mask."""
    monkeypatch.setattr(masks, "combines_mask_functions", has_function)
    batch = batch_of(ROWS, packed=True)
    expected = build(attention="sdpa", **SPECIAL, **POSITIONS[kind])(**batch)
    found = build(attention="flex_attention", **SPECIAL, **POSITIONS[kind])(**batch)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-6, atol=1e-6)
    counts = batch["labels"] != -100
    torch.testing.assert_close(found.logits[counts], expected.logits[counts], rtol=1e-5, atol=1e-5)


def test_flash_attention_refuses(small):
    config = small()
    config._attn_implementation = "flash_attention_2"
    ids, states = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, 16)
    for mask in (
        lambda: encoder_mask(config, states, None, ids),
        lambda: decoder_mask(config, states, None, None, ids),
    ):
        with pytest.raises(ValueError, match=r'flash_attention_2" cannot carry `sequence_ids`: use "flex_attention"'):
            mask()


def test_positions_begin_anew():
    ids = torch.tensor([[3, 3, 3, 8, 8, -1, -1], [-1, 5, 2, 2, 2, 2, 0]])
    assert positions_in_sequences(ids).tolist() == [[0, 1, 2, 0, 1, 0, 0], [0, 0, 0, 1, 2, 3, 0]]
    mask = torch.tensor([[1, 0, 1, 0, 1, 0, 0], [0, 1, 1, 0, 0, 1, 1]])
    assert positions_in_sequences(ids, mask).tolist() == [[0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0]]
    assert positions_in_sequences(torch.tensor([[4], [-1]])).tolist() == [[0], [0]]


def test_a_mask_of_the_target_counts_its_positions(build):
    """Pads on the left of a target, as prefixes have them."""
    model = build(attention="sdpa", vocab_size=29)
    ids, sequences = torch.tensor([[5, 6, 0, 7, 8, 9]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 0, 1, 1, 1]])
    source = {"input_ids": torch.tensor([[4, 5, 6]]), "sequence_ids": torch.tensor([[0, 1, 1]])}
    packed = model(
        **source, decoder_input_ids=ids, decoder_attention_mask=mask, decoder_sequence_ids=sequences
    ).logits[0]
    first = model(input_ids=torch.tensor([[4]]), decoder_input_ids=ids[:, :2]).logits[0]
    second = model(
        input_ids=torch.tensor([[5, 6]]), decoder_input_ids=ids[:, 2:], decoder_attention_mask=mask[:, 2:]
    ).logits[0]
    torch.testing.assert_close(packed[[0, 1, 3, 4, 5]], torch.cat([first, second[1:]]))


def test_several_targets_of_one_source(build):
    model = build(attention="sdpa")
    source = torch.tensor([[4, 5, 6]])
    packed = model(
        input_ids=source, decoder_input_ids=torch.tensor([[1, 7, 1, 8, 9]]),
        decoder_sequence_ids=torch.tensor([0, 0, 1, 1, 1]),
    )  # fmt: skip
    expected = [
        model(input_ids=source, decoder_input_ids=ids).logits
        for ids in (torch.tensor([[1, 7]]), torch.tensor([[1, 8, 9]]))
    ]
    torch.testing.assert_close(packed.logits, torch.cat(expected, dim=1))
    assert packed.past_key_values is None


def test_encoder_and_decoder_alone(build):
    ids, sequences = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[0, 0, 1, 1]])
    parts = ids[:, :2], ids[:, 2:]
    for kind in (WeftEncoder, WeftEncoderModel):
        encoder = build(model_class=kind, attention="sdpa")
        expected = torch.cat([encoder(part).last_hidden_state for part in parts], dim=1)
        torch.testing.assert_close(encoder(ids, sequence_ids=sequences).last_hidden_state, expected)
    decoder = build(model_class=WeftDecoder, attention="sdpa")
    expected = torch.cat([decoder(part).last_hidden_state for part in parts], dim=1)
    torch.testing.assert_close(decoder(ids, sequence_ids=sequences).last_hidden_state, expected)


def test_without_a_target_the_source_is_shifted_in_each_sequence(build):
    model = build(model_class=WeftModel, attention="sdpa", **{**SPECIAL, "num_condition_features": 0})
    ids, sequences = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[0, 0, 1, 1, 1]])
    expected = torch.cat([model(part).last_hidden_state for part in (ids[:, :2], ids[:, 2:])], dim=1)
    found = model(ids, sequence_ids=sequences, decoder_sequence_ids=sequences)
    torch.testing.assert_close(found.last_hidden_state, expected)


def test_states_of_the_encoder_can_be_given(build):
    model = build(attention="sdpa", **SPECIAL)
    batch = batch_of(ROWS, packed=True)
    expected = model(**batch)
    states = model.model.encoder(
        **{name: batch[name] for name in ("input_ids", "attention_mask", "sequence_ids", "condition_values")}
    )
    given = {name: batch[name] for name in ("attention_mask", "sequence_ids", "decoder_sequence_ids", "labels")}
    torch.testing.assert_close(model(encoder_outputs=states, **given).logits, expected.logits)


def test_experts_with_a_capacity_take_the_tokens_in_the_order_of_the_pairs(build):
    """Pads take none of it, so that the same tokens are dropped where pairs stand in the same order."""
    model = build(attention="sdpa", **SPECIAL, **(SPARSE | {"expert_capacity_factor": 0.6})).train()
    expected = learned(model, alone())
    assert_same(learned(model, batch_of(ROWS, packed=True)), expected)
    other = learned(model, batch_of([ROWS[1], ROWS[0]], packed=True))[0]
    assert abs(other - expected[0]) > 1e-3


def test_what_cannot_be_is_said(build):
    model = build(attention="sdpa", **SPECIAL)
    batch = batch_of(ROWS, packed=True)

    def refused(message, **changes):
        model.model.encoder._has_checked_values = model.model.decoder._has_checked_values = False
        with pytest.raises(ValueError, match=message):
            model(**(batch | changes))

    refused("`sequence_ids` of the source need `decoder_sequence_ids` too", decoder_sequence_ids=None)
    refused(r"`sequence_ids` has shape \(2, 3\), but must be", sequence_ids=torch.zeros(2, 3, dtype=torch.long))
    refused(r"`decoder_sequence_ids` has shape \(2, 3\)", decoder_sequence_ids=torch.zeros(2, 3, dtype=torch.long))
    source = batch["input_ids"].shape[1]
    refused("`sequence_ids` and a 4-D mask both say", attention_mask=torch.ones(2, 1, source, source))
    back = batch["sequence_ids"].clone()
    back[1, -1] = back[1, 0]
    refused("`sequence_ids` of row 1 come back after others", sequence_ids=back)
    refused(r"must be \(2, 1\).*or \(2, 8, 1\)", condition_values=torch.zeros(2, 4, 1))
    del batch["labels"]
    batch["decoder_input_ids"] = torch.ones_like(batch["decoder_sequence_ids"])
    refused("have no cache", use_cache=True)
    with pytest.raises(ValueError, match="one target for each row"):
        model.generate(batch["input_ids"], sequence_ids=batch["sequence_ids"])


def test_a_pair_past_a_learned_table_is_said_by_its_own_length(build):
    model = build(attention="sdpa", **POSITIONS["learned"])
    ids = torch.full((1, 8), 5)
    sequences = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])
    for _ in range(2):  # the first batch is looked at before, others when they fail
        with pytest.raises(
            ValueError, match="A sequence of 6 tokens is longer than the learned position table of 5 rows"
        ):
            model.model.encoder(ids, sequence_ids=sequences)
        model.model.encoder._has_checked_values = True


@torch.no_grad()
def test_a_registered_implementation_gets_the_mask_too(build):
    """transformers would give it none."""
    from transformers import AttentionInterface

    from weftformer.modeling.attention import eager_attention_forward

    AttentionInterface.register("of_a_test", eager_attention_forward)
    batch = batch_of(ROWS, packed=True)
    expected = build(attention="eager", **SPECIAL)(**batch).loss
    torch.testing.assert_close(build(attention="of_a_test", **SPECIAL)(**batch).loss, expected)


def test_it_compiles_without_values(build):
    """Nothing is read while a graph is traced."""
    model = build(attention="sdpa", model_class=WeftForConditionalGeneration, **SPECIAL)
    with torch.device("meta"):
        batch = {name: torch.zeros_like(value, device="meta") for name, value in batch_of(ROWS, packed=True).items()}
    assert model.to("meta")(**batch).loss.device.type == "meta"

"""Positions: literal values, masks of positions, explicit ids, and the default positions of tokens."""

import pytest
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from weftformer import WeftDecoder, WeftEncoder
from weftformer.modeling.positions import TokenPositions, attention_positions, rotate

from ..models import KINDS, tiny_model

TARGET = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])


NUMBERS = {"rope_theta": 100.0, "factor": 4.0}
ROPE = {
    "default": {"rope_type": "default", "rope_theta": 100.0},
    "linear": NUMBERS | {"rope_type": "linear"},
    "dynamic": NUMBERS | {"rope_type": "dynamic"},
    "yarn": NUMBERS | {"rope_type": "yarn"},
    "yarn, original length": NUMBERS | {"rope_type": "yarn", "original_max_position_embeddings": 5},
    "longrope": NUMBERS | {
        "rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [4.0, 3.0, 2.0, 6.0],
    },
    "llama3": NUMBERS | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", ROPE)
@pytest.mark.parametrize(("stack", "limit", "part"), [("encoder", 16, 0.5), ("decoder", 12, 1.0)])
def test_rotation_equals_gpt_neox(small, stack, limit, kind, part):
    """Each stack by its own limit: at 10 tokens none is reached, at 14 the decoder's, at 20 both."""
    width = 8
    rope = ROPE[kind] | {"partial_rotary_factor": part}
    if kind == "longrope":
        rope |= {name: rope[name][: int(width * part) // 2] for name in ("short_factor", "long_factor")}
    # the reference model has a single limit
    theirs = GPTNeoXConfig(
        hidden_size=32, num_attention_heads=4, max_position_embeddings=limit, rope_parameters=dict(rope)
    )
    config = small(d_model=32, rope_parameters=rope)
    model = (WeftEncoder if stack == "encoder" else WeftDecoder)(config)
    query, key = torch.randn(2, 1, 4, 20, width, generator=torch.Generator().manual_seed(0))
    reference = GPTNeoXRotaryEmbedding(theirs)
    for length in (10, 14, 20, 10):
        ids, part_of = torch.arange(length)[None], slice(length)
        expected = apply_rotary_pos_emb(query[:, :, part_of], key[:, :, part_of], *reference(query, ids))
        rotation = model.rotary_embedding(query, ids)
        for states, turned in zip((query, key), expected, strict=True):
            torch.testing.assert_close(rotate(states[:, :, part_of], rotation), turned)


@pytest.mark.parametrize("looks_ahead", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (4, 3)])
def test_buckets_equal_t5(small, buckets, distance, looks_ahead):
    config = small(relative_attention_num_buckets=buckets, relative_attention_max_distance=distance)
    query, key = (TokenPositions(torch.arange(0, 300, step)[None], None) for step in (7, 1))
    positions = attention_positions("bucketed", config, query, key, key, None, None, looks_ahead=looks_ahead)
    offsets = key.ids_BT[:, None, :] - query.ids_BT[:, :, None]
    expected = T5Attention._relative_position_bucket(offsets, looks_ahead, buckets, distance)
    assert torch.equal(positions.relative_BLM, expected)


@pytest.mark.dtype(torch.float64)
@pytest.mark.parametrize("kind", ["rotary across", "learned", "sinusoidal", "additive", "relative", "bucketed"])
def test_given_positions_belong_to_their_row_and_masked_tokens_have_none(small, lopsided, kind):
    model = lopsided(WeftDecoder(small(**KINDS[kind])))
    states = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))

    def run(rows=slice(None), **positions):
        return model(input_ids=TARGET[rows], encoder_hidden_states=states[rows], **positions).last_hidden_state

    default = run()
    counted = run(position_ids=torch.arange(4).expand(2, -1), encoder_position_ids=torch.arange(5))
    assert torch.equal(counted, default)
    for side, length in (("position_ids", 4), ("encoder_position_ids", 5)):
        if side == "encoder_position_ids" and model.config.cross_attention_position_type == "none":
            continue
        counts, mask = torch.arange(length).expand(2, -1), torch.ones(2, length, dtype=torch.bool)
        mask[1, 1] = mask[1, 3] = False
        hidden = run(**{side: (counts, mask)})
        for found in (run(**{side: torch.stack([counts[0], counts[0].flip(0)])}), hidden):
            torch.testing.assert_close(found[0], default[0], atol=1e-10, rtol=1e-10)
            assert (found[1] - default[1]).abs().max() > 1e-3
        for nonsense in (7, -1, 1000):  # a token without a position has none whatever its id
            assert torch.equal(run(**{side: (counts.masked_fill(~mask, nonsense), mask)}), hidden)
        row = run(slice(1, 2), **{side: (counts[1], mask[1])})
        torch.testing.assert_close(row, hidden[1:], atol=1e-10, rtol=1e-10)


# --- pads on the left

LENGTHS, CLOSE = (7, 5, 1), {"rtol": 1e-4, "atol": 1e-5}  # rotations are of 32 bits


def padded(side: str, width: int = 7, gap: int = 0) -> torch.Tensor:
    """Return sources of `LENGTHS` tokens with pads on a side, and `gap` pads after the first token of the first row."""
    rows = torch.zeros(3, width, dtype=torch.long)
    for number, (row, length) in enumerate(zip(rows, LENGTHS, strict=True)):
        start = width - length if side == "left" else 0
        row[start : start + length] = torch.arange(3, 3 + length) + 4 * number
    rows[0, 1 : 1 + gap] = 0
    return rows


def outputs(model, ids, mask=None, **inputs):
    """Return logits, the states of the tokens that the mask shows, and gradients."""
    mask, model.config.use_cache = ids != 0 if mask is None else mask, False
    if features := model.config.num_condition_features:
        inputs["condition_values"] = torch.arange(3.0 * features).view(3, features).to(model.dtype)
    labels = torch.arange(12).view(3, 4) + 3
    model.zero_grad()
    output = model(input_ids=ids, attention_mask=mask, labels=labels, **inputs)
    output.loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return output.logits.detach(), output.encoder_last_hidden_state.detach()[ids != 0], gradients


MIXED = {"position_embedding_type": "sinusoidal", "relative_attention_num_buckets": 6}
MIXED |= {"self_attention_position_type": "bucketed", "cross_attention_position_type": "relative"}


@pytest.mark.dtype(torch.float64)
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_pads_on_the_left_change_nothing(kind, monkeypatch):
    model = tiny_model(**(KINDS | {"mixed": MIXED})[kind], random=True)
    model.set_experts_implementation("eager")  # the others have no 64 bits
    expected = outputs(model, padded("right"))
    for ids in (padded("left"), padded("left", width=9)):
        torch.testing.assert_close(outputs(model, ids), expected, **CLOSE)
    in_the_middle = outputs(model, padded("right", gap=2))
    # as on devices whose values are not read
    monkeypatch.setattr("weftformer.modeling.positions.can_read", lambda device: False)
    for found, wanted in ((padded("right"), expected), (padded("right", gap=2), in_the_middle)):
        again = outputs(model, found)
        assert torch.equal(again[0], wanted[0]) and torch.equal(again[1], wanted[1])
        torch.testing.assert_close(again, wanted, **CLOSE)
    torch.testing.assert_close(outputs(model, padded("left")), expected, **CLOSE)


@pytest.mark.dtype(torch.float64)
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "additive", "rotary across", "relative"])
def test_pads_after_the_first_token_and_given_positions_keep_theirs(kind):
    model, columns = tiny_model(**KINDS[kind], random=True), torch.arange(7)
    for ids in (padded("right", gap=2), padded("right")):
        assert torch.equal(outputs(model, ids)[0], outputs(model, ids, position_ids=columns)[0])
    left, counted = padded("left"), (columns - torch.tensor([[0], [2], [6]])).clamp(min=0)
    torch.testing.assert_close(outputs(model, left)[0], outputs(model, left, position_ids=counted)[0], **CLOSE)
    assert (outputs(model, left)[0] - outputs(model, left, position_ids=columns)[0]).abs().max() > 1e-3
    # a mask that hides tokens from the decoder alone moves none, and 4-D masks show the same pads
    hidden = (padded("right") != 0).long()
    hidden[:2, :1] = 0
    kept = {"encoder_attention_mask": hidden}
    found = outputs(model, padded("right"), **kept)[0]
    assert torch.equal(found, outputs(model, padded("right"), **kept, position_ids=columns)[0])
    whole = (left != 0)[:, None, None].expand(-1, 1, 7, -1)
    torch.testing.assert_close(outputs(model, left, mask=whole)[0], outputs(model, left)[0], **CLOSE)


@pytest.mark.parametrize("kind", ["learned", "additive"])
def test_pads_on_the_left_take_no_rows_of_a_source_table(kind):
    model = tiny_model(**(KINDS[kind] | {"max_source_positions": 7, "max_target_positions": 7}))
    expected = outputs(model, padded("right"))[0]
    for _ in range(2):
        torch.testing.assert_close(outputs(model, padded("left", width=12))[0], expected, **CLOSE)
        with pytest.raises(ValueError, match="`max_source_positions`"):
            outputs(model, padded("right", width=12))

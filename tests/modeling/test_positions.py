"""Positions: literal values, masks of positions, explicit ids, and the default positions of tokens."""

import pytest
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from weftformer import WeftDecoder, WeftEncoder
from weftformer.modeling.positions import TokenPositions, attention_positions, rotate

from ..models import KINDS

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

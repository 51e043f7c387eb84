"""Attention against its formula."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from weftformer.modeling.attention import CrossAttention, SelfAttention
from weftformer.modeling.masks import bidirectional_mask
from weftformer.modeling.positions import TokenPositions, WeftRotaryEmbedding, attention_positions

from ..models import assert_same_gradients

pytestmark = pytest.mark.dtype(torch.float64)

BATCH, LENGTH, SOURCE = 2, 5, 6


def reference(attention, config, case):
    """Return output (B, L, D) and weights (B, H, L, M)."""
    heads, _, width = config.stack_heads(attention.is_decoder_side)
    limit, theta = config.relative_attention_max_distance, config.rope_parameters["rope_theta"]

    def project(layer, norm, states, ids=None, placed=None):
        if case.kind == "additive" and ids is not None:
            states = states + attention.position_table.weight[ids] * placed[..., None]
        vectors = layer(states).unflatten(-1, (-1, width)).transpose(1, 2)
        if norm is not None:
            vectors = vectors / (vectors.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * norm.weight
        if case.kind == "rotary" and ids is not None:
            angles = (ids * placed)[:, None, :, None] * theta ** (-torch.arange(0.0, width, 2) / width)
            turned = torch.complex(*vectors.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
            vectors = torch.cat([turned.real, turned.imag], dim=-1)
        return vectors.repeat_interleave(heads // vectors.shape[1], dim=1)

    query = project(attention.q_proj, attention.q_norm, case.states, case.query_ids, case.query_placed)
    key = project(attention.k_proj, attention.k_norm, case.source, case.key_ids, case.key_placed)
    logits = query @ key.transpose(2, 3) / math.sqrt(width)
    if case.kind == "relative":
        offsets = (case.query_ids[:, :, None] - case.key_ids[:, None]).clamp(-limit, limit)
        both = case.query_placed[:, :, None] & case.key_placed[:, None]
        logits = logits - (attention.relative_bias[offsets + limit] * both)[:, None]
    weights = logits.exp() * case.allowed
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)  # a query that sees nothing gets nothing
    mixed = weights @ project(attention.v_proj, None, case.source)
    return attention.out_proj(mixed.transpose(1, 2).flatten(2)), weights


def draw(config, kind, cross, ids, masked, per_head=False):
    """Draw inputs. `ids` is "default", "row" (T,) or "rows" (B, T). With `masked`, some tokens have no position.

    The case has ids and masks of positions as (B, T), whatever the module is given, and who sees whom as
    (B, H or 1, L, M).
    """
    torch.manual_seed(5)
    states = torch.randn(BATCH, LENGTH, config.d_model)
    source = torch.randn(BATCH, SOURCE, config.d_model) if cross else states
    keys = source.shape[1]

    def positions(length, offset):
        if ids == "default":
            return torch.arange(length)[None]
        if ids == "row":
            return (torch.arange(length) * 2 % 7 + offset)[None]
        return torch.randint(0, 12, (BATCH, length))

    query_ids = positions(LENGTH, 1)
    key_ids = positions(keys, 3) if cross else query_ids
    query_mask = torch.rand(BATCH, LENGTH) > 0.4 if masked else None
    key_mask = (torch.rand(BATCH, keys) > 0.4 if cross else query_mask) if masked else None
    allowed = torch.rand(BATCH, 4 if per_head else 1, LENGTH, keys) > 0.3
    allowed[..., 0] = True
    everywhere = torch.ones(BATCH, 1, dtype=torch.bool)
    case = SimpleNamespace(
        kind=kind, states=states, source=source, allowed=allowed,
        query_ids=query_ids.expand(BATCH, -1), key_ids=key_ids.expand(BATCH, -1),
        query_placed=everywhere.expand(-1, LENGTH) if query_mask is None else query_mask,
        key_placed=everywhere.expand(-1, keys) if key_mask is None else key_mask,
    )  # fmt: skip
    return case, TokenPositions(query_ids, query_mask), TokenPositions(key_ids, key_mask)


# in every model the tables of rotary angles are of 32 bits
TOLERANCES = {"rotary": 1e-5}


def assert_close(found, expected, kind):
    tolerance = TOLERANCES.get(kind, 1e-10)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def attend(attention, config, case, query, key, implementation):
    config._attn_implementation = implementation
    rotary = WeftRotaryEmbedding(config)
    positions = attention_positions(case.kind, config, query, key, key, rotary, case.states)
    mask = bidirectional_mask(config, case.states, case.allowed)
    if isinstance(attention, CrossAttention):
        return attention(case.states, case.source, mask, positions)
    return attention(case.states, mask, positions)


@pytest.fixture
def attention(small, lopsided):
    def make(kind="none", cross=False, is_decoder=True, **fields):
        side = "cross_attention_position_type" if cross else "self_attention_position_type"
        config = small(**({"relative_attention_max_distance": 3, side: kind} | fields))
        module = CrossAttention(config, 0) if cross else SelfAttention(config, 0, is_decoder)
        module.is_decoder_side = is_decoder or cross
        return lopsided(module), config

    return make


EVERYTHING = {
    "attention_bias": True, "attention_out_bias": True, "use_qk_norm": True, "norm_eps": 1e-2, "head_dim": 6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2}
# kind, whether cross-attention, ids, whether tokens lack positions and heads have masks of their own, fields
CASES = [
    *((kind, cross, "rows", True, False, GROUPED) for kind in ("none", "rotary", "additive", "relative") for cross in (False, True)),
    ("relative", False, "default", False, True, GROUPED),
    ("additive", True, "row", True, False, {"num_key_value_heads": 1}),
    ("none", False, "rows", True, True, {"head_dim": 6, "attention_out_bias": True}),
    ("rotary", True, "rows", True, False, EVERYTHING),
]  # fmt: skip


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize(("kind", "cross", "ids", "masked", "per_head", "fields"), CASES)
def test_attention_equals_the_reference(
    attention, eager_flex, kind, cross, ids, masked, per_head, fields, implementation
):
    module, config = attention(kind, cross, **fields)
    case, query, key = draw(config, kind, cross, ids, masked, per_head)
    case.allowed[0, :, 2] = False  # a query that sees nothing
    case.allowed[1] &= per_head or cross
    inputs = [case.states.requires_grad_()] + ([case.source.requires_grad_()] if cross else [])
    has_gradients = implementation != "flex_attention"  # which has none on CPU
    with torch.set_grad_enabled(has_gradients):
        expected, expected_weights = reference(module, config, case)
        output, weights = attend(module, config, case, query, key, implementation)
        assert_close(output, expected, kind)
        if implementation == "eager":
            assert_close(weights, expected_weights, kind)
        if has_gradients:
            assert_same_gradients(output, expected, [*module.parameters(), *inputs], TOLERANCES.get(kind, 1e-10))


CALL = {"input_ids": torch.tensor([[3, 4, 5, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]]),
        "decoder_input_ids": torch.tensor([[6, 7, 8]])}  # fmt: skip


@pytest.mark.parametrize(("side", "kind"), [("self", "relative"), ("cross", "bucketed")])
def test_registered_attention_gets_a_relative_bias_or_is_refused(build, monkeypatch, side, kind):
    def swallows(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling)

    def takes(module, query, key, value, attention_mask, scaling, position_bias=None, **kwargs):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, position_bias=position_bias
        )

    for function in (swallows, takes):
        monkeypatch.setitem(AttentionInterface._global_mapping, function.__name__, function)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, function.__name__, sdpa_mask)
    field = f"{side}_attention_position_type"
    words = rf'"swallows" .*{field}="{kind}"'
    with pytest.raises(ValueError, match=words):
        build(attention="swallows", **{field: kind})
    model = build(attention="sdpa", **{field: kind})
    expected = model(**CALL).logits
    model.set_attn_implementation("takes")
    torch.testing.assert_close(model(**CALL).logits, expected)
    model.set_attn_implementation("swallows")
    with pytest.raises(ValueError, match=words):
        model(**CALL)


@pytest.mark.parametrize(
    "fields", [{}, {"num_key_value_heads": 1}, {"self_attention_position_type": "relative"}], ids=str
)
def test_dropout_of_sdpa_on_a_cpu_equals_eager(build, fields):
    """Both draw the same numbers, so their outputs and gradients agree. Some queries see no key."""
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    mask[1, :, 2] = False
    call = {
        "input_ids": torch.tensor([[3, 4, 5, 0], [6, 7, 8, 9]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]),
        "labels": torch.tensor([[6, 7, 8, 2], [9, 8, 7, 2]]),
    }
    results = {}
    for attention in ("eager", "sdpa"):
        model = build(attention=attention, attention_dropout=0.5, dropout=0.0, **fields).train()
        for masks in ({}, {"decoder_attention_mask": mask}):
            torch.manual_seed(0)
            output = model(**call, **masks)
            gradients = torch.autograd.grad(output.loss, [*model.parameters()], allow_unused=True)
            results.setdefault(attention, []).append((output.logits, *(g for g in gradients if g is not None)))
    for expected, found in zip(*results.values(), strict=True):
        torch.testing.assert_close(found, expected)
    assert not torch.equal(results["sdpa"][0][0], model.eval()(**call).logits)

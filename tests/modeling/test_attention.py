"""Attention against a reference that computes one logit at a time."""

import math
from dataclasses import dataclass

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from weftformer.modeling.attention import CrossAttention, SelfAttention
from weftformer.modeling.masks import encoder_mask, refuse_lost_bias
from weftformer.modeling.positions import TokenPositions, WeftRotaryEmbedding, attention_positions

pytestmark = pytest.mark.dtype(torch.float64)

BATCH, LENGTH, SOURCE = 2, 5, 6
IMPLEMENTATIONS = ["eager", "sdpa", "flex_attention"]
KINDS = ["none", "rotary", "additive", "relative"]


@dataclass
class Case:
    """Inputs of one attention. Ids and masks of positions are (B, T) here, whatever the module was given."""

    kind: str
    states: torch.Tensor
    source: torch.Tensor
    allowed: torch.Tensor  # (B, H or 1, L, M)
    query_ids: torch.Tensor
    key_ids: torch.Tensor
    query_placed: torch.Tensor
    key_placed: torch.Tensor


def project(layer, norm, vector, head, width, eps):
    rows = slice(head * width, (head + 1) * width)
    result = layer.weight[rows] @ vector
    if layer.bias is not None:
        result = result + layer.bias[rows]
    if norm is not None:
        result = result / torch.sqrt((result * result).mean() + eps) * norm.weight
    return result


def turn(vector, position, theta):
    half = len(vector) // 2
    turned = [None] * len(vector)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(vector))
        cos, sin = math.cos(angle), math.sin(angle)
        turned[i] = vector[i] * cos - vector[i + half] * sin
        turned[i + half] = vector[i + half] * cos + vector[i] * sin
    return torch.stack(turned)


def reference(attention, config, case: Case):
    """Return output (B, L, D) and weights (B, H, L, M), one logit at a time."""
    heads, key_value_heads, width = config.stack_heads(attention.is_decoder_side)
    limit, theta = config.relative_attention_max_distance, config.rope_parameters["rope_theta"]

    def place(vector, position, placed):
        if case.kind == "additive" and placed:
            return vector + attention.position_table.weight[position]
        return vector

    output, all_weights = [], []
    for b in range(BATCH):
        for q in range(case.states.shape[1]):
            mixed = []
            for h in range(heads):
                shared = h // (heads // key_value_heads)
                position, placed = case.query_ids[b, q].item(), bool(case.query_placed[b, q])
                vector = place(case.states[b, q], position, placed)
                query = project(attention.q_proj, attention.q_norm, vector, h, width, config.norm_eps)
                if case.kind == "rotary" and placed:
                    query = turn(query, position, theta)
                logits, values = [], []
                for m in range(case.source.shape[1]):
                    key_position, key_placed = case.key_ids[b, m].item(), bool(case.key_placed[b, m])
                    vector = place(case.source[b, m], key_position, key_placed)
                    key = project(attention.k_proj, attention.k_norm, vector, shared, width, config.norm_eps)
                    if case.kind == "rotary" and key_placed:
                        key = turn(key, key_position, theta)
                    logit = (query * key).sum() / math.sqrt(width)
                    if case.kind == "relative" and placed and key_placed:
                        offset = max(-limit, min(limit, position - key_position))
                        logit = logit - attention.relative_bias[offset + limit]
                    logits.append(logit)
                    values.append(project(attention.v_proj, None, case.source[b, m], shared, width, config.norm_eps))
                seen = case.allowed[b, h if case.allowed.shape[1] > 1 else 0, q]
                weights = torch.zeros(len(logits))
                if seen.any():
                    exponentials = torch.stack(logits).exp() * seen
                    weights = exponentials / exponentials.sum()
                all_weights.append(weights)
                mixed.append(weights @ torch.stack(values))
            output.append(attention.out_proj.weight @ torch.cat(mixed))
            if attention.out_proj.bias is not None:
                output[-1] = output[-1] + attention.out_proj.bias
    queries = case.states.shape[1]
    return (
        torch.stack(output).view(BATCH, queries, -1),
        torch.stack(all_weights).view(BATCH, queries, heads, -1).transpose(1, 2),
    )


def draw(config, kind, cross, ids, masked, per_head=False):
    """Draw inputs. `ids` is "default", "row" (T,) or "rows" (B, T). With `masked`, some tokens have no position."""
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
    case = Case(
        kind, states, source, allowed,
        query_ids.expand(BATCH, -1), key_ids.expand(BATCH, -1),
        everywhere.expand(-1, LENGTH) if query_mask is None else query_mask,
        everywhere.expand(-1, keys) if key_mask is None else key_mask,
    )  # fmt: skip
    return case, TokenPositions(query_ids, query_mask), TokenPositions(key_ids, key_mask)


def assert_close(found, expected, kind="none"):
    # in every model the tables of rotary angles are of 32 bits
    tolerance = 1e-5 if kind == "rotary" else 1e-10
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def attend(attention, config, case, query, key, implementation):
    config._attn_implementation = implementation
    rotary = WeftRotaryEmbedding(config)
    positions = attention_positions(case.kind, config, query, key, key, rotary, case.states)
    mask = encoder_mask(config, case.states, case.allowed)
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


def gradients(module, inputs, output):
    # an asymmetric weight for each output, so that no error can cancel
    weight = torch.linspace(-1, 1, output.numel()).view_as(output)
    parameters = [*module.parameters(), *inputs]
    grads = torch.autograd.grad((output * weight).sum(), parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]


MODES = [(kind, "rows", True) for kind in KINDS] + [("relative", "default", False), ("additive", "row", True)]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize(("kind", "ids", "masked"), MODES)
def test_attention_equals_the_reference(attention, kind, cross, ids, masked, implementation):
    module, config = attention(kind, cross, num_key_value_heads=2)
    case, query, key = draw(config, kind, cross, ids, masked)
    inputs = [case.states.requires_grad_()] + ([case.source.requires_grad_()] if cross else [])
    expected, expected_weights = reference(module, config, case)
    output, weights = attend(module, config, case, query, key, implementation)
    assert_close(output, expected, kind)
    if implementation == "eager":
        assert_close(weights, expected_weights, kind)
    for got, wanted in zip(gradients(module, inputs, output), gradients(module, inputs, expected), strict=True):
        assert_close(got, wanted, kind)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("kind", KINDS)
def test_flex_equals_the_reference(attention, eager_flex, kind, cross):
    module, config = attention(kind, cross, num_key_value_heads=2)
    case, query, key = draw(config, kind, cross, "rows", masked=True)
    output, _ = attend(module, config, case, query, key, "flex_attention")
    assert_close(output, reference(module, config, case)[0], kind)


VARIANTS = {
    "multi-head": {},
    "multi-query": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 6},
    "qk norm": {"use_qk_norm": True, "norm_eps": 1e-2},
    "q/k/v biases": {"attention_bias": True},
    "output bias": {"attention_out_bias": True},
    "everything": {
        "attention_bias": True, "attention_out_bias": True, "use_qk_norm": True, "head_dim": 6,
        "num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_equal_the_reference(attention, variant):
    kind = "rotary" if variant == "everything" else "none"
    module, config = attention(kind, variant == "everything", **VARIANTS[variant])
    case, query, key = draw(config, kind, variant == "everything", "rows", masked=True)
    expected, _ = reference(module, config, case)
    for implementation in ("eager", "sdpa"):
        assert_close(attend(module, config, case, query, key, implementation)[0], expected, kind)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", ["none", "relative"])
def test_masks_for_each_head_equal_the_reference(attention, eager_flex, kind, implementation):
    module, config = attention(kind, num_key_value_heads=2)
    case, query, key = draw(config, kind, False, "rows", masked=True, per_head=True)
    expected, _ = reference(module, config, case)
    output, _ = attend(module, config, case, query, key, implementation)
    assert_close(output, expected, kind)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", ["none", "relative"])
def test_fully_masked_query_is_zero_with_finite_gradients(attention, eager_flex, kind, implementation):
    module, config = attention(kind, num_key_value_heads=2)
    case, query, key = draw(config, kind, False, "rows", masked=True)
    case.allowed[0, :, 2] = False
    case.allowed[1] = False
    with torch.set_grad_enabled(implementation != "flex_attention"):  # which has no gradients on CPU
        case.states.requires_grad_()
        output, _ = attend(module, config, case, query, key, implementation)
        expected, _ = reference(module, config, case)
        assert torch.equal(output[0, 2], torch.zeros(16)) and torch.equal(output[1], torch.zeros(LENGTH, 16))
        assert_close(output, expected, kind)
        if implementation != "flex_attention":
            found, wanted = (gradients(module, [case.states], one) for one in (output, expected))
            for one, other in zip(found, wanted, strict=True):
                assert one.isfinite().all()
                assert_close(one, other, kind)


def test_cross_attention_takes_sdpa_for_flash(attention):
    module, config = attention("relative", cross=True)
    config._attn_implementation = "flash_attention_2"
    assert module.implementation == "sdpa"
    refuse_lost_bias(config)  # the relative bias of cross-attention is no obstacle
    config.self_attention_position_type = "relative"
    with pytest.raises(ValueError, match=r'"flash_attention_2" does not support a relative bias'):
        refuse_lost_bias(config)


def swallows_the_bias(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """An attention as many users write it, which ignores everything in `kwargs`."""
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling)


def takes_the_bias(module, query, key, value, attention_mask, scaling, dropout=0.0, position_bias=None, **kwargs):
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, position_bias=position_bias
    )


@pytest.fixture
def own_attention(monkeypatch):
    """Register both as a user would, for one test."""
    for name, function in (("swallows", swallows_the_bias), ("takes", takes_the_bias)):
        monkeypatch.setitem(AttentionInterface._global_mapping, name, function)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, sdpa_mask)


CALL = {"input_ids": torch.tensor([[3, 4, 5, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]]),
        "decoder_input_ids": torch.tensor([[6, 7, 8]])}  # fmt: skip


@pytest.mark.parametrize(("side", "kind"), [("self", "relative"), ("cross", "bucketed")])
def test_registered_attention_without_relative_bias_is_refused(build, own_attention, side, kind):
    field = f"{side}_attention_position_type"
    fields = {field: kind}
    words = (
        rf'"swallows" does not support a relative bias \({field}="{kind}"\): use "sdpa".* a parameter `position_bias`'
    )
    with pytest.raises(ValueError, match=words):
        build(attention="swallows", **fields)
    model = build(attention="sdpa", **fields)
    expected = model(**CALL).logits
    with pytest.raises(ValueError, match=words):  # chosen later
        model.set_attn_implementation("swallows")
        model(**CALL)
    # an attention with a parameter for the bias receives it
    model.set_attn_implementation("takes")
    torch.testing.assert_close(model(**CALL).logits, expected)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("relative_bias"):
                parameter.zero_()
    assert (model(**CALL).logits - expected).abs().max() > 1e-2

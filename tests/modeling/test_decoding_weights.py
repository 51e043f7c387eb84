"""Weights laid out for a few rows give the same products, and nothing else changes."""

import pytest
import torch
from torch import nn

from weftformer import WeftConfig
from weftformer.modeling.decoding import weights
from weftformer.modeling.decoding.weights import FewTokenExperts, PackedLinear, packed
from weftformer.modeling.moe import SparseFeedForward

pytestmark = pytest.mark.skipif(
    not weights.can_pack(torch.empty(1)), reason="this build of torch has no oneDNN to lay weights out with"
)


@pytest.mark.parametrize("shape", [(768, 256), (256, 768), (1024, 1024)])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_the_same(shape, rows, bias):
    torch.manual_seed(0)
    linear, states = nn.Linear(shape[1], shape[0], bias=bias), torch.randn(rows, shape[1])
    with torch.no_grad():
        torch.testing.assert_close(packed(linear)(states), linear(states), atol=1e-5, rtol=1e-5)


def test_bfloat16_is_packed_where_the_cpu_can():
    torch.manual_seed(0)
    linear, states = nn.Linear(512, 512).to(torch.bfloat16), torch.randn(4, 512).to(torch.bfloat16)
    twin = packed(linear)
    assert (type(twin) is PackedLinear) == torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.no_grad():
        torch.testing.assert_close(twin(states), linear(states), atol=0.02, rtol=0.02)


def test_a_twin_shares_what_is_not_packed_and_leaves_the_model_alone():
    model = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 512), nn.Sequential(nn.Linear(512, 8)))
    twin = packed(model)
    assert type(twin[1]) is PackedLinear and type(model[1]) is nn.Linear
    assert twin[0].weight is model[0].weight and twin[2][0] is model[2][0]
    model[1].weight = type("Quantised", (nn.Parameter,), {})(model[1].weight.detach())
    assert packed(model)[1] is model[1]


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("experts", "tokens"), [(4, 1), (4, 6), (20, 6)])
def test_experts_give_the_same_for_a_few_tokens(activation, bias, experts, tokens):
    torch.manual_seed(0)
    config = WeftConfig.from_preset(
        "dms-flex-20m", num_experts=experts, mlp_bias=bias, d_model=256, decoder_ffn_dim=512,
        **({"activation_function": "silu", "is_gated_act": True} if activation == "swiglu" else {}),
    )  # fmt: skip
    config._experts_implementation = "eager"
    feed_forward = SparseFeedForward(config, 512).eval()
    for parameter in feed_forward.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    twin, states = packed(feed_forward), torch.randn(tokens, 256)
    assert type(twin.experts) is FewTokenExperts
    with torch.no_grad():
        torch.testing.assert_close(twin(states), feed_forward(states), atol=1e-4, rtol=1e-4)


def test_experts_are_looped_over_for_few_rows_on_a_cpu_alone(monkeypatch):
    config = WeftConfig.from_preset("dms-flex-20m", d_model=32, decoder_ffn_dim=64)
    feed_forward = SparseFeedForward(config, 64).eval()
    twin, called = packed(feed_forward), []
    monkeypatch.setattr(feed_forward.experts, "forward", lambda tokens, *_: called.append(len(tokens)) or tokens)
    for rows in (50, 51):
        twin(torch.randn(rows, 32))
    assert called == [51]
    feed_forward.to("meta")
    assert packed(feed_forward).experts is feed_forward.experts

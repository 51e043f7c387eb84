"""The dense feed-forward against its formula, spelled out."""

import math

import pytest
import torch

from weftformer.modeling.layers import FeedForward

from ..models import assert_same_gradients

pytestmark = pytest.mark.dtype(torch.float64)

ACTIVATIONS = {
    "relu": lambda x: x * (x > 0),
    "silu": lambda x: x / (1 + (-x).exp()),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
}


def reference(module, states, activation, gated):
    def linear(layer, x):
        output = torch.einsum("...i,oi->...o", x, layer.weight)
        return output if layer.bias is None else output + layer.bias

    hidden = linear(module.up_proj, states)
    if gated:
        hidden = ACTIVATIONS[activation](linear(module.gate_proj, states)) * hidden
    else:
        hidden = ACTIVATIONS[activation](hidden)
    return linear(module.down_proj, hidden)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_forward_and_gradients_equal_the_formula(small, lopsided, gated, bias, activation):
    config = small(is_gated_act=gated, mlp_bias=bias, activation_function=activation)
    module = lopsided(FeedForward(config, 10))
    states = torch.randn(2, 3, 16, requires_grad=True)
    leaves = [states, *module.parameters()]
    assert len(leaves) == 1 + (3 if gated else 2) * (2 if bias else 1)
    assert_same_gradients(module(states), reference(module, states, activation, gated), leaves)


def test_dropout_falls_between_activation_and_second_linear(small, lopsided):
    module = lopsided(FeedForward(small(is_gated_act=False, activation_dropout=0.5, activation_function="relu"), 64))
    states = torch.randn(1, 16)
    torch.testing.assert_close(module(states), reference(module, states, "relu", gated=False))
    seen = []
    module.down_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    module.train()(states)
    full = module.up_proj(states).relu()
    kept = seen[0] != 0
    torch.testing.assert_close(seen[0][kept], full[kept] * 2)
    assert 0.2 < kept.sum() / (full != 0).sum() < 0.8

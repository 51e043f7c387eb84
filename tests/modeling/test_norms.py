"""The norms against their formulas."""

import pytest
import torch
from torch import nn

from weftformer.modeling.layers import StdLayerNorm, build_norm

from ..models import assert_same_gradients

KINDS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm, "stdnorm": StdLayerNorm}


def reference(kind, states, weight, bias, eps):
    mean = states.sum(-1, keepdim=True) / states.shape[-1]
    squares = ((states - mean) ** 2).sum(-1, keepdim=True)
    if kind == "rmsnorm":
        return states / ((states**2).sum(-1, keepdim=True) / states.shape[-1] + eps).sqrt() * weight
    if kind == "layernorm":
        normed = (states - mean) / (squares / states.shape[-1] + eps).sqrt()
    else:
        normed = (states - mean) / ((squares / (states.shape[-1] - 1)).sqrt() + eps)
    return normed * weight + (0.0 if bias is None else bias)


@pytest.mark.dtype(torch.float64)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_forward_and_gradients_equal_the_formula(small, lopsided, kind, bias, eps):
    norm = lopsided(build_norm(small(norm_type=kind, norm_eps=eps, norm_bias=bias)))
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, 16))
    has_bias = bias and kind != "rmsnorm"
    assert (getattr(norm, "bias", None) is not None) == has_bias
    states = (torch.randn(3, 5, 16) * 2 + 1).requires_grad_()
    expected = reference(kind, states, norm.weight, norm.bias if has_bias else None, eps)
    assert_same_gradients(norm(states), expected, [states, *norm.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_row_stays_finite_forward_and_backward(small, kind):
    norm = build_norm(small(norm_type=kind))
    for value in (0.0, 3.0):
        states = torch.full((1, 16), value, requires_grad=True)
        output = norm(states)
        output.sum().backward()
        assert output.isfinite().all() and states.grad.isfinite().all()

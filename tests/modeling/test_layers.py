"""Layers: places and rates of dropout, and norms. `tests/conversion/test_parity.py` compares whole layers with
others'.
"""

import pytest
import torch
from torch import nn

from weftformer.modeling.layers import FeedForward, build_norm, dropout
from weftformer.modeling.modeling_weft import WeftDecoderLayer, WeftEncoderLayer

from ..models import assert_same_gradients

pytestmark = pytest.mark.dtype(torch.float64)


def states(length, seed=0):
    return torch.randn(2, length, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_layer_without_a_source_is_one_of_an_encoder(small, lopsided, norm_first):
    config = small(decoder_ffn_dim=20, norm_first=norm_first)
    config._attn_implementation = "eager"
    decoder, encoder = lopsided(WeftDecoderLayer(config, 0)), WeftEncoderLayer(config, 0)
    encoder.load_state_dict(decoder.state_dict(), strict=False)
    torch.testing.assert_close(decoder(states(4)), encoder(states(4)))


class Constant(nn.Module):
    """A sub-layer that returns 1 for everything."""

    def __init__(self, is_attention):
        super().__init__()
        self.is_attention = is_attention

    def forward(self, hidden_states, *args, **kwargs):
        ones = torch.ones_like(hidden_states)
        return (ones, None) if self.is_attention else ones


@pytest.mark.parametrize("part", ["self_attn", "encoder_attn", "mlp"])
def test_dropout_of_each_sub_layer(small, lopsided, part):
    module = lopsided(WeftDecoderLayer(small(dropout=0.75), 0))
    for name in ("self_attn", "encoder_attn", "mlp"):
        setattr(module, name, Constant(is_attention=name != "mlp"))
        if name != part:
            getattr(module, name).register_forward_hook(
                lambda _, args, output: (output[0] * 0, None) if isinstance(output, tuple) else output * 0
            )
    x, source = states(40), states(6)
    torch.testing.assert_close(module(x, encoder_hidden_states=source), x + 1)
    added = module.train()(x, encoder_hidden_states=source) - x
    kept = added > 2
    torch.testing.assert_close(added, kept * 4.0)  # 1 / (1 - 0.75)
    assert 0.15 < kept.float().mean() < 0.35


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("shape", [(1000, 999), (3,), (0, 4)])
def test_dropout_rate_and_mean(p, shape):
    torch.manual_seed(0)
    ones = torch.ones(shape)
    found = dropout(ones, p, training=True)
    assert found.shape == shape and found.dtype == ones.dtype
    assert all(value in (0, pytest.approx(1 / (1 - p), rel=1e-4)) for value in found.unique().tolist())
    if len(shape) == 2 and shape[0]:
        assert float(found.count_nonzero()) / found.numel() == pytest.approx(1 - p, abs=2e-3)  # 4 deviations
        assert float(found.mean()) == pytest.approx(1.0, abs=4e-3)
        # neighbours, which share a word, know nothing of each other
        kept = found.bool()
        assert float((kept[:, 0:996:4] & kept[:, 1:996:4]).double().mean()) == pytest.approx((1 - p) ** 2, abs=5e-3)


@pytest.mark.parametrize("bias", [True, False])
def test_stdnorm_equals_its_formula(small, lopsided, bias):
    norm = lopsided(build_norm(small(norm_type="stdnorm", norm_eps=0.3, norm_bias=bias)))
    states = (torch.randn(3, 5, 16) * 2 + 1).requires_grad_()
    expected = (states - states.mean(-1, keepdim=True)) / (states.std(-1, keepdim=True) + 0.3) * norm.weight
    assert_same_gradients(norm(states), expected + norm.bias if bias else expected, [states, *norm.parameters()])


def test_activation_dropout(small, lopsided):
    module = lopsided(FeedForward(small(is_gated_act=False, activation_dropout=0.5, activation_function="relu"), 64))
    states = torch.randn(1, 16)
    torch.testing.assert_close(module(states), module.down_proj(module.up_proj(states).relu()))
    seen = []
    module.down_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    module.train()(states)
    full = module.up_proj(states).relu()
    kept = seen[0] != 0
    torch.testing.assert_close(seen[0][kept], full[kept] * 2)
    assert 0.2 < kept.sum() / (full != 0).sum() < 0.8

"""Peculiarities of symm-learning's layers. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch
from torch import nn

from weftformer.conversion import SOURCES, convert

from .references.symm import DISTANCE, HEAD_FIELDS, TARGET, attention, build, draw, reference

pytestmark = pytest.mark.dtype(torch.float64)


@pytest.mark.parametrize("kind", ["none", "relative"])
def test_the_usual_causal_call(kind):
    """A stack takes this mask for a causal hint, and with the hint torch's attention drops the mask it was given.

    Where nothing is padded, the relative bias, which is part of that mask, goes with it: a bug there, not copied here.
    """
    one = reference(kind, kind, "defaults", stack=2)
    (target, memory), _, _ = draw("defaults")
    expected = one.module(target, memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(TARGET))
    model = one.converted().build()
    if kind == "relative":
        assert (one.found(model) - expected).abs().max() > 0.1
        for layer in model.layers:
            nn.init.zeros_(layer.self_attn.relative_bias)
    torch.testing.assert_close(one.found(model), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_the_kind_of_norm_is_seen_by_its_bias(norm):
    weights = build(norm=norm, norm_first=False).state_dict()
    assert convert(weights, SOURCES["symm"], overrides=HEAD_FIELDS).config.norm_type == norm


def test_tables_of_different_lengths_do_not_fit():
    own, cross = (attention("relative", distance=distance) for distance in (DISTANCE, DISTANCE + 1))
    with pytest.raises(ValueError, match=r"encoder_attn\.relative_bias would have shape \(7,\)"):
        reference("relative", "relative", attentions=[own, cross]).converted()

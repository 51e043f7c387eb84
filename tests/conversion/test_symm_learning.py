"""Peculiarities of symm-learning's layers. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion import SOURCES, convert

from .references.symm import DISTANCE, HEAD_FIELDS, attention, build, reference

pytestmark = pytest.mark.dtype(torch.float64)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_the_kind_of_norm_is_seen_by_its_bias(norm):
    weights = build(norm=norm, norm_first=False).state_dict()
    assert convert(weights, SOURCES["symm"], overrides=HEAD_FIELDS).config.norm_type == norm


def test_tables_of_different_lengths_do_not_fit():
    own, cross = (attention("relative", distance=distance) for distance in (DISTANCE, DISTANCE + 1))
    with pytest.raises(ValueError, match=r"encoder_attn\.relative_bias would have shape \(7,\)"):
        reference("relative", "relative", attentions=[own, cross]).converted()

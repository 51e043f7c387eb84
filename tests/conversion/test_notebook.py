"""Dropout in the notebook's transformer. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from .references import largest_error
from .references.notebook import CASES, DROPOUT

pytestmark = pytest.mark.dtype(torch.float64)


def test_training_drops_attention_weights():
    """The same seed drops the same weights; nothing else is dropped here, so that the two stay in step."""
    reference = CASES["a length a row"]()
    model = reference.converted(dropout=0.0).build().train()
    model.set_attn_implementation("eager")
    assert model.config.attention_dropout == DROPOUT
    undropped = reference.expected()
    reference.module.train()
    expected = reference.expected()
    assert largest_error(reference.found(model), expected) < 1e-6 and largest_error(undropped, expected) > 1e-2

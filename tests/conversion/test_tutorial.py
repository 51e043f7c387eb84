"""Peculiarities of the tutorial's transformer. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch
from torch import nn

from weftformer.conversion.tutorial import special_tokens
from weftformer.modeling import layers, modeling_weft

from .references import largest_error
from .references.tutorial import CASES, ENGLISH, PERSIAN

pytestmark = pytest.mark.dtype(torch.float64)


@pytest.fixture
def reference():
    return CASES["added"]()


def test_training_drops_what_the_text_drops(reference, monkeypatch):
    """Numbers are dropped in the same places: after embeddings and sub-layers, and behind the ReLU."""
    for module in (layers, modeling_weft):  # torch's, whose masks the text has
        monkeypatch.setattr(module, "dropout", nn.functional.dropout)
    model = reference.converted().build().train()
    assert (model.config.dropout, model.config.activation_dropout, model.config.attention_dropout) == (0.1, 0.1, 0.0)
    undropped = reference.expected()
    reference.module.train()
    expected = reference.expected()
    assert largest_error(reference.found(model), expected) < 1e-6 and largest_error(undropped, expected) > 0.1


def test_special_tokens_come_from_the_vocabularies(reference):
    ids = {"pad_token_id": 17, "bos_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 28}
    assert special_tokens(ENGLISH, PERSIAN) == ids
    model = reference.converted().build()
    assert {name: getattr(model.config, name) for name in ids} == ids
    assert model.generation_config.pad_token_id == 27
    for name in ("<SOS>", "<PAD>", "<EOS>"):
        with pytest.raises(ValueError, match=f"target vocabulary has no {name}"):
            special_tokens(ENGLISH, {token: i for token, i in PERSIAN.items() if token != name})

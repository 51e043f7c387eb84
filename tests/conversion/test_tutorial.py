"""Peculiarities of the tutorial's transformer. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion.tutorial import special_tokens

from .references.tutorial import CASES, ENGLISH, PERSIAN

pytestmark = pytest.mark.dtype(torch.float64)


@pytest.fixture
def reference():
    return CASES["added"]()


def test_special_tokens_come_from_the_vocabularies(reference):
    ids = {"pad_token_id": 17, "bos_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 28}
    assert special_tokens(ENGLISH, PERSIAN) == ids
    model = reference.converted().build()
    assert {name: getattr(model.config, name) for name in ids} == ids
    assert model.generation_config.pad_token_id == 27
    for name in ("<SOS>", "<PAD>", "<EOS>"):
        with pytest.raises(ValueError, match=f"target vocabulary has no {name}"):
            special_tokens(ENGLISH, {token: i for token, i in PERSIAN.items() if token != name})

"""The notebook's transformer: valid lengths and its state. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion.notebook import valid_length_mask

from .references import largest_error
from .references.notebook import CASES, DROPOUT, SOURCE_LENGTH, TARGET_LENGTH, draw

pytestmark = pytest.mark.dtype(torch.float64)


def test_valid_lengths_become_masks():
    assert valid_length_mask(torch.tensor([1, 3]), 3).tolist() == [[1, 0, 0], [1, 1, 1]]
    mask = valid_length_mask(torch.tensor([[1, 2], [3, 1]]), 3)
    assert mask.dtype == torch.bool
    assert mask.int().tolist() == [[[[1, 0, 0], [1, 1, 0]]], [[[1, 1, 1], [1, 0, 0]]]]


@pytest.mark.parametrize("per_query", [False, True], ids=["a length a row", "a length a query"])
def test_the_cache_is_the_state(per_query):
    reference = CASES["a length a row"]()
    module, model = reference.module, reference.converted().build()
    source, target, lengths, by_query = draw()
    encoder_lengths = by_query["encoder"] if per_query else lengths
    with torch.no_grad():
        whole = module(source, encoder_lengths, target, cross_lengths=by_query["cross"] if per_query else None)
        states = module.encode(source, encoder_lengths)
        encoded = model.model.encoder(source, attention_mask=valid_length_mask(encoder_lengths, SOURCE_LENGTH))
        assert largest_error(encoded.last_hidden_state, states) < 1e-6
        state, cache = [], None
        for index in range(TARGET_LENGTH):
            token = target[:, index : index + 1]
            seen = by_query["cross"][:, index : index + 1] if per_query else lengths
            expected = module.step(token, state, states, seen)
            out = model(
                encoder_outputs=encoded, encoder_attention_mask=valid_length_mask(seen, SOURCE_LENGTH),
                decoder_input_ids=token, past_key_values=cache, use_cache=True,
            )  # fmt: skip
            cache = out.past_key_values
            assert largest_error(out.logits, expected) < 1e-6
            assert largest_error(expected, whole[:, index : index + 1]) < 1e-6
            assert cache.get_seq_length() == state[0].shape[1] == index + 1


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

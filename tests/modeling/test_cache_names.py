"""The cache is `cache` and `past_key_values` in every release of transformers."""

import pickle

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from weftformer.modeling.transformers_names import CACHE

from ..models import tiny_model

NAMES = ("cache", "past_key_values")
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
PREFIX = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])
LENGTH = {"min_new_tokens": 6, "max_new_tokens": 6}


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_forward_takes_and_returns_both_names(name):
    model = tiny_model(random=True)
    states = model.model.encoder(IDS, attention_mask=IDS != 0).last_hidden_state
    whole = {"input_ids": IDS, "attention_mask": IDS != 0}
    for part, call, ids in (
        (model, whole, "decoder_input_ids"),
        (model.model, whole, "decoder_input_ids"),
        (model.model.decoder, {"encoder_hidden_states": states, "encoder_attention_mask": IDS != 0}, "input_ids"),
    ):
        first = part(**call, **{ids: PREFIX[:, :2]})
        assert first.cache is first.past_key_values is first[name] is first.get(name)
        assert name in first and "caches" not in first and [key for key in first if key in NAMES] == [CACHE]
        rest = part(**call, **{ids: PREFIX[:, 2:], name: first[name]})
        torch.testing.assert_close(rest[0], part(**call, **{ids: PREFIX})[0][:, 2:], rtol=1e-4, atol=1e-4)
        assert rest.cache is first.cache and rest.cache.get_seq_length() == 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("request_", [{}, {"num_beams": 3}, {"cache_implementation": "dynamic"}], ids=str)
def test_generate_takes_and_returns_both_names(request_, name):
    model = tiny_model(random=True)
    request = {**LENGTH, **request_, "return_dict_in_generate": True}
    output = model.generate(IDS, **request)
    assert output.cache is output.past_key_values is output[name] is not None
    assert type(pickle.loads(pickle.dumps(output))) is type(output)
    if "cache_implementation" not in request:
        own = EncoderDecoderCache(DynamicCache(), DynamicCache())
        again = model.generate(IDS, **request, **{name: own})
        assert torch.equal(again.sequences, output.sequences)
        assert own.get_seq_length() == output.cache.get_seq_length() == 6

"""The cache: cross-attention projects its keys and values once, and cached steps equal the whole."""

import pytest
import torch
from transformers.cache_utils import EncoderDecoderCache, StaticCache

from weftformer.modeling.attention import new_cache, reuse_or_fill

pytestmark = pytest.mark.dtype(torch.float64)

IDS = torch.tensor([[5, 6, 0, 0, 7, 8], [9, 10, 11, 12, 13, 14]])
TARGET = torch.tensor([[1, 4, 5, 6, 7], [1, 7, 8, 9, 10]])


def keys_values(value):
    return torch.full((1, 2, 3, 4), value), torch.full((1, 2, 3, 4), -value)


def test_cross_attention_projects_the_source_once(small):
    cache, calls = new_cache(small()), []

    def project(layer):
        calls.append(layer)
        return keys_values(float(layer + 1))

    for _ in range(3):
        for layer in (0, 1):
            keys, values = reuse_or_fill(cache, layer, lambda layer=layer: project(layer))
            assert torch.equal(keys, keys_values(float(layer + 1))[0])
            assert torch.equal(values, keys_values(float(layer + 1))[1])
    assert calls == [0, 1]


def static_cache(model, length):
    config = model.config.get_text_config(decoder=True)
    return EncoderDecoderCache(
        StaticCache(config=config, max_cache_len=length), StaticCache(config=config, max_cache_len=IDS.shape[1])
    )


@pytest.mark.parametrize("kind", ["rotary", "relative", "bucketed"])
def test_free_columns_of_a_static_cache_are_not_read(build, kind):
    model = build(attention="sdpa", self_attention_position_type=kind)
    states = model.model.encoder(input_ids=IDS)
    expected = model(encoder_outputs=states, decoder_input_ids=TARGET).logits
    cache = static_cache(model, 11)
    first = model(encoder_outputs=states, decoder_input_ids=TARGET[:, :2], cache=cache).logits
    for layer in cache.self_attention_cache.layers:
        layer.keys[:, :, 2:] = 1e4
        layer.values[:, :, 2:] = 1e4
    rest = [
        model(encoder_outputs=states, decoder_input_ids=TARGET[:, t : t + 1], cache=cache).logits for t in range(2, 5)
    ]
    torch.testing.assert_close(torch.cat([first, *rest], dim=1), expected, atol=1e-10, rtol=1e-10)

"""The two halves of an encoder-decoder cache, and the one place where cross-attention reuses its keys and values."""

from collections.abc import Callable

from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from ..configuration.configuration_weft import WeftConfig
from .decoding_cache import DecodingCache, KeysValues


def new_cache(config: WeftConfig) -> EncoderDecoderCache:
    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def self_attention_cache(past_key_values: Cache | None) -> Cache | None:
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values.self_attention_cache
    return past_key_values


def reuse_or_fill(past_key_values: Cache | None, layer_idx: int, project: Callable[[], KeysValues]) -> KeysValues:
    """Keys and values of the source: from the cache once a layer has filled it, else projected (and kept)."""
    if not isinstance(past_key_values, EncoderDecoderCache):
        return project()
    if isinstance(past_key_values, DecodingCache):  # keeps them in a form of its own
        return past_key_values.cross_attention_cache.update(*project(), layer_idx)
    cache = past_key_values.cross_attention_cache
    if past_key_values.is_updated.get(layer_idx):
        return cache.layers[layer_idx].keys, cache.layers[layer_idx].values
    keys, values = cache.update(*project(), layer_idx)
    past_key_values.is_updated[layer_idx] = True
    return keys, values

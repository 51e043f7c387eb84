"""The output of `generate` has the form of that of BART: the same classes, parts and shapes.

transformers' own tests of generation are not in its source distribution; these hold Weft to the same by comparing the two.
"""

from functools import cache
from typing import Any

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache, StaticCache

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.transformers_names import CACHE

SIZES = {
    "vocab_size": 31, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "dense": {"norm_first": False, "position_embedding_type": "learned", "self_attention_position_type": "none"},
    "grouped": {"num_key_value_heads": 2},
    "sparse": {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4},
}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sample": {"do_sample": True, "num_return_sequences": 2, "top_k": 5},
    "beam search": {"num_beams": 3, "num_return_sequences": 2},
    "beam sample": {"num_beams": 2, "do_sample": True},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "static cache": {"cache_implementation": "static"},
    "no cache": {"use_cache": False},
}
RECORDS: dict[str, dict[str, Any]] = {
    "alone": {},
    "scores": {"output_scores": True, "output_logits": True},
    "everything": {
        "output_scores": True,
        "output_logits": True,
        "output_attentions": True,
        "output_hidden_states": True,
    },
}
NEW = 4


# every form with grouped heads, and for the other layers the forms with everything that can be recorded
CASES = [("grouped", mode, record) for mode in MODES for record in RECORDS]
CASES += [(name, mode, "everything") for name in ("dense", "sparse") for mode in ("greedy", "beam search")]


@cache
def model_of(name: str) -> Any:
    torch.manual_seed(0)
    return WeftForConditionalGeneration(WeftConfig(**SIZES, **CONFIGURATIONS[name])).eval()


@pytest.fixture(scope="module")
def bart() -> Any:
    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**SIZES, max_position_embeddings=40)).eval()


def generate(model, mode: str, record: str) -> Any:
    model.set_attn_implementation("eager" if "output_attentions" in RECORDS[record] else "sdpa")
    source = torch.arange(3, 13).view(1 if mode == "prompt lookup" else 2, -1)
    settings = MODES[mode] | RECORDS[record]
    torch.manual_seed(0)
    return model.generate(
        source,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        return_dict_in_generate=True,
        forced_eos_token_id=None,
        **settings,
    )


def form(value: Any) -> Any:
    """Return classes and shapes, without the values."""
    if isinstance(value, EncoderDecoderCache):
        return EncoderDecoderCache, form(value.self_attention_cache), form(value.cross_attention_cache)
    if isinstance(value, Cache):
        kind = StaticCache if isinstance(value, StaticCache) else DynamicCache
        assert isinstance(value, kind)
        return kind, len(value), [(type(layer), layer.keys.shape, layer.values.shape) for layer in value.layers]
    if isinstance(value, tuple):
        return tuple(form(part) for part in value)
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(("name", "mode", "record"), CASES)
def test_outputs_have_the_form_of_barts(bart, name, mode, record):
    model = model_of(name)
    expected = generate(bart, mode, record)
    whole = getattr(expected, CACHE)
    if whole is not None:  # BART has keys and values for each of its heads
        heads = model.config.num_key_value_heads or model.config.decoder_attention_heads
        for cache in (whole.self_attention_cache, whole.cross_attention_cache):
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[:, :heads], layer.values[:, :heads]
    found = generate(model, mode, record)
    assert isinstance(found, type(expected))
    assert list(found) == list(expected)
    for key in expected:
        assert form(found[key]) == form(expected[key]), key

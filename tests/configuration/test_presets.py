"""The named sizes have the published numbers."""

from functools import cache

import pytest
import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration import PRESETS
from weftformer.configuration.derived import DERIVED

# encoder layers, decoder layers, source window, experts, learned step vector, parameters: from `default_configs/*.yaml` of
# DirectMultiStep 1.1.3 and from its own modules, counted on the meta device. The explorers hold a step vector of 256
# numbers which they never read; it is left out here.
DMS = {
    "dms-flash-10m": (6, 6, 280, None, 1, 9_857_333),
    "dms-flash-20m": (12, 12, 280, None, 1, 19_326_773),
    "dms-flex-20m": (6, 6, 280, 3, 1, 19_337_597),
    "dms-deep-40m": (12, 36, 145, None, 1, 41_386_037),
    "dms-wide-40m": (12, 12, 145, 3, 1, 38_252_741),
    "dms-explorer-19m": (6, 6, 280, 3, 0, 19_337_597 - 256),
    "dms-explorer-xl-50m": (6, 24, 145, 3, 0, 50_093_801 - 256),
}
SHARED = {
    "max_target_positions": 1075, "vocab_size": 53, "target_vocab_size": 53, "d_model": 256,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 768, "decoder_ffn_dim": 768,
    "activation_function": "gelu", "norm_type": "layernorm", "norm_eps": 1e-5, "norm_first": False,
    "has_final_norm": False, "scale_embedding": True, "dropout": 0.1, "pad_token_id": 52, "decoder_start_token_id": 0,
    "eos_token_id": 22, "infer_attention_mask": True,
}  # fmt: skip
SPARSE = {"num_experts": 3, "num_experts_per_tok": 2, "router_type": "noisy_top_k", "router_bias": True}


@cache
def build(name: str) -> WeftForConditionalGeneration:
    with torch.device("meta"):
        return WeftForConditionalGeneration(WeftConfig.from_preset(name))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", DMS)
def test_dms_presets_have_the_published_shape(name):
    encoder_layers, decoder_layers, window, experts, features, count = DMS[name]
    kind = "dense" if experts is None else "sparse"
    expected = SHARED | ({} if experts is None else SPARSE) | {
        "max_source_positions": window, "encoder_mlp_layer_types": [kind] * encoder_layers,
        "decoder_mlp_layer_types": [kind] * decoder_layers, "num_condition_features": features,
    }  # fmt: skip
    config = WeftConfig.from_preset(name)
    assert {field: getattr(config, field) for field in expected} == expected
    assert parameters(build(name)) == count


# By hand, for the sizes that are Weft's own or have one table for everything: embeddings, encoder, decoder.
def test_transformer_base_has_the_published_number_of_parameters():
    d, ffn = 512, 2048
    attention, norm, feed_forward = 4 * (d * d + d), 2 * d, 2 * d * ffn + ffn + d
    expected = 37000 * d + 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert parameters(build("transformer-base")) == expected
    assert expected / 1e6 == pytest.approx(63, abs=2)  # "65" in their table 3, with positions and a larger vocabulary


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_and_equal_their_file(name, tmp_path):
    config = WeftConfig.from_preset(name)
    config.save_pretrained(tmp_path)
    loaded, given = WeftConfig.from_pretrained(tmp_path).to_diff_dict(), config.to_diff_dict()
    assert loaded | {"auto_map": None} == given | {"auto_map": None}
    assert parameters(build(name)) > 1e6
    assert all(isinstance(getattr(config.get_text_config(decoder=True), field), int) for field in DERIVED)

"""The named sizes have the published numbers."""

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
    "dms-flash-10m": (6, 6, 280, None, True, 9_857_333),
    "dms-flash-20m": (12, 12, 280, None, True, 19_326_773),
    "dms-flex-20m": (6, 6, 280, 3, True, 19_337_597),
    "dms-deep-40m": (12, 36, 145, None, True, 41_386_037),
    "dms-wide-40m": (12, 12, 145, 3, True, 38_252_741),
    "dms-explorer-19m": (6, 6, 280, 3, False, 19_337_597 - 256),
    "dms-explorer-xl-50m": (6, 24, 145, 3, False, 50_093_801 - 256),
}


def build(name: str) -> WeftForConditionalGeneration:
    with torch.device("meta"):
        return WeftForConditionalGeneration(WeftConfig.from_preset(name))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", DMS)
def test_dms_presets_have_the_published_shape(name):
    encoder_layers, decoder_layers, window, experts, has_steps, count = DMS[name]
    config = WeftConfig.from_preset(name)
    assert (config.encoder_layers, config.decoder_layers) == (encoder_layers, decoder_layers)
    assert (config.max_source_positions, config.max_target_positions) == (window, 1075)
    assert (config.vocab_size, config.target_vocab_size, config.d_model) == (53, 53, 256)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (8, 8)
    assert (config.encoder_ffn_dim, config.decoder_ffn_dim, config.activation_function) == (768, 768, "gelu")
    assert (config.norm_type, config.norm_eps) == ("layernorm", 1e-5)
    assert (config.norm_first, config.has_final_norm) == (False, False)
    assert (config.scale_embedding, config.dropout) == (True, 0.1)
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (52, 0, 22)
    kind = "dense" if experts is None else "sparse"
    assert config.encoder_mlp_layer_types == [kind] * encoder_layers
    assert config.decoder_mlp_layer_types == [kind] * decoder_layers
    if experts is not None:
        assert (config.num_experts, config.num_experts_per_tok) == (experts, 2)
        assert (config.router_type, config.router_bias) == ("noisy_top_k", True)
    assert config.num_condition_features == int(has_steps)
    assert config.infer_attention_mask  # pads stand in the middle of a source
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
    assert WeftConfig.from_pretrained(tmp_path).to_diff_dict() | {"auto_map": None} == config.to_diff_dict() | {
        "auto_map": None
    }
    assert parameters(build(name)) > 1e6
    for one in (config, config.get_text_config(decoder=True)):
        assert all(isinstance(getattr(one, field), int) for field in DERIVED)


def test_unknown_preset_is_refused_with_a_suggestion():
    with pytest.raises(ValueError) as error:
        WeftConfig.from_preset("dms-flash-10")
    assert "'dms-flash-10'" in str(error.value)
    assert all(name in str(error.value) for name in PRESETS)
    assert "Did you mean `dms-flash-10m`?" in str(error.value)

"""Presets: named configurations. Each one lists all differences from the defaults of `WeftConfig`.

The seven `dms-*` sizes are those of DirectMultiStep 1.1.3 (Shee, Li, Morgunov and Batista 2024, arXiv:2405.13983),
from the files in its wheel's `default_configs/`. `transformer-base` is the base model of Vaswani et al. 2017, and
`tiny` is the Transformer-Tiny of Wu et al. 2021. The `modern-*` sizes and `dms-tiny` are Weft's own. `dms-tiny`
combines DirectMultiStep's vocabulary and its number of steps with a modern architecture, and is small enough to train
on two CPU cores.
"""

from typing import Any

from ..common.rules import closest

_POST_NORM: dict[str, Any] = {
    "norm_type": "layernorm",
    "norm_eps": 1e-5,
    "norm_first": False,
    "is_gated_act": False,
    "mlp_bias": True,
    "scale_embedding": True,
    "self_attention_position_type": "none",
}

_VASWANI: dict[str, Any] = _POST_NORM | {
    "attention_bias": True,
    "attention_out_bias": True,
    "activation_function": "relu",
    "position_embedding_type": "sinusoidal",
}

# The vocabulary and lengths of routes, with the number of steps as condition. `infer_attention_mask` is on because a
# source has pads in its middle, between the product and the starting material, and the tokenizer gives no mask.
_ROUTES: dict[str, Any] = {
    "vocab_size": 53,
    "pad_token_id": 52,
    "bos_token_id": 0,
    "eos_token_id": 22,
    "decoder_start_token_id": 0,
    "max_source_positions": 280,
    "max_target_positions": 1075,
    "num_condition_features": 1,
    "infer_attention_mask": True,
}

_DMS: dict[str, Any] = (
    _POST_NORM
    | _ROUTES
    | {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "lm_head_bias": True,
        "d_model": 256,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 768,
        "decoder_ffn_dim": 768,
        "attention_bias": False,
        "attention_out_bias": True,
        "activation_function": "gelu",
        "position_embedding_type": "learned",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    }
)

# Deterministic at inference and without dropped tokens. The published behaviour (noise at inference, capacity factor
# 1.0) is router_noise="always", expert_capacity_factor=1.0.
_DMS_SPARSE: dict[str, Any] = _DMS | {
    "encoder_mlp_layer_types": "sparse",
    "decoder_mlp_layer_types": "sparse",
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "router_type": "noisy_top_k",
    "router_bias": True,
    # The experts have no dropout between their two linear layers.
    "activation_dropout": 0.0,
}


def _layers(encoder: int, decoder: int) -> dict[str, Any]:
    return {"encoder_layers": encoder, "decoder_layers": decoder}


def _width(d_model: int, heads: int, ffn: int) -> dict[str, Any]:
    return {
        "d_model": d_model,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": ffn,
        "decoder_ffn_dim": ffn,
    }


# Rotary positions in cross-attention too: source and target have the same frequencies, so a span copied from the
# source has a constant offset. Routes copy much of the source: after 300 steps the same small model had a test loss of
# 0.27 with this, and of 0.40 without. In the cleaning of titles, 80 % of 300 were right with this and 60 % without
# (`modern-tiny`, 3,000 pairs, ten epochs).
COPYING = {"cross_attention_position_type": "rotary"}

# A small post-norm model learns slowly at first with large weights. On Multi30k German the validation loss after 1,000
# steps was 2.80 with this and 3.85 without it (2,048 tokens a step, learning rate 3e-3), and 4.54 and 5.12 (32 pairs a
# step, 5e-4).
_SMALL_WEIGHTS = {"init_std": 0.02}

_EVERY_SECOND = {
    "encoder_mlp_layer_types": ["dense", "sparse"] * 6,
    "decoder_mlp_layer_types": ["dense", "sparse"] * 6,
}

# As published (Wang et al. 2024, arXiv:2408.15664): balanced by a bias alone, without a balance loss.
_BALANCED_BY_BIAS = {"router_bias_update_rate": 1e-3, "router_aux_loss_coef": 0.0}

PRESETS: dict[str, dict[str, Any]] = {
    "dms-flash-10m": _DMS | _layers(6, 6),
    "dms-flash-20m": _DMS | _layers(12, 12),
    "dms-flex-20m": _DMS_SPARSE | _layers(6, 6),
    "dms-deep-40m": _DMS | _layers(12, 36) | {"max_source_positions": 145},
    "dms-wide-40m": _DMS_SPARSE | _layers(12, 12) | {"max_source_positions": 145},
    "dms-explorer-19m": _DMS_SPARSE | _layers(6, 6) | {"num_condition_features": 0},
    "dms-explorer-xl-50m": _DMS_SPARSE | _layers(6, 24) | {"num_condition_features": 0, "max_source_positions": 145},
    "transformer-base": _VASWANI | _layers(6, 6) | _width(512, 8, 2048) | {"vocab_size": 37000},
    "tiny": _VASWANI | _layers(4, 4) | _width(128, 4, 256) | {"vocab_size": 10000, "dropout": 0.3} | _SMALL_WEIGHTS,
    "dms-tiny": _ROUTES | _layers(3, 3) | _width(128, 4, 256) | COPYING | {"dropout": 0.0},
    "modern-tiny": _layers(3, 3) | _width(192, 6, 512) | {"vocab_size": 8000},
    "modern-small": _layers(6, 6) | _width(384, 6, 1024),
    "modern-base": _layers(12, 12) | _width(768, 12, 2048) | {"num_key_value_heads": 4, "use_qk_norm": True},
    "modern-base-moe": _layers(12, 12)
    | _width(768, 12, 2048)
    | _EVERY_SECOND
    | _BALANCED_BY_BIAS
    | {"num_key_value_heads": 4, "use_qk_norm": True, "moe_intermediate_size": 1024},
}


def preset_fields(name: str) -> dict[str, Any]:
    """Return a copy of the fields of a preset.

    Raises:
        ValueError: there is no such preset. The message lists all presets.
    """
    if name not in PRESETS:
        raise ValueError(
            f"There is no preset {name!r}: choose one of {', '.join(PRESETS)}.{closest(str(name), PRESETS)}"
        )
    return {key: list(value) if isinstance(value, list) else value for key, value in PRESETS[name].items()}

"""Derives a configuration from the keys and shapes of weights."""

from collections.abc import Mapping
from typing import Any

import torch

from .table import KeyTable, match, origin


def count(weights: Mapping[str, torch.Tensor], pattern: str, place: str = "layer") -> int:
    """Return the number of different values of the placeholder `place` in the keys that match.

    Other placeholders may have any value.
    """
    return len({places[place] for key in weights if (places := match(pattern, key)) is not None})


def first(weights: Mapping[str, torch.Tensor], *patterns: str) -> torch.Tensor:
    """Return the first tensor whose key matches the first pattern, or else the second, and so on.

    Raises:
        ValueError: no key matches. The message names the patterns.
    """
    for pattern in patterns:
        for key, tensor in weights.items():
            if match(pattern, key) is not None:
                return tensor
    raise ValueError(f"No key matches {' or '.join(patterns)}, which is needed to find the configuration.")


def has(weights: Mapping[str, torch.Tensor], *patterns: str) -> bool:
    return any(match(pattern, key) is not None for pattern in patterns for key in weights)


# The fields without tensors of a post-norm transformer with ReLU and sinusoidal positions (Vaswani et al. 2017).
VASWANI: dict[str, Any] = {
    "scale_embedding": True,
    "norm_type": "layernorm",
    "norm_eps": 1e-5,
    "norm_first": False,
    "activation_function": "relu",
    "is_gated_act": False,
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "interleaved",
    "self_attention_position_type": "none",
    "cross_attention_position_type": "none",
}


def vaswani_fields(weights: Mapping[str, torch.Tensor], table: KeyTable, axis: int = 0) -> dict[str, Any]:
    """Return the fields of a post-norm transformer with ReLU and sinusoidal positions (Vaswani et al. 2017).

    Args:
        weights: the source's tensors by its keys.
        table: the source's table of keys.
        axis: the axis of the feed-forward's first weight whose length is the width of the feed-forward.
    """

    def has_key(key: str) -> bool:
        return origin(key, table) in weights

    is_shared = has_key("model.shared.weight")
    names = ["shared"] if is_shared else ["encoder.embed_tokens", "decoder.embed_tokens"]
    source, *target = (first(weights, origin(f"model.{name}.weight", table)) for name in names)
    layer = "model.encoder.layers.0"
    fields: dict[str, Any] = {
        "vocab_size": source.shape[0],
        "decoder_vocab_size": None if is_shared else target[0].shape[0],
        "share_encoder_decoder_embeddings": is_shared,
        "tie_word_embeddings": False,
        "d_model": source.shape[1],
        **VASWANI,
        "lm_head_bias": has_key("lm_head.bias"),
        "mlp_bias": has_key(f"{layer}.mlp.up_proj.bias"),
        "attention_bias": has_key(f"{layer}.self_attn.q_proj.bias"),
        "attention_out_bias": has_key(f"{layer}.self_attn.out_proj.bias"),
    }
    for stack in ("encoder", "decoder"):
        linears = [origin(f"model.{stack}.layers.{n}.mlp.up_proj.weight", table) for n in range(len(weights))]
        fields[f"{stack}_layers"] = sum(key in weights for key in linears)
        fields[f"{stack}_ffn_dim"] = first(weights, linears[0]).shape[axis]
    return fields

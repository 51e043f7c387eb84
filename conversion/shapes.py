"""Derives a configuration from the keys and shapes of weights."""

from collections.abc import Mapping
from typing import Any

import torch

from .table import match


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


def vaswani_fields(
    weights: Mapping[str, torch.Tensor],
    source: torch.Tensor,
    target: torch.Tensor | None,
    biases: Mapping[str, str],
    first_linear: str,
    axis: int = 0,
) -> dict[str, Any]:
    """Return the fields of a post-norm transformer with ReLU and sinusoidal positions (Vaswani et al. 2017).

    Args:
        weights: the source's tensors by its keys.
        source: embedding table of the source.
        target: embedding table of the target. None if the two share one.
        biases: for each field that enables biases, the pattern of a bias's key.
        first_linear: pattern of the feed-forward's first weight, with `<stack>` and `<layer>`.
        axis: the axis of this weight whose length is the width of the feed-forward.
    """
    fields: dict[str, Any] = {
        "vocab_size": source.shape[0],
        "decoder_vocab_size": None if target is None else target.shape[0],
        "share_encoder_decoder_embeddings": target is None,
        "tie_word_embeddings": False,
        "d_model": source.shape[1],
        **VASWANI,
    }
    for stack in ("encoder", "decoder"):
        pattern = first_linear.replace("<stack>", stack)
        fields[f"{stack}_layers"] = count(weights, pattern)
        fields[f"{stack}_ffn_dim"] = first(weights, pattern).shape[axis]
    return fields | {field: has(weights, pattern) for field, pattern in biases.items()}

"""Reading a configuration off the shapes of weights."""

from collections.abc import Mapping
from typing import Any

import torch

from .table import match


def count(weights: Mapping[str, torch.Tensor], pattern: str, place: str = "layer") -> int:
    """How many numbers stand in `place` over all keys that fit; other places may hold anything."""
    return len({places[place] for key in weights if (places := match(pattern, key)) is not None})


def first(weights: Mapping[str, torch.Tensor], *patterns: str, dims: int | None = None) -> torch.Tensor:
    """The first tensor whose key fits the first of the patterns that any key fits.

    Raises:
        ValueError: none fits; the message names the patterns.
    """
    for pattern in patterns:
        for key, tensor in weights.items():
            if match(pattern, key) is not None:
                if dims is not None and tensor.dim() != dims:
                    raise ValueError(f"{key} has the shape {tuple(tensor.shape)}, and {dims} dimensions are expected.")
                return tensor
    raise ValueError(f"No key fits {' or '.join(patterns)}, which tells the configuration.")


def has(weights: Mapping[str, torch.Tensor], *patterns: str) -> bool:
    return any(match(pattern, key) is not None for pattern in patterns for key in weights)


def vaswani_fields(
    weights: Mapping[str, torch.Tensor],
    source: torch.Tensor,
    target: torch.Tensor | None,
    biases: Mapping[str, str],
    first_linear: str,
    axis: int = 0,
) -> dict[str, Any]:
    """Fields of the post-norm transformer with ReLU and sines (Vaswani et al. 2017) that the tutorials build on.

    Args:
        source, target: the embedding tables; no target where the two are one.
        biases: a field that says whether a bias is there, and the pattern of a key it would have.
        first_linear: pattern of the feed-forward's first weight, with `<stack>` and `<layer>`.
        axis: the axis of that weight that is as long as the feed-forward is wide.
    """
    fields: dict[str, Any] = {
        "vocab_size": source.shape[0],
        "decoder_vocab_size": None if target is None else target.shape[0],
        "share_encoder_decoder_embeddings": target is None,
        "tie_word_embeddings": False,
        "d_model": source.shape[1],
        "scale_embedding": True,
        "norm_type": "layernorm",
        "norm_eps": 1e-5,
        "norm_first": False,
        "activation_function": "relu",
        "is_gated_act": False,
        "position_embedding_type": "sinusoidal",
        "self_attention_position_type": "none",
    }
    for stack in ("encoder", "decoder"):
        pattern = first_linear.replace("<stack>", stack)
        fields[f"{stack}_layers"] = count(weights, pattern)
        fields[f"{stack}_ffn_dim"] = first(weights, pattern).shape[axis]
    return fields | {field: has(weights, pattern) for field, pattern in biases.items()}

"""Reading a configuration off the shapes of weights."""

from collections.abc import Mapping

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

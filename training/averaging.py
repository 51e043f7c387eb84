"""The mean of a run's last checkpoints, which translates a little better than the last one alone."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ..modeling import WeftForConditionalGeneration
from .checkpoints import checkpoints, damage


def average_checkpoints(folder: str | os.PathLike, count: int = 10) -> WeftForConditionalGeneration:
    """A model whose weights are the means of those of the last checkpoints in a folder.

    As in section 6.1 of Vaswani et al. 2017 (arXiv:1706.03762). Sums are made in float64.

    Args:
        folder: the `output_dir` of a training run.
        count: how many of its checkpoints, fewer where there are fewer.

    Raises:
        ValueError: there is no checkpoint, or one is damaged.
    """
    if count < 1:
        raise ValueError(f"count={count} is not allowed: average at least 1 checkpoint.")
    found = checkpoints(folder)[:count]
    if not found:
        raise ValueError(f"{folder} holds no checkpoint-<step> to average.")
    for checkpoint in found:
        if problems := damage(checkpoint):
            raise ValueError(f"In {checkpoint} {', '.join(problems)}: remove it, or average those that come after it.")
    model = WeftForConditionalGeneration.from_pretrained(found[0], dtype=torch.float32)
    model.load_state_dict(_means(found))
    return model


def _means(folders: Sequence[Path]) -> dict[str, torch.Tensor]:
    sums: dict[str, torch.Tensor] = {}
    for folder in folders:
        for name, value in (
            WeftForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict().items()
        ):
            sums[name] = sums[name] + value.double() if name in sums else value.double()
    return {name: (total / len(folders)).float() for name, total in sums.items()}

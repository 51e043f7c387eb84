"""Averaging the last checkpoints of a run, which often gives a better model than the last checkpoint alone."""

import os

import torch

from ..hub.loading import load
from ..modeling import WeftForConditionalGeneration
from .checkpoints import checkpoints


def average_checkpoints(folder: str | os.PathLike, count: int = 10) -> WeftForConditionalGeneration:
    """
    Average the weights of a run's last checkpoints, as in section 6.1 of Vaswani et al. 2017 (arXiv:1706.03762).

    The weights are summed in float64.

    Args:
        folder (`str` or `os.PathLike`):
            The `output_dir` of a training run.
        count (`int`, *optional*, defaults to 10):
            The number of checkpoints to average. If the folder has fewer, all of them are averaged.

    Returns:
        [`WeftForConditionalGeneration`]: a model with the averaged weights, in float32.

    Raises:
        ValueError: `count` is less than 1, there is no checkpoint, or a checkpoint is damaged.
    """
    if count < 1:
        raise ValueError(f"count={count} is not allowed: average at least 1 checkpoint.")
    folders = checkpoints(folder)[:count]
    if not folders:
        raise ValueError(f"{folder} has no checkpoint-<step> to average.")
    sums: dict[str, torch.Tensor] = {}
    for checkpoint in folders:
        model = load(WeftForConditionalGeneration, checkpoint, dtype=torch.float32)
        for name, value in model.state_dict().items():
            sums[name] = sums[name] + value.double() if name in sums else value.double()
    model.load_state_dict({name: (total / len(folders)).float() for name, total in sums.items()})
    return model

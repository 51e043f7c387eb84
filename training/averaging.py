"""Averaging the last checkpoints of a run, which often gives a better model than the last checkpoint alone."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..hub.loading import load
from ..modeling import WeftForConditionalGeneration
from .checkpoints import checkpoints, damage


def average_checkpoints(
    folder: str | os.PathLike, count: int = 10, model_class: type[PreTrainedModel] = WeftForConditionalGeneration
) -> PreTrainedModel:
    """
    Average the weights of a run's last checkpoints, as in section 6.1 of Vaswani et al. 2017 (arXiv:1706.03762).

    The weights are summed in float64.

    Args:
        folder (`str` or `os.PathLike`):
            The `output_dir` of a training run.
        count (`int`, *optional*, defaults to 10):
            The number of checkpoints to average. If the folder has fewer, all of them are averaged.
        model_class (`type[PreTrainedModel]`, *optional*, defaults to [`WeftForConditionalGeneration`]):
            The class of the trained model.

    Returns:
        `PreTrainedModel`: a model of the class with the averaged weights, in float32.

    Raises:
        ValueError: `count` is less than 1, there is no checkpoint, or a checkpoint is damaged or not of this class.
    """
    if count < 1:
        raise ValueError(f"count={count} is not allowed: average at least 1 checkpoint.")
    found = checkpoints(folder)[:count]
    if not found:
        raise ValueError(f"{folder} has no checkpoint-<step> to average.")
    for checkpoint in found:
        if problems := damage(checkpoint):
            raise ValueError(
                f"In {checkpoint} {', '.join(problems)}: remove this checkpoint, or average only later ones."
            )
    model = _load(found[0], model_class)
    model.load_state_dict(_means(found, model_class))
    return model


def _load(folder: Path, model_class: type[PreTrainedModel]) -> PreTrainedModel:
    model, info = load(model_class, folder, dtype=torch.float32, output_loading_info=True)
    if missing := sorted(info["missing_keys"]):  # transformers draws them anew, with a warning
        raise ValueError(
            f"{folder} is no checkpoint of a {model_class.__name__}: it lacks {missing[0]} and {len(missing) - 1} other weights."
        )
    return model


def _means(folders: Sequence[Path], model_class: type[PreTrainedModel]) -> dict[str, torch.Tensor]:
    sums: dict[str, torch.Tensor] = {}
    for folder in folders:
        for name, value in _load(folder, model_class).state_dict().items():
            sums[name] = sums[name] + value.double() if name in sums else value.double()
    return {name: (total / len(folders)).float() for name, total in sums.items()}

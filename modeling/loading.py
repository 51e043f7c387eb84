"""Weights files that cannot be right are refused by name, before a model with random weights passes for a trained one."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{index} is not a readable index of weights files ({error}): copy the folder again."
        ) from error
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise ValueError(f"{index} points outside its folder, to {name!r}: do not use this folder.")
        if not (index.parent / name).is_file():
            raise ValueError(f"{index} names {name}, and {index.parent / name} does not exist: copy the folder again.")
    return names


def check_weights_files(folder: Path) -> list[Path]:
    """The safetensors files of a local folder, each with a header that can be read.

    Raises:
        ValueError: a file is truncated, empty or no safetensors file, or a shard is missing; the message names it.
    """
    index, single = folder / SAFE_WEIGHTS_INDEX_NAME, folder / SAFE_WEIGHTS_NAME
    files = (
        [folder / name for name in _shard_names(index)] if index.is_file() else [single] if single.is_file() else []
    )
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                weights.keys()
        except SafetensorError as error:
            raise ValueError(
                f"{file} is not a complete safetensors file ({error}): copy or download it again."
            ) from error
    return files


class LoadingMixin:
    """`from_pretrained` of `PreTrainedModel`, with files checked first and a foreign checkpoint refused."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        folder = Path(str(pretrained_model_name_or_path or "")) / (kwargs.get("subfolder") or "")
        files: list[Any] = []
        if pretrained_model_name_or_path is not None and folder.is_dir():
            files = check_weights_files(folder)
        wants_info = kwargs.pop("output_loading_info", False)
        any_size = kwargs.pop("ignore_mismatched_sizes", False)
        model, info = super().from_pretrained(  # type: ignore[misc]
            pretrained_model_name_or_path,
            *model_args,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **kwargs,
        )
        source = ", ".join(str(file) for file in files) or str(pretrained_model_name_or_path)
        if info["mismatched_keys"] and not any_size:
            name, found, wanted = min(info["mismatched_keys"])
            raise ValueError(
                f"{source} holds {name} of shape {tuple(found)}, and the configuration makes it {tuple(wanted)}: these are "
                "the weights of another configuration. (ignore_mismatched_sizes=True starts such weights at random.)"
            )
        # A head may be new; anything else missing where something else was found is another model, or a part of one.
        missing = sorted(name for name in info["missing_keys"] if not name.startswith("lm_head."))
        if missing and info["unexpected_keys"]:
            raise ValueError(
                f"{source} does not fit {cls.__name__}: it lacks {', '.join(missing[:3])}, ... and holds "
                f"{', '.join(sorted(info['unexpected_keys'])[:3])}, ...: these are the weights of another model or "
                "configuration."
            )
        return (model, info) if wants_info else model

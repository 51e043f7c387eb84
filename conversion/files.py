"""Weights and configurations from files that others wrote, read as data only."""

import json
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from ..modeling.loading import check_weights_files
from .haiku import flatten
from .table import Weights

PICKLES = (".ckpt", ".pt", ".pth", ".bin")
READABLE = (".safetensors", *PICKLES, ".npz")
# Where training loops put the weights among other things.
_NESTS = ("state_dict", "model_state_dict", "model")


def read_weights(path: str | os.PathLike) -> Weights:
    """The tensors of a file, or of all weights files of a folder, by their keys.

    Args:
        path: `.safetensors`; `.ckpt`, `.pt`, `.pth` or `.bin` as `torch.save` writes them (a state dict, alone or under
            `state_dict`, `model_state_dict` or `model`; a Lightning checkpoint loses the `model.` before its keys); or
            `.npz` with Haiku's paths for names. Or a folder that holds such files.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: the file is damaged, is of another kind, or asks for code to be unpickled, which is refused.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist (a model on the Hub: `hf download` it first).")
    if not path.is_dir():
        return _read_file(path)
    files = check_weights_files(path) or sorted(path.glob("pytorch_model*.bin"))
    files = files or sorted(file for file in path.iterdir() if file.suffix in READABLE)
    if not files:
        raise ValueError(f"{path} holds no weights: none of its files ends in {', '.join(READABLE)}.")
    weights: Weights = {}
    for file in files:
        for key, tensor in _read_file(file).items():
            if key in weights:
                raise ValueError(f"{key} stands in more than one file of {path}: name the file to convert.")
            weights[key] = tensor
    return weights


def _read_file(file: Path) -> Weights:
    if file.suffix not in READABLE:
        raise ValueError(f"{file} cannot be read: weights are read from {', '.join(READABLE)}.")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                return flatten(dict(arrays))
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        if name is None and "reduce" not in str(error).lower():  # not a pickle at all
            raise ValueError(f"{file} is damaged or not what its name says: copy or download it again.") from error
        raise ValueError(
            f"{file} holds more than tensors{f' (a {name[1]})' if name else ''}, and to read the rest would run whatever "
            "code its author put there: it is refused. Where you trust it, load it yourself and save `model.state_dict()` "
            "alone."
        ) from error
    except Exception as error:  # each format has its own errors for a damaged file
        raise ValueError(f"{file} is damaged or not what its name says: copy or download it again.") from error
    return _state_dict(file, content)


def _state_dict(file: Path, content: Any) -> Weights:
    nest = next(
        (name for name in _NESTS if isinstance(content, Mapping) and isinstance(content.get(name), Mapping)), None
    )
    weights = content[nest] if nest else content
    others = [key for key, value in weights.items() if not isinstance(value, torch.Tensor)] if isinstance(
        weights, Mapping) else [type(weights).__name__]  # fmt: skip
    if others or not weights:
        raise ValueError(
            f"{file} holds no state dict: {', '.join(map(str, others[:5])) or 'it is empty'} is no tensor."
        )
    if nest == "state_dict" and all(key.startswith("model.") for key in weights):
        weights = {key.removeprefix("model."): tensor for key, tensor in weights.items()}
    return dict(weights)


def read_source_config(path: str | os.PathLike) -> dict[str, Any]:
    """The source's own configuration: of a folder its `config.json`, or a JSON or YAML file; empty where there is none.

    A configuration of transformers comes back with its defaults filled in.

    Raises:
        ValueError: the file cannot be read as a mapping.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        return {}
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read as a configuration: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a mapping, and holds {type(content).__name__}.")
    if content.get("model_type") in CONFIG_MAPPING_NAMES:
        return AutoConfig.from_pretrained(str(file)).to_dict()
    return content

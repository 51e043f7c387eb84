"""Reads weights and configurations from other people's files, without running code from them."""

import json
import logging
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
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from ..common.words import first_line
from ..hub.loading import load
from ..modeling.loading import TooManyTensors, check_header, check_number, check_weights_files
from .haiku import flatten
from .table import Weights

logger = logging.getLogger(__name__)

READABLE = (".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".npz")
# The keys under which training loops store the weights.
_NESTS = ("state_dict", "model_state_dict", "model")


def read_weights(path: str | os.PathLike) -> Weights:
    """Read the tensors of a file, or of all weights files of a folder.

    Args:
        path: a folder or one of these files: `.safetensors`; `.ckpt`, `.pt`, `.pth` or `.bin` from `torch.save`, with
            a state dict, alone or under the key `state_dict`, `model_state_dict` or `model`; `.npz` with the paths of
            Haiku as names. The prefix `model.` of a Lightning checkpoint's keys is removed.

    Returns:
        The tensors by their keys.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: a file is damaged, is of another kind, or contains code to be run by unpickling.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist (for a model on the Hub, run `hf download` first).")
    if not path.is_dir():
        return _read_file(path)
    files = check_weights_files(path) or sorted(path.glob("pytorch_model*.bin"))
    files = files or sorted(file for file in path.iterdir() if file.suffix in READABLE)
    if not files:
        raise ValueError(f"{path} contains no weights: none of its files ends in {', '.join(READABLE)}.")
    weights: Weights = {}
    for file in files:
        for key, tensor in _read_file(file).items():
            if key in weights:
                raise ValueError(f"{key} is in more than one file of {path}: give the file to convert.")
            weights[key] = tensor
    return weights


def _read_file(file: Path) -> Weights:
    if file.suffix not in READABLE:
        raise ValueError(f"{file} cannot be read: weights are read from {', '.join(READABLE)}.")
    try:
        if file.suffix == ".safetensors":
            check_header(file)
            return load_file(file)
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                check_number(file, len(arrays.files))
                content = dict(arrays)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has its own errors for a damaged file
        if isinstance(error, TooManyTensors):
            raise
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and (name or "reduce" in str(error).lower()):
            raise ValueError(
                f"{file} contains more than tensors{f' (a {name[1]})' if name else ''}, which could run arbitrary "
                "code, so Weft does not load it. Save only `model.state_dict()`."
            ) from error
        why = "" if isinstance(error, pickle.UnpicklingError) else f" ({first_line(error)})"
        raise ValueError(
            f"{file} is damaged, or its content does not match its file extension{why}: copy or download it again."
        ) from error
    return flatten(content) if file.suffix == ".npz" else _state_dict(file, content)


def _state_dict(file: Path, content: Any) -> Weights:
    nest = next(
        (name for name in _NESTS if isinstance(content, Mapping) and isinstance(content.get(name), Mapping)), None
    )
    weights = content[nest] if nest else content
    others = [type(weights).__name__]
    if isinstance(weights, Mapping):
        check_number(file, len(weights))
        others = [
            name for name, value in weights.items() if not (isinstance(name, str) and isinstance(value, torch.Tensor))
        ]
    if others or not weights:
        raise ValueError(
            f"{file} contains no state dict: "
            + (f"{', '.join(map(str, others[:5]))} is not a tensor with a name." if others else "it is empty.")
        )
    if nest == "state_dict" and all(key.startswith("model.") for key in weights):
        weights = {key.removeprefix("model."): tensor for key, tensor in weights.items()}
    return dict(weights)


def read_source_config(path: str | os.PathLike) -> dict[str, Any]:
    """Read a source's own configuration.

    Args:
        path: a JSON or YAML file, or a folder with a `config.json`.

    Returns:
        The fields. For a configuration of transformers, they include its defaults. For a folder without `config.json`,
        there are none.

    Raises:
        ValueError: the file cannot be read, or is not a mapping.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        return {}
    text = file.read_bytes()
    try:
        content = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        if not isinstance(content, dict):
            raise ValueError(f"it must contain a mapping, but contains a {type(content).__name__}.")
        if content.get("model_type") in CONFIG_MAPPING_NAMES:
            return load(AutoConfig, str(file)).to_dict()
    except Exception as error:  # each kind of configuration has its own errors
        raise ValueError(f"{file} cannot be read as a configuration: {error}") from error
    return content


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """Read the tokenizer of a folder.

    Args:
        folder: the folder.

    Returns:
        The tokenizer. It is None if the folder has none, which is logged as a warning.

    Raises:
        ValueError: the tokenizer cannot be read, or needs code of its own.
    """
    # in a folder without these files, transformers makes up an empty tokenizer
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        logger.warning(f"{folder} has no tokenizer: the model is saved without one.")
        return None
    return load(AutoTokenizer, folder)

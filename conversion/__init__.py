"""Converts weights of other model families to Weft and back.

Each source has a file, with its configuration and its table of keys.
"""

from collections.abc import Mapping
from typing import Any

import torch

from . import (
    directmultistep,
    haiku,
    notebook,
    seq2seq,
    symm_learning,
    torch_transformer,
    transformers_bart,
    transformers_t5,
    tutorial,
)
from .files import read_source_config, read_tokenizer, read_weights
from .source import Conversion, DoesNotFit, Source, clean_keys, convert, export
from .upcycling import upcycle

SOURCES: dict[str, Source] = {
    module.SOURCE.name: module.SOURCE
    for module in (
        torch_transformer,
        transformers_bart,
        transformers_t5,
        directmultistep,
        symm_learning,
        haiku,
        tutorial,
        notebook,
        seq2seq,
    )
}


def detect(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any] | None = None) -> Source:
    """Return the source of weights, found by the `model_type` of their configuration or by their keys.

    Args:
        weights: the tensors by the source's keys.
        source_config: the source's own configuration.

    Raises:
        ValueError: no source knows the keys, or several do.
    """
    model_type = (source_config or {}).get("model_type")
    matching = [source for source in SOURCES.values() if model_type in source.model_types]
    matching = matching or [source for source in SOURCES.values() if source.recognises(weights)]
    if len(matching) != 1:
        names = ", ".join(source.name for source in matching or SOURCES.values())
        count, remedy = ("Several sources have", "") if matching else ("No source has", " Or map keys by `--rename`.")
        raise ValueError(f"{count} keys such as {', '.join(list(weights)[:3])}: choose one of {names}.{remedy}")
    return matching[0]


__all__ = [
    "SOURCES",
    "Conversion",
    "DoesNotFit",
    "Source",
    "clean_keys",
    "convert",
    "detect",
    "export",
    "read_source_config",
    "read_tokenizer",
    "read_weights",
    "upcycle",
]

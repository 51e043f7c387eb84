"""Turns the weights of any source into a Weft model."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ..configuration import WeftConfig
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
from .files import read_source_config, read_weights
from .source import HEADS, Conversion, DoesNotFit, Source, clean_keys, saved_tensors
from .table import to_weft

SOURCES: dict[str, Source] = {
    module.SOURCE.name: module.SOURCE
    for module in (
        torch_transformer, transformers_bart, transformers_t5, directmultistep, symm_learning, haiku, tutorial,
        notebook, seq2seq,
    )
}  # fmt: skip


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


def convert(
    weights: Mapping[str, torch.Tensor] | str | PathLike,
    source: Source | None = None,
    *,
    renames: Sequence[tuple[str, str]] = (),
    preset: str | None = None,
    source_config: Mapping[str, Any] | str | PathLike | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Conversion:
    """Convert the weights of a source.

    Args:
        weights: tensors by the source's keys, or a file or folder with them, see [`read_weights`].
        source: the source. Defaults to the one that [`detect`] finds.
        renames: as in [`clean_keys`].
        preset: a preset to take the configuration from, a key of `weftformer.configuration.PRESETS`. Without it, the
            configuration is found from the shapes of the weights.
        source_config: the source's own configuration, or its file, see [`read_source_config`]. Defaults to the
            `config.json` beside a file of weights.
        overrides: fields of [`WeftConfig`], which replace all others.

    Returns:
        The conversion, whose `build()` makes the model.

    Raises:
        DoesNotFit: a key is missing, unexpected or of the wrong shape. The message has the whole table.
        ValueError: a field of the configuration is unknown or missing, or the keys are those of another source.
        ValueError, OSError: as in [`read_weights`], [`clean_keys`], [`read_source_config`] and [`detect`].
    """
    if not isinstance(weights, Mapping):
        path, weights = Path(weights), read_weights(weights)
        source_config = source_config or (path if path.is_dir() else path.parent)
    weights = clean_keys(weights, renames)
    if not isinstance(source_config, Mapping):
        source_config = read_source_config(source_config) if source_config else {}
    source, overrides = source or detect(weights, source_config), dict(overrides or {})
    model_class, prefix = source.part(weights)
    weights = {prefix + key: tensor for key, tensor in weights.items()}
    if preset is None and not source.recognises(weights):
        raise ValueError(
            f"{source.title} has keys such as {', '.join(source.signature)}, not {', '.join(list(weights)[:3])}: "
            "choose another source, or map them by `--rename PATTERN=REPLACEMENT`."
        )
    if source.model_types and source_config.get("model_type") not in source.model_types:
        raise ValueError(
            f"model_type={source_config.get('model_type')!r} is not one of {', '.join(source.model_types)}: give the "
            "config.json of the weights (`source_config=`)."
        )
    if preset is not None:
        config = WeftConfig.from_preset(preset, **overrides)
    else:
        try:
            fields = source.fields(weights, source_config) | overrides
        except KeyError as error:
            raise ValueError(f"The configuration of {source.title} has no field {error}.") from error
        if unknown := [name for name in HEADS if name not in fields]:
            raise ValueError(f"{source.title} does not record {' and '.join(unknown)}: give them (`--heads N`).")
        config = WeftConfig(**fields)
    with torch.device("meta"):
        shapes = {key: tensor.shape for key, tensor in saved_tensors(model_class(config)).items()}
    # no source has the selection bias of balanced routing, which starts at zero
    new = (*source.new, "model.<stack>.layers.<layer>.mlp.router.selection_bias")
    result = to_weft(weights, source.table(config, source_config), config, shapes, new)
    # names as they are in the file
    for names in (result.missing, result.unexpected, result.wrong):
        names[:] = [name.removeprefix(prefix) for name in names]
    if not result.fits:
        raise DoesNotFit(source, result)
    return Conversion(source, config, model_class, result, source_config)

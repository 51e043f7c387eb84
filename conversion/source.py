"""What a source is, and the way from its weights to a Weft model."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..configuration import WeftConfig
from ..configuration.presets import PRESETS
from ..modeling import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel, WeftPreTrainedModel
from .table import Found, Table, Weights, from_weft, match, to_weft

Fields = dict[str, Any]

# Left before every key by the wrappers a model was saved in: DataParallel, torch.compile.
_WRAPPERS = re.compile(r"(^|\.)(?:(?:module|_orig_mod)\.)+")
# Where a stack's keys stand in the table, which is written for the whole model.
_PLACE_IN_MODEL = {
    WeftForConditionalGeneration: "",
    WeftModel: "model.",
    WeftEncoder: "model.encoder.",
    WeftDecoder: "model.decoder.",
}
HEADS = ("encoder_attention_heads", "decoder_attention_heads")


def _whole_model(weights: Mapping[str, torch.Tensor]) -> tuple[type[WeftPreTrainedModel], str]:
    return WeftForConditionalGeneration, ""


@dataclass(frozen=True)
class Source:
    """One kind of checkpoint: its keys, its configuration, its table.

    Args:
        name: what the command line calls it.
        title: one line of what it is.
        signature: patterns of keys; weights that have a key for each are taken for this source's.
        fields: (weights, the source's own configuration) to fields of `WeftConfig`.
        table: (configuration, the source's own configuration) to the table of keys.
        model_types: `model_type` in the config.json of a transformers folder.
        must_be_given: fields that neither the weights nor the source's own configuration tell.
        new: patterns of Weft's keys that this source has nothing for.
        part: the Weft class the weights make, and what to write before each of their keys to have the table's.
        generation: the source's own configuration to settings of `generate` that belong to it.
        tokenizer: "routes" where the source's vocabulary is DirectMultiStep's.
    """

    name: str
    title: str
    signature: tuple[str, ...]
    fields: Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], Fields]
    table: Callable[[WeftConfig, Mapping[str, Any]], Table]
    model_types: tuple[str, ...] = ()
    must_be_given: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    part: Callable[[Mapping[str, torch.Tensor]], tuple[type[WeftPreTrainedModel], str]] = _whole_model
    generation: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda source_config: {}
    tokenizer: str | None = None

    def recognises(self, weights: Mapping[str, torch.Tensor]) -> bool:
        prefix = self.part(weights)[1]
        return all(any(match(pattern, prefix + key) is not None for key in weights) for pattern in self.signature)


class DoesNotFit(ValueError):
    """A source's weights and a configuration do not fit; `found` holds the whole table."""

    def __init__(self, source: "Source", found: Found):
        problems = [
            f"{len(keys)} {name} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
            for name, keys in (("missing", found.missing), ("unexpected", found.unexpected), ("wrong", found.wrong))
            if keys
        ]
        self.summary = f"The weights and the configuration of {source.title} do not fit: {'; '.join(problems)}."
        self.found = found
        super().__init__(f"{self.summary}\n{found.describe()}")


@dataclass
class Conversion:
    """The outcome: configuration, class and weights of the Weft model, and how each key was found."""

    source: Source
    config: WeftConfig
    model_class: type[WeftPreTrainedModel]
    found: Found
    source_config: Mapping[str, Any]

    def build(self, seed: int = 0) -> WeftPreTrainedModel:
        """The model, in the dtype of the weights; what the source has nothing for starts at random from `seed`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(self.config)
        place = _PLACE_IN_MODEL[self.model_class]
        weights = {key.removeprefix(place): tensor for key, tensor in self.found.weights.items()}
        model.load_state_dict(weights, strict=False)  # complete but for what is tied or new: `convert` saw to it
        dtypes = {tensor.dtype for tensor in weights.values()}
        if len(dtypes) == 1:
            model.to(dtypes.pop())
        for name, value in self.source.generation(self.source_config).items():
            setattr(model.generation_config, name, value)
        return model.eval()


def clean_keys(weights: Mapping[str, torch.Tensor], renames: Sequence[tuple[str, str]] = ()) -> Weights:
    """Keys without what wrappers left before them, each `(pattern, replacement)` of `renames` applied in turn.

    Raises:
        ValueError: two keys become one, or a pattern is no regular expression.
    """
    result: Weights = {}
    for key, tensor in weights.items():
        name = _WRAPPERS.sub(r"\1", key)
        for pattern, replacement in renames:
            try:
                name = re.sub(pattern, replacement, name)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}.") from error
        if name in result:
            raise ValueError(f"Two keys become {name!r}; the second was {key!r}.")
        result[name] = tensor
    return result


def _saved_tensors(model: WeftPreTrainedModel) -> Weights:
    """Every tensor of a model once, by the key it has in the whole model; a shared one under its first owner's name."""
    place = _PLACE_IN_MODEL[type(model)]
    owners = ("model.shared.", "model.encoder.", "model.decoder.", "lm_head.")

    def rank(key: str) -> int:
        return next(index for index, owner in enumerate(owners) if key.startswith(owner))

    tensors = {place + key: tensor for key, tensor in model.state_dict(keep_vars=True).items()}
    first_owner: dict[int, str] = {}
    for key in sorted(tensors, key=rank):
        first_owner.setdefault(id(tensors[key]), key)
    return {key: tensor.detach() for key, tensor in tensors.items() if first_owner[id(tensor)] == key}


def weft_shapes(config: WeftConfig, model_class: type[WeftPreTrainedModel]) -> dict[str, torch.Size]:
    """The shape of every tensor that a model of this configuration holds, by the key it has in the whole model."""
    with torch.device("meta"):
        model = model_class(config)
    return {key: tensor.shape for key, tensor in _saved_tensors(model).items()}


def convert(
    weights: Mapping[str, torch.Tensor],
    source: Source,
    *,
    preset: str | None = None,
    source_config: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Conversion:
    """Convert a source's weights.

    Args:
        weights: tensors by the source's keys (see `clean_keys`).
        preset: take the configuration of this name (`weftformer.configuration.presets.PRESETS`) instead of reading shapes.
        source_config: the source's own configuration, where it has one.
        overrides: fields of `WeftConfig` that win over all of these.

    Returns:
        The conversion, complete.

    Raises:
        DoesNotFit: a key is missing, unexpected or of the wrong shape; the message holds the whole table.
        ValueError: the configuration cannot be known, or these are the keys of another source.
    """
    overrides, source_config = dict(overrides or {}), source_config or {}
    model_class, prefix = source.part(weights)
    weights = {prefix + key: tensor for key, tensor in weights.items()}
    if preset is None and not source.recognises(weights):
        raise ValueError(
            f"These are not the keys of {source.title}: {', '.join(source.signature)} are expected, and the first keys "
            f"are {', '.join(list(weights)[:5])}."
        )
    if preset is not None:
        config = WeftConfig.from_preset(preset, **overrides)
    else:
        fields = source.fields(weights, source_config) | overrides
        unknown = [name for name in source.must_be_given if name not in fields]
        if unknown:
            raise ValueError(
                f"The weights of {source.title} do not tell {' and '.join(unknown)}: give "
                f"{'them' if len(unknown) > 1 else 'it'}"
                + (" (`--heads N` for both)." if set(unknown) & set(HEADS) else " (`--config-overrides field=value`).")
            )
        config = WeftConfig(**fields)
    shapes = weft_shapes(config, model_class)
    # the selection bias of bias-balanced routing starts at zero, whatever the source
    new = (*source.new, "model.encoder.layers.<layer>.mlp.router.selection_bias",
           "model.decoder.layers.<layer>.mlp.router.selection_bias")  # fmt: skip
    found = to_weft(weights, source.table(config, source_config), config, shapes, new)
    if not found.fits:
        raise DoesNotFit(source, found)
    return Conversion(source, config, model_class, found, source_config)


def export(model: WeftPreTrainedModel, source: Source, source_config: Mapping[str, Any] | None = None) -> Weights:
    """A Weft model's weights under the keys of a source: the table run the other way.

    Raises:
        ValueError: the source cannot hold the model; the message names what it has no place for.
    """
    weights = {
        key: tensor
        for key, tensor in _saved_tensors(model).items()
        if not any(match(pattern, key) is not None for pattern in source.new)
    }
    return from_weft(weights, source.table(model.config, source_config or {}), model.config)


def matching_presets(fields: Fields, prefix: str) -> list[str]:
    """The presets whose name begins with `prefix` and that agree with these fields, layer types spelled out."""
    found = []
    for name in (name for name in PRESETS if name.startswith(prefix)):
        config = WeftConfig.from_preset(name)
        if all(getattr(config, key) == value for key, value in fields.items()):
            found.append(name)
    return found

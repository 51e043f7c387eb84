"""Sources of weights, and the conversion of their weights to a Weft model and back."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..configuration import WeftConfig
from ..modeling import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel, WeftPreTrainedModel
from ..modeling.checks import check_merged
from .table import KeyTable, TableResult, Weights, from_weft, match

Fields = dict[str, Any]

# The prefixes of keys from wrappers around a saved model: DataParallel, torch.compile.
_WRAPPERS = re.compile(r"(^|\.)(?:(?:module|_orig_mod)\.)+")
# The prefix of a class's keys in the tables, which have the keys of the whole model.
_PREFIX_IN_MODEL = {
    WeftForConditionalGeneration: "",
    WeftModel: "model.",
    WeftEncoder: "model.encoder.",
    WeftDecoder: "model.decoder.",
}
# Fields of a source whose attention has no positions of its own.
NO_ATTENTION_POSITIONS: Fields = {"self_attention_position_type": "none", "cross_attention_position_type": "none"}
HEADS = ("encoder_attention_heads", "decoder_attention_heads")


def base_model_part(weights: Mapping[str, torch.Tensor]) -> tuple[type[WeftPreTrainedModel], str]:
    """Return Weft's class, and the prefix `model.` if the file is from a model without a head, whose keys lack it.

    Such a file is enough for a whole model if the head is tied to the embeddings.
    """
    return WeftForConditionalGeneration, "" if any(key.startswith("model.") for key in weights) else "model."


@dataclass(frozen=True)
class Source:
    """A kind of checkpoint: how to recognise it, its configuration and its table of keys.

    Args:
        name: the name on the command line.
        title: a description in a few words.
        signature: patterns of keys. Weights are of this source if they have a key for each pattern.
        fields: takes the weights and the source's own configuration, and returns fields of [`WeftConfig`].
        table: takes a [`WeftConfig`] and the source's own configuration, and returns the table of keys.
        model_types: the values of `model_type` in a `config.json` of transformers, which these sources need.
        new: patterns of Weft's keys that this source does not have.
        part: takes the weights, and returns Weft's class for them and a prefix that gives their keys the form of the
            table.
        generation: takes the source's own configuration, and returns settings of `generate`.
        tokenizer: takes the source's own configuration, and returns the tokenizer if it can be built from that alone.
        computes: takes the source's own configuration, and returns the values of fields without tensors that the
            source computes, for each of its variants.
        training: how the training of a converted model differs from that of the original, a sentence.
    """

    name: str
    title: str
    signature: tuple[str, ...]
    fields: Callable[[Mapping[str, torch.Tensor], Mapping[str, Any]], Fields]
    table: Callable[[WeftConfig, Mapping[str, Any]], KeyTable]
    model_types: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    part: Callable[[Mapping[str, torch.Tensor]], tuple[type[WeftPreTrainedModel], str]] = lambda weights: (
        WeftForConditionalGeneration,
        "",
    )
    generation: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda source_config: {}
    tokenizer: Callable[[Mapping[str, Any]], PreTrainedTokenizerBase | None] = lambda source_config: None
    computes: Callable[[Mapping[str, Any]], Sequence[Fields]] = lambda source_config: ()
    training: str = ""

    def check_computes(self, config: WeftConfig, source_config: Mapping[str, Any]) -> None:
        """Raise a ValueError if no variant of this source computes what a model of a configuration does."""
        values = {name: getattr(config, name) for name in config.field_names()} | {"final_norm": config.has_final_norm}
        variants = [
            {name: value for name, value in fields.items() if values[name] != value}
            for fields in self.computes(source_config)
        ]
        if variants and (changes := min(variants, key=len)):
            raise ValueError(
                f"{self.title} cannot compute this model: it has "
                + ", ".join(f"{name}={value!r}, not {values[name]!r}" for name, value in changes.items())
                + "."
            )

    def recognises(self, weights: Mapping[str, torch.Tensor]) -> bool:
        prefix = self.part(weights)[1]
        return all(any(match(pattern, prefix + key) is not None for key in weights) for pattern in self.signature)


class DoesNotFit(ValueError):
    """Weights of a source and a configuration do not fit together.

    Args:
        source: the source.
        result: the keys of the table, with the missing, unexpected and wrong ones.
    """

    def __init__(self, source: "Source", result: TableResult):
        problems = [
            f"{len(keys)} {name} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
            for name, keys in (("missing", result.missing), ("unexpected", result.unexpected), ("wrong", result.wrong))
            if keys
        ]
        rename = " Map keys under other names with `--rename PATTERN=REPLACEMENT`." if result.unexpected else ""
        self.summary = (
            f"The weights and the configuration of {source.title} do not fit: {'; '.join(problems)}.{rename}"
        )
        self.found = result
        super().__init__(f"{self.summary}\n{result.describe()}")


@dataclass
class Conversion:
    """The result of a conversion.

    Args:
        source: the source.
        config: the configuration of the Weft model.
        model_class: its class.
        found: its weights, and the keys that they come from.
        source_config: the source's own configuration.
    """

    source: Source
    config: WeftConfig
    model_class: type[WeftPreTrainedModel]
    found: TableResult
    source_config: Mapping[str, Any]

    def build(self, seed: int = 0) -> WeftPreTrainedModel:
        """Build the model in the dtype of the weights, or in the smallest dtype that rounds none of them.

        Args:
            seed: the seed of weights that the source does not have.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(self.config)
        prefix = _PREFIX_IN_MODEL[self.model_class]
        weights = {key.removeprefix(prefix): tensor for key, tensor in self.found.weights.items()}
        model.to(reduce(torch.promote_types, {tensor.dtype for tensor in weights.values()}))
        # not strict, because tied and new weights are missing; `convert` has checked all others
        model.load_state_dict(weights, strict=False)
        for name, value in self.source.generation(self.source_config).items():
            setattr(model.generation_config, name, value)
        return model.eval()


def clean_keys(weights: Mapping[str, torch.Tensor], renames: Sequence[tuple[str, str]] = ()) -> Weights:
    """Remove the prefixes of wrappers from keys, and rename keys.

    Args:
        weights: tensors by their keys.
        renames: pairs of a regular expression and its replacement, applied to each key in turn.

    Returns:
        The tensors by their new keys.

    Raises:
        ValueError: two keys become the same, or a pattern is not a regular expression.
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


def saved_tensors(model: WeftPreTrainedModel) -> Weights:
    """Return each tensor of a model once, by its key in the whole model.

    A shared tensor has the key of its first owner.
    """
    prefix = _PREFIX_IN_MODEL[type(model)]
    owners = ("model.shared.", "model.encoder.", "model.decoder.", "lm_head.")

    def rank(key: str) -> int:
        return next(index for index, owner in enumerate(owners) if key.startswith(owner))

    tensors = {prefix + key: tensor for key, tensor in model.state_dict(keep_vars=True).items()}
    first_owner: dict[int, str] = {}
    for key in sorted(tensors, key=rank):
        first_owner.setdefault(id(tensors[key]), key)
    return {key: tensor.detach() for key, tensor in tensors.items() if first_owner[id(tensor)] == key}


def export(model: WeftPreTrainedModel, source: Source, source_config: Mapping[str, Any] | None = None) -> Weights:
    """Convert the weights of a Weft model to those of a source.

    Args:
        model: the model.
        source: the source.
        source_config: the source's own configuration.

    Returns:
        The tensors by the source's keys.

    Raises:
        ValueError: the source has no key for a tensor, or cannot compute the model, or the model is a subclass. The
            message names the tensor, the fields or the class.
    """
    check_merged(model)
    if type(model) not in _PREFIX_IN_MODEL:
        raise ValueError(
            f"A {type(model).__name__} may compute other outputs than {source.title}: give a "
            "WeftForConditionalGeneration."
        )
    source.check_computes(model.config, source_config or {})
    weights = {
        key: tensor
        for key, tensor in saved_tensors(model).items()
        if not any(match(pattern, key) is not None for pattern in source.new)
    }
    return from_weft(weights, source.table(model.config, source_config or {}), model.config)

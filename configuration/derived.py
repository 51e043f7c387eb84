"""Derived fields of a configuration: while such a field is None, its value is computed from other fields."""

from collections.abc import Callable
from typing import Any

from .fields import MOST_LAYERS


class Derived:
    """A field that is stored as it was given, and read as a number.

    None stays stored, so that the number changes with the other fields: when embedding tables are resized, when the
    number of heads changes, and in the copy for one stack that `get_text_config` returns.

    Args:
        number: returns the number for a configuration, for the stack that `num_attention_heads` refers to.
        fits_whole_model: returns whether this number is right for the whole model of a configuration. Only then may a
            file store the number instead of None.
    """

    def __init__(self, number: Callable[[Any], int], fits_whole_model: Callable[[Any], bool]):
        self.number = number
        self.fits_whole_model = fits_whole_model

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: Any, owner: type | None = None) -> int | None:
        if config is None:
            return None  # a dataclass takes this as the field's default
        stored = vars(config).get(self.name)
        return self.number(config) if stored is None else stored

    def __set__(self, config: Any, value: int | None) -> None:
        vars(config)[self.name] = value

    def __delete__(self, config: Any) -> None:
        vars(config).pop(self.name, None)


class LayerTypes(Derived):
    """The kinds of a stack's feed-forwards: stored as one word if all layers are alike, and read as a list.

    A word stays right when the number of layers changes. None is "dense".

    Args:
        layers: the name of the field with the number of layers.
    """

    def __init__(self, layers: str):
        self.layers = layers

    def __get__(self, config: Any, owner: type | None = None) -> Any:
        if config is None:
            return None  # a dataclass takes this as the field's default
        types = vars(config).get(self.name) or "dense"
        return self.expanded(types, config) if isinstance(types, str) else types

    def expanded(self, word: str, config: Any) -> list[str]:
        """Return the word for each layer."""
        layers = getattr(config, self.layers)
        # the fields of a file may not be checked yet
        return [word] * (layers if isinstance(layers, int) and layers <= MOST_LAYERS else 0)


def _heads_are_alike(config: Any) -> bool:
    return config.encoder_attention_heads == config.decoder_attention_heads


def _heads_share_the_width(config: Any) -> bool:
    heads, width = config.encoder_attention_heads, config.d_model
    # `from_dict` calls this before the fields of a file are checked
    is_number = isinstance(heads, int) and isinstance(width, int) and heads > 0
    return is_number and width % heads == 0 and _heads_are_alike(config)


# the values are typed as Any, which type checkers accept as the default of any field
DERIVED: dict[str, Any] = {
    # with two embedding tables, a number means that source and target have their own vocabularies, and None that they
    # do not
    "decoder_vocab_size": Derived(
        lambda config: config.vocab_size, lambda config: config.share_encoder_decoder_embeddings is True
    ),
    "num_key_value_heads": Derived(lambda config: config.encoder_attention_heads, _heads_are_alike),
    "head_dim": Derived(lambda config: config.d_model // config.encoder_attention_heads, _heads_share_the_width),
}


# the same for the kinds of layers
LAYER_TYPES: dict[str, Any] = {
    f"{stack}_mlp_layer_types": LayerTypes(f"{stack}_layers") for stack in ("encoder", "decoder")
}


def redundant(config: Any) -> dict[str, Any]:
    """Return replacements for the values of a configuration that follow from its other fields.

    A derived number that equals its default becomes None, and kinds of layers that are all alike become one word.
    """
    stored = vars(config)
    numbers = {
        name: None
        for name, field in DERIVED.items()
        if field.fits_whole_model(config) and stored.get(name) == field.number(config)
    }
    words = {}
    for name, field in LAYER_TYPES.items():
        types = stored.get(name)
        if types is None or types == field.expanded("dense", config):
            words[name] = "dense"
        elif types == field.expanded("sparse", config):
            words[name] = "sparse"
    return numbers | words

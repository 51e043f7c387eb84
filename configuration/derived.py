"""Derived fields of a configuration: while such a field is None, its value is computed from other fields.

None stays stored, so that the value changes with the other fields: when embedding tables are resized, when the number
of heads or layers changes, and in the copy for one stack that `get_text_config` returns.
"""

from collections.abc import Callable
from typing import Any

from .fields import LAYERS

# Each derived value, for the stack that `num_attention_heads` refers to.
NUMBERS: dict[str, Callable[[Any], int]] = {
    "decoder_vocab_size": lambda config: config.vocab_size,
    "num_key_value_heads": lambda config: config.encoder_attention_heads,
    "head_dim": lambda config: config.d_model // config.encoder_attention_heads,
    "norm_topk_prob": lambda config: config.num_experts_per_tok > 1,
}
# The kinds of a stack's feed-forwards: one word if all layers are alike, which stays right when their number changes.
NUMBER_OF_LAYERS = {"encoder_mlp_layer_types": "encoder_layers", "decoder_mlp_layer_types": "decoder_layers"}


def derived(config: Any, name: str, value: Any) -> Any:
    """Return the value of a field: as it is, a number instead of None, or a list instead of a word for all layers."""
    if value is None and name in NUMBERS:
        return NUMBERS[name](config)
    if name in NUMBER_OF_LAYERS and isinstance(value or "dense", str):
        layers = getattr(config, NUMBER_OF_LAYERS[name])
        return [value or "dense"] * (layers if LAYERS.allows(layers) else 0)  # it may not be checked yet
    return value


def numbers_of_whole_model(config: Any) -> dict[str, int]:
    """Return the derived numbers that are right for the whole model. Only these may a file store instead of None."""
    heads, width = config.encoder_attention_heads, config.d_model
    are_alike = heads == config.decoder_attention_heads
    # `from_dict` calls this before the fields of a file are checked
    is_number = isinstance(heads, int) and isinstance(width, int) and heads > 0
    fits = {
        # with two embedding tables, a number means that source and target have their own vocabularies, and None that
        # they do not
        "decoder_vocab_size": config.share_encoder_decoder_embeddings is True,
        "num_key_value_heads": are_alike,
        "head_dim": are_alike and is_number and width % heads == 0,
        "norm_topk_prob": isinstance(config.num_experts_per_tok, int),
    }
    return {name: number(config) for name, number in NUMBERS.items() if fits[name]}


def redundant(config: Any) -> dict[str, Any]:
    """Return replacements for the values of a configuration that follow from its other fields.

    A derived number that equals its default becomes None, and kinds of layers that are all alike become one word.
    """
    stored = vars(config)
    found: dict[str, Any] = {
        name: None for name, number in numbers_of_whole_model(config).items() if stored.get(name) == number
    }
    for name, layers in NUMBER_OF_LAYERS.items():
        types = stored.get(name)
        if types is None:
            found[name] = "dense"
        for word in ("sparse", "dense"):
            if isinstance(types, list) and len(types) == types.count(word) == stored[layers]:
                found[name] = word
    return found

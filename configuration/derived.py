"""Derived fields of a configuration: if such a field is not given, its value is computed from other fields.

The configuration keeps what was given beside the values, and computes the values again when one of the other fields is
set: when embedding tables are resized, when the number of heads or layers changes, and in the copy for one stack that
`get_text_config` returns.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .fields import LAYERS

# Each derived number, for the stack that `num_attention_heads` refers to.
NUMBERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "decoder_vocab_size": lambda stored: stored["vocab_size"],
    "num_key_value_heads": lambda stored: stored["encoder_attention_heads"],
    "head_dim": lambda stored: stored["d_model"] // stored["encoder_attention_heads"],
    "norm_topk_prob": lambda stored: stored["num_experts_per_tok"] > 1,
}
# The kinds of a stack's feed-forwards: one word if all layers are alike, which stays right when their number changes.
NUMBER_OF_LAYERS = {"encoder_mlp_layer_types": "encoder_layers", "decoder_mlp_layer_types": "decoder_layers"}
DERIVED = (*NUMBERS, *NUMBER_OF_LAYERS)
# The fields whose change may change a derived one.
SOURCES = frozenset(
    [*DERIVED, *NUMBER_OF_LAYERS.values(), "vocab_size", "encoder_attention_heads", "d_model", "num_experts_per_tok"]
)


def derived_values(stored: Mapping[str, Any], given_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the derived fields: what was given, or a number, or a list with the kind of each layer.

    Args:
        stored: the fields of a configuration, which may not be checked yet, or lack some.
        given_values: the derived fields as they were given.
    """
    values = dict(given_values)
    for name, number in NUMBERS.items():
        if given_values[name] is None:
            try:
                values[name] = number(stored)
            except (KeyError, TypeError, ZeroDivisionError):  # `validate` has the message
                values[name] = None
    for name, field in NUMBER_OF_LAYERS.items():
        kind, layers = given_values[name] or "dense", stored.get(field)
        if isinstance(kind, str):
            values[name] = [kind] * int(layers or 0) if LAYERS.allows(layers) else []
    return {name: value for name, value in values.items() if name in stored}


def numbers_of_whole_model(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the derived numbers that are right for the whole model. Only these may a file store instead of None."""
    heads, width = stored["encoder_attention_heads"], stored["d_model"]
    are_alike = heads == stored["decoder_attention_heads"]
    # `from_dict` calls this before the fields of a file are checked
    is_number = isinstance(heads, int) and isinstance(width, int) and heads > 0
    is_whole = {
        # with two embedding tables, a number means that source and target have their own vocabularies, and None that
        # they do not
        "decoder_vocab_size": stored["share_encoder_decoder_embeddings"] is True,
        "num_key_value_heads": are_alike,
        "head_dim": are_alike and is_number and width % heads == 0,
        "norm_topk_prob": isinstance(stored["num_experts_per_tok"], int),
    }
    return {name: number(stored) for name, number in NUMBERS.items() if is_whole[name]}


def redundant(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return replacements for the values of a configuration that follow from its other fields.

    A derived number that equals its default becomes None, and kinds of layers that are all alike become one word.
    """
    replacements: dict[str, Any] = {}
    for name, number in numbers_of_whole_model(stored).items():
        if stored[name] == number:
            replacements[name] = None
    for name, layers in NUMBER_OF_LAYERS.items():
        kinds = stored[name]
        if kinds is None:
            replacements[name] = "dense"
        for word in ("sparse", "dense"):
            if isinstance(kinds, list) and len(kinds) == kinds.count(word) == stored[layers]:
                replacements[name] = word
    return replacements

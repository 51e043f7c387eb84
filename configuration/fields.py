"""The rules of the fields of a Weft configuration, and which fields may be edited.

A rule stands on its field in `configuration_weft.py`. The type hint is the rule of a field that is a `bool` or a
`Literal`, and of a number or a text that a subclass adds.
"""

import dataclasses
from functools import cache
from types import NoneType
from typing import Literal, get_args, get_origin

from ..common.rules import Rule, choice, integer

# Not fields of Weft: transformers passes these names to a configuration, or writes them into its file.
TRANSFORMERS_KEYS = frozenset(
    ["model_type", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "auto_map", "torch_dtype",
     "attn_implementation", "experts_implementation", "_attn_implementation", "_experts_implementation",
     "_attn_implementation_internal", "_experts_implementation_internal", "_output_attentions", "output_attentions",
     "num_labels", "quantization_config"]
)  # fmt: skip


TOKEN_IDS = Rule(
    lambda value: all(map(integer(0).allows, value if isinstance(value, list) and value else [value])),
    "a token id (0 or more) or a list of them",
    optional=True,
)
LAYERS = integer(1, maximum=10_000)  # a file with a larger number would take the memory of as many modules
LAYER_TYPES = Rule(
    lambda value: isinstance(value, list) and all(v in ("dense", "sparse") for v in value),
    'a list with "dense" or "sparse" for each layer (or one of the two words for all layers)',
)


# For each type that a subclass may give a new field.
_TYPES = {
    int: Rule(lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer"),
    float: Rule(lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    str: Rule(lambda value: isinstance(value, str), "a text"),
}


@cache
def rules(config_class: type) -> dict[str, Rule]:
    """Return the rules of the fields that a class defines, by the names of the fields."""
    rules_by_name = {}
    for field in dataclasses.fields(config_class):
        options = get_args(field.type)
        if "rule" in field.metadata:
            rules_by_name[field.name] = field.metadata["rule"]
        elif field.name not in config_class.__annotations__:
            continue  # transformers checks the types of its own fields
        elif field.type in (bool, bool | None):
            rules_by_name[field.name] = Rule(lambda value: isinstance(value, bool), "True or False", bool(options))
        elif get_origin(field.type) is Literal:
            rules_by_name[field.name] = choice(options)
        elif not any(field.name in vars(base).get("__annotations__", {}) for base in config_class.__mro__[1:]):
            kinds = [kind for kind in options or [field.type] if kind is not NoneType]
            if len(kinds) == 1 and kinds[0] in _TYPES:
                rules_by_name[field.name] = dataclasses.replace(_TYPES[kinds[0]], optional=NoneType in options)
    return rules_by_name


# Fields that affect only training. They may change when a model is trained further.
TRAINING_FIELDS = frozenset(
    ["dropout", "attention_dropout", "activation_dropout", "router_aux_loss_coef", "router_z_loss_coef",
     "router_bias_update_rate", "output_router_logits", "use_cache", "init_std"]
)  # fmt: skip
# Fields whose edits change a built model, or that `save_pretrained` compares with its modules. All others are only
# read while a model is built, so that editing them later changes nothing, or half of the model.
EDITABLE_FIELDS = (TRAINING_FIELDS - {"router_bias_update_rate"}) | frozenset(
    ["vocab_size", "decoder_vocab_size", "tie_word_embeddings", "lm_head_bias", "encoder_layers", "decoder_layers",
     "max_source_positions", "max_target_positions", "encoder_mlp_layer_types", "decoder_mlp_layer_types",
     "infer_attention_mask", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"]
)  # fmt: skip

"""Rules for the values of a field of a Weft configuration, with the message for a value that is not allowed.

A rule stands on its field in `configuration_weft.py`. The type hint is the rule of a field that is a `bool` or a
`Literal`.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, get_args, get_origin

# Not fields of Weft: transformers passes these names to a configuration, or writes them into its file.
TRANSFORMERS_KEYS = frozenset(
    ["model_type", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "auto_map", "torch_dtype",
     "attn_implementation", "experts_implementation", "_attn_implementation", "_experts_implementation",
     "_attn_implementation_internal", "_experts_implementation_internal", "_output_attentions", "output_attentions",
     "num_labels", "quantization_config"]
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rule:
    """The allowed values of a field. Called with the default, a rule returns the field of a dataclass.

    Args:
        allows: returns whether a value is allowed.
        allowed: describes the allowed values in a message.
        optional: whether None is allowed too.
        options: names of which a message suggests the closest.
    """

    allows: Callable[[Any], bool]
    allowed: str
    optional: bool = False
    options: tuple[str, ...] = ()

    def __call__(self, default: Any) -> Any:
        return dataclasses.field(default=default, metadata={"rule": self})

    def check(self, field: str, value: Any) -> None:
        if value is None and self.optional:
            return
        if not self.allows(value):
            allowed = self.allowed + (" or None" if self.optional else "")
            meant = closest(value, self.options) if isinstance(value, str) else ""
            raise ValueError(f"{field}={value!r} is not allowed: set `{field}` to {allowed}.{meant}")


def _is(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def integer(minimum: int, optional: bool = False, maximum: float = math.inf) -> Rule:
    allowed = f"an integer of at least {minimum}" if maximum == math.inf else f"an integer from {minimum} to {maximum}"
    return Rule(lambda value: _is(value, int) and minimum <= value <= maximum, allowed, optional)


def number(minimum: float, below: float = math.inf, above: bool = False, optional: bool = False) -> Rule:
    """Return a rule for a finite number in [minimum, below), or in (minimum, below) with `above`."""

    def allows(value: Any) -> bool:
        is_finite = _is(value, int | float) and abs(value) <= sys.float_info.max
        return is_finite and (value > minimum if above else value >= minimum) and value < below

    start = f"above {minimum}" if above else f"of at least {minimum}"
    end = "" if below == math.inf else f" and below {below}"
    return Rule(allows, f"a finite number {start}{end}", optional)


def choice(options: Iterable[str]) -> Rule:
    names = tuple(options)
    allowed = "one of " + ", ".join(f'"{name}"' for name in names)
    return Rule(lambda value: isinstance(value, str) and value in names, allowed, options=names)


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


@cache
def rules(config_class: type) -> dict[str, Rule]:
    """Return the rules of the fields that a class defines, by the names of the fields."""
    found = {}
    for field in dataclasses.fields(config_class):
        options = get_args(field.type)
        if "rule" in field.metadata:
            found[field.name] = field.metadata["rule"]
        elif field.name not in config_class.__annotations__:
            continue  # transformers checks the types of its own fields
        elif field.type in (bool, bool | None):
            found[field.name] = Rule(lambda value: isinstance(value, bool), "True or False", bool(options))
        elif get_origin(field.type) is Literal:
            found[field.name] = choice(options)
    return found


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


def closest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean `...`?" with the name closest to the given one, or "" if none is close."""
    matches = difflib.get_close_matches(name, sorted(names), n=1)
    return f" Did you mean `{matches[0]}`?" if matches else ""

"""Rules for the values of each field of a Weft configuration, with the message for a value that is not allowed."""

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

ATTENTION_POSITION_TYPES = ("none", "rotary", "additive", "relative", "bucketed")
ROUTER_TYPES = ("linear", "noisy_top_k")
# More layers than any model has. A file with a larger number would take the memory of as many modules.
MOST_LAYERS = 10_000
# Not fields of Weft: transformers passes these names to a configuration, or writes them into its file.
TRANSFORMERS_KEYS = frozenset(
    ["model_type", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "auto_map", "torch_dtype",
     "attn_implementation", "experts_implementation", "_attn_implementation", "_experts_implementation",
     "_attn_implementation_internal", "_experts_implementation_internal", "_output_attentions", "output_attentions",
     "num_labels", "quantization_config"]
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """The allowed values of a field.

    Args:
        allows: returns whether a value is allowed.
        allowed: describes the allowed values in a message.
        optional: whether None is allowed too.
    """

    allows: Callable[[Any], bool]
    allowed: str
    optional: bool = False

    def check(self, field: str, value: Any) -> None:
        if value is None and self.optional:
            return
        if not self.allows(value):
            allowed = self.allowed + (" or None" if self.optional else "")
            raise ValueError(f"{field}={value!r} is not allowed: set `{field}` to {allowed}.")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def integer(minimum: int, optional: bool = False, maximum: float = math.inf) -> Rule:
    allowed = f"an integer of at least {minimum}" if maximum == math.inf else f"an integer from {minimum} to {maximum}"
    return Rule(lambda value: _is_integer(value) and minimum <= value <= maximum, allowed, optional)


def number(minimum: float, below: float = math.inf, above: bool = False, optional: bool = False) -> Rule:
    """Return a rule for a finite number in [minimum, below), or in (minimum, below) with `above`."""

    def allows(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (value > minimum if above else value >= minimum) and value < below

    start = f"above {minimum}" if above else f"of at least {minimum}"
    end = "" if below == math.inf else f" and below {below}"
    return Rule(allows, f"a finite number {start}{end}", optional)


def choice(options: tuple[str, ...]) -> Rule:
    return Rule(
        lambda value: isinstance(value, str) and value in options, "one of " + ", ".join(f'"{o}"' for o in options)
    )


def boolean(optional: bool = False) -> Rule:
    return Rule(lambda value: isinstance(value, bool), "True or False", optional)


_TOKEN_IDS = Rule(
    lambda value: (
        (_is_integer(value) and value >= 0)
        or (isinstance(value, list) and bool(value) and all(_is_integer(v) and v >= 0 for v in value))
    ),
    "a token id (0 or more) or a list of them",
    optional=True,
)
_LAYER_TYPES = Rule(
    lambda value: isinstance(value, list) and all(v in ("dense", "sparse") for v in value),
    'a list with "dense" or "sparse" for each layer (or one of the two words for all layers)',
)

# Each rule with its fields.
_FIELDS: list[tuple[Rule, str]] = [
    (integer(1, maximum=MOST_LAYERS), "encoder_layers decoder_layers"),
    (
        integer(1),
        "vocab_size d_model encoder_attention_heads decoder_attention_heads "
        "encoder_ffn_dim decoder_ffn_dim max_source_positions max_target_positions num_experts_per_tok",
    ),
    (integer(1, optional=True), "decoder_vocab_size num_key_value_heads head_dim moe_intermediate_size"),
    (
        boolean(),
        "share_encoder_decoder_embeddings tie_word_embeddings scale_embedding normalize_embedding "
        "lm_head_bias is_gated_act mlp_bias attention_bias attention_out_bias use_qk_norm norm_bias "
        "norm_first norm_topk_prob router_bias output_router_logits infer_attention_mask use_cache",
    ),
    (choice(("layernorm", "rmsnorm", "stdnorm")), "norm_type"),
    (number(0.0, above=True), "norm_eps"),
    (boolean(optional=True), "final_norm"),
    (choice(("learned", "sinusoidal", "none")), "position_embedding_type"),
    (choice(("interleaved", "concatenated", "fairseq")), "sinusoidal_layout"),
    (choice(ATTENTION_POSITION_TYPES), "self_attention_position_type cross_attention_position_type"),
    (integer(0), "relative_attention_max_distance num_condition_features"),
    (integer(4), "relative_attention_num_buckets"),
    (number(0.0, below=1.0), "dropout attention_dropout activation_dropout"),
    (_LAYER_TYPES, "encoder_mlp_layer_types decoder_mlp_layer_types"),
    (integer(2), "num_experts"),
    (choice(ROUTER_TYPES), "router_type"),
    (choice(("training", "always")), "router_noise"),
    (number(0.0, above=True, optional=True), "expert_capacity_factor init_std"),
    (number(0.0), "router_bias_update_rate router_aux_loss_coef router_z_loss_coef"),
    (integer(0, optional=True), "pad_token_id bos_token_id decoder_start_token_id"),
    (_TOKEN_IDS, "eos_token_id"),
]
RULES: dict[str, Rule] = {field: rule for rule, fields in _FIELDS for field in fields.split()}

# Fields that only building a model reads, so that editing them later changes nothing, or half of the model.
FIXED_FIELDS = [
    "share_encoder_decoder_embeddings", "scale_embedding", "normalize_embedding", "d_model",
    "encoder_attention_heads", "decoder_attention_heads", "num_key_value_heads", "head_dim", "encoder_ffn_dim",
    "decoder_ffn_dim", "activation_function", "is_gated_act", "mlp_bias", "attention_bias",
    "attention_out_bias", "use_qk_norm", "norm_type", "norm_eps", "norm_bias", "norm_first", "final_norm",
    "position_embedding_type", "sinusoidal_layout", "self_attention_position_type",
    "cross_attention_position_type", "rope_parameters", "relative_attention_max_distance",
    "relative_attention_num_buckets", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "norm_topk_prob", "router_type", "router_bias", "router_noise", "expert_capacity_factor",
    "router_bias_update_rate", "num_condition_features",
]  # fmt: skip


def closest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean `...`?" with the name closest to the given one, or "" if none is close."""
    matches = difflib.get_close_matches(name, sorted(names), n=1)
    return f" Did you mean `{matches[0]}`?" if matches else ""

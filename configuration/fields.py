"""Rules for the values of each field of a Weft configuration, with the message for a value that is not allowed."""

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

POSITION_EMBEDDING_TYPES = ("learned", "sinusoidal", "none")
ATTENTION_POSITION_TYPES = ("none", "rotary", "additive", "relative", "bucketed")
SINUSOIDAL_LAYOUTS = ("interleaved", "concatenated", "fairseq")
NORM_TYPES = ("layernorm", "rmsnorm", "stdnorm")
MLP_LAYER_TYPES = ("dense", "sparse")
ROUTER_TYPES = ("linear", "noisy_top_k")
SCORING_FUNCS = ("softmax", "sigmoid")
ROUTER_NOISE_MODES = ("training", "always")
EXPERT_CAPACITY_MODES = ("training", "always")

# Not fields of Weft: transformers passes these names to a configuration, or writes them into its file.
TRANSFORMERS_KEYS = frozenset(
    [
        "model_type",
        "transformers_version",
        "_name_or_path",
        "name_or_path",
        "_commit_hash",
        "auto_map",
        "torch_dtype",
        "attn_implementation",
        "experts_implementation",
        "_attn_implementation",
        "_experts_implementation",
        "_attn_implementation_internal",
        "_experts_implementation_internal",
        "_output_attentions",
        "output_attentions",
        "num_labels",
        "quantization_config",
    ]
)


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


def integer(minimum: int, optional: bool = False) -> Rule:
    return Rule(lambda value: _is_integer(value) and value >= minimum, f"an integer of at least {minimum}", optional)


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


def token_ids() -> Rule:
    return Rule(
        lambda value: (
            (_is_integer(value) and value >= 0)
            or (isinstance(value, list) and bool(value) and all(_is_integer(v) and v >= 0 for v in value))
        ),
        "a token id (0 or more) or a list of them",
        optional=True,
    )


def layer_types() -> Rule:
    return Rule(
        lambda value: isinstance(value, list) and all(v in MLP_LAYER_TYPES for v in value),
        'a list with "dense" or "sparse" for each layer (or one of the two words for all layers)',
    )


RULES: dict[str, Rule] = {
    "vocab_size": integer(1),
    "decoder_vocab_size": integer(1, optional=True),
    "share_encoder_decoder_embeddings": boolean(),
    "tie_word_embeddings": boolean(),
    "scale_embedding": boolean(),
    "normalize_embedding": boolean(),
    "lm_head_bias": boolean(),
    "d_model": integer(1),
    "encoder_layers": integer(1),
    "decoder_layers": integer(1),
    "encoder_attention_heads": integer(1),
    "decoder_attention_heads": integer(1),
    "num_key_value_heads": integer(1, optional=True),
    "head_dim": integer(1, optional=True),
    "cross_attention_hidden_size": integer(1, optional=True),
    "encoder_ffn_dim": integer(1),
    "decoder_ffn_dim": integer(1),
    "is_gated_act": boolean(),
    "mlp_bias": boolean(),
    "attention_bias": boolean(),
    "attention_out_bias": boolean(),
    "use_qk_norm": boolean(),
    "norm_type": choice(NORM_TYPES),
    "norm_eps": number(0.0, above=True),
    "norm_bias": boolean(),
    "norm_first": boolean(),
    "final_norm": boolean(optional=True),
    "position_embedding_type": choice(POSITION_EMBEDDING_TYPES),
    "sinusoidal_layout": choice(SINUSOIDAL_LAYOUTS),
    "max_source_positions": integer(1),
    "max_target_positions": integer(1),
    "self_attention_position_type": choice(ATTENTION_POSITION_TYPES),
    "cross_attention_position_type": choice(ATTENTION_POSITION_TYPES),
    "relative_attention_max_distance": integer(0),
    "relative_attention_num_buckets": integer(4),
    "dropout": number(0.0, below=1.0),
    "attention_dropout": number(0.0, below=1.0),
    "activation_dropout": number(0.0, below=1.0),
    "encoder_mlp_layer_types": layer_types(),
    "decoder_mlp_layer_types": layer_types(),
    "num_experts": integer(2),
    "num_experts_per_tok": integer(1),
    "moe_intermediate_size": integer(1, optional=True),
    "n_shared_experts": integer(0),
    "norm_topk_prob": boolean(),
    "scoring_func": choice(SCORING_FUNCS),
    "routed_scaling_factor": number(0.0, above=True),
    "router_type": choice(ROUTER_TYPES),
    "router_bias": boolean(),
    "router_noise": choice(ROUTER_NOISE_MODES),
    "expert_capacity_factor": number(0.0, above=True, optional=True),
    "expert_capacity_mode": choice(EXPERT_CAPACITY_MODES),
    "router_bias_update_rate": number(0.0),
    "router_aux_loss_coef": number(0.0),
    "router_sequence_aux_loss_coef": number(0.0),
    "router_z_loss_coef": number(0.0),
    "output_router_logits": boolean(),
    "num_condition_features": integer(0),
    "infer_attention_mask": boolean(),
    "init_std": number(0.0, above=True, optional=True),
    "use_cache": boolean(),
    "pad_token_id": integer(0, optional=True),
    "bos_token_id": integer(0, optional=True),
    "eos_token_id": token_ids(),
    "decoder_start_token_id": integer(0, optional=True),
}


def closest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean `...`?" with the known name that is most like the given one, or "" if none is."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return f" Did you mean `{matches[0]}`?" if matches else ""

"""Checks that the fields of a configuration are consistent. The rules in `fields.py` check each field alone."""

from copy import copy
from typing import Any

from transformers import ROPE_INIT_FUNCTIONS, logging

from ..common.rules import number

logger = logging.get_logger(__name__)


def check_consistency(config: Any) -> None:
    """Check that the fields fit together.

    Args:
        config: a `WeftConfig`. It has no type here, because its file imports this one.

    Raises:
        ValueError: they do not. The message names the fields, their values and what to do.
    """
    if config.position_embedding_type == "sinusoidal" and config.d_model % 2:
        raise ValueError(f"Sinusoidal positions need an even width, not d_model={config.d_model}.")
    _check_heads(config)
    _check_rope(config)
    _check_buckets(config)
    _check_layer_types(config)
    _check_vocabulary(config)
    _check_inferred_mask(config)


def _check_heads(config: Any) -> None:
    for stack, is_decoder in (("encoder", False), ("decoder", True)):
        heads, key_value_heads, head_dim = config.stack_heads(is_decoder)
        if config.given("head_dim") is None and config.d_model % heads:
            raise ValueError(
                f"{stack}_attention_heads={heads} does not divide d_model={config.d_model}: set `head_dim`."
            )
        if heads % key_value_heads:
            raise ValueError(f"num_key_value_heads={key_value_heads} does not divide {stack}_attention_heads={heads}.")
        if config.uses_attention_positions("rotary") and head_dim % 2:
            raise ValueError(
                f"Rotary positions need an even head width, not {head_dim} in the {stack}: set `head_dim`."
            )
    if config.uses_attention_positions("rotary") and config.stack_heads(False)[2] != config.stack_heads(True)[2]:
        raise ValueError(
            "Rotary positions need heads of one width, and those of encoder and decoder differ: set `head_dim`."
        )


def _check_rope(config: Any) -> None:
    rope = config.rope_parameters or {}
    types = ("default", *ROPE_INIT_FUNCTIONS)
    if rope.get("rope_type") not in types:
        raise ValueError(f"rope_parameters={rope!r} is not allowed: set its `rope_type` to one of {', '.join(types)}.")
    for name in ("rope_theta", "factor", "partial_rotary_factor"):
        if name in rope:
            number(0.0, above=True).check(f"rope_parameters[{name!r}]", rope[name])
    if not config.uses_attention_positions("rotary"):
        return
    _check_rotated(rope, config.stack_heads(is_decoder=True)[2])
    try:
        copied_config = copy(config)
        copied_config.rope_parameters = dict(rope)
        copied_config.standardize_rope_params()
        copied_config.validate_rope()
    except KeyError as error:
        raise ValueError(f"rope_parameters={rope!r} is not complete: {error.args[0]}.") from error


def _check_rotated(rope: dict[str, Any], head_dim: int) -> None:
    """Check that the rotated part of a head is a whole number of pairs.

    With `proportional` all of the head counts: it rotates some pairs by an angle of 0 instead.
    """
    factor = rope.get("partial_rotary_factor", 1.0)
    num_rotated = head_dim if rope["rope_type"] == "proportional" else int(head_dim * factor)
    # with a single pair, dynamic scaling divides by zero
    least = 4 if rope["rope_type"] == "dynamic" else 2
    if factor > 1 or num_rotated % 2 or num_rotated < least:
        raise ValueError(
            f"rope_parameters={rope!r} rotates {num_rotated} of {head_dim} numbers: set a `partial_rotary_factor` "
            f"of at most 1 for an even number from {least} on."
        )


def _check_buckets(config: Any) -> None:
    buckets, distance = config.relative_attention_num_buckets, config.relative_attention_max_distance
    if config.uses_attention_positions("bucketed") and (buckets % 2 or distance <= buckets // 2):
        raise ValueError(
            f"relative_attention_num_buckets={buckets} must be even, and less than twice "
            f"relative_attention_max_distance={distance}."
        )


def _check_layer_types(config: Any) -> None:
    for stack in ("encoder", "decoder"):
        types, layers = getattr(config, f"{stack}_mlp_layer_types"), getattr(config, f"{stack}_layers")
        if len(types) != layers:
            raise ValueError(
                f"{stack}_mlp_layer_types has {len(types)} entries for {layers} layers: give one for each."
            )
    if config.has_sparse_layers and config.num_experts_per_tok == 1 and config.norm_topk_prob:
        logger.warning_once(
            "With num_experts_per_tok=1, norm_topk_prob=True makes the weight of each expert 1, so the router gets no "
            "gradient of the labels: leave `norm_topk_prob` out."
        )
    if config.num_experts_per_tok > config.num_experts:
        raise ValueError(
            f"num_experts_per_tok={config.num_experts_per_tok} is more than num_experts={config.num_experts}."
        )


def _check_vocabulary(config: Any) -> None:
    target = config.target_vocab_size
    if target != config.vocab_size and config.share_encoder_decoder_embeddings:
        raise ValueError(
            f"vocab_size={config.vocab_size} and decoder_vocab_size={target} cannot share a table: set "
            "share_encoder_decoder_embeddings=False."
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        value = getattr(config, name)
        # the pad token is in source and target, the other tokens only in the target
        limit = min(config.vocab_size, target) if name == "pad_token_id" else target
        for token in value if isinstance(value, list) else [value]:
            if token is not None and token >= limit:
                raise ValueError(
                    f"{name}={value} is not in the vocabulary (0 to {limit - 1}): change it, or the size."
                )


def _check_inferred_mask(config: Any) -> None:
    pad, ends = config.pad_token_id, config.eos_token_id
    if config.infer_attention_mask and (pad is None or pad in (ends if isinstance(ends, list) else [ends])):
        raise ValueError(
            f"infer_attention_mask=True needs an id for padding alone: pad_token_id={pad}, eos_token_id={ends}."
        )

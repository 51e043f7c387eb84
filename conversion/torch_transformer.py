"""`torch.nn.Transformer`, `nn.TransformerEncoder`, `nn.TransformerDecoder` and their single layers, and models around
them.

These modules have no embeddings and no head. The result is a `WeftModel`, `WeftEncoder` or `WeftDecoder` for
`inputs_embeds`, with random embedding tables of three tokens (more with `vocab_size`). A model around `nn.Transformer`
has them under its own names, which `--rename` turns into `encoder.embed_tokens`, `decoder.embed_tokens` (or `shared`
for both), `embed_positions.weight` (or one for each stack) and `lm_head`. With a head, the result is a
`WeftForConditionalGeneration`. A table of positions, learned or sinusoidal, becomes a learned one.

The weights do not show the number of heads, the order of the norms, the activation, or whether embeddings are scaled.
The number of heads must be given. The others default to those of PyTorch's constructors (`norm_first=False`,
`activation_function="relu"`), and to no scaling (`scale_embedding=False`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from ..modeling import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel, WeftPreTrainedModel
from .operations import SQUEEZE, split
from .shapes import count, first, has
from .source import NO_ATTENTION_POSITIONS, Fields, Source
from .table import KeyRule, KeyTable, rename, renames

EMBEDDINGS = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
STACKS = {"encoder": "source", "decoder": "target"}
_NORMS = {
    "encoder": {"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"},
    "decoder": {"norm1": "self_attn_layer_norm", "norm2": "encoder_attn_layer_norm", "norm3": "final_layer_norm"},
}


def stack_part(weights: Mapping[str, torch.Tensor]) -> tuple[type[WeftPreTrainedModel], str]:
    """Return Weft's class for the weights of a model, stack or layer, and the prefix of their keys in the table."""
    first_words = {key.split(".")[0] for key in weights}
    stack = "decoder" if any(".multihead_attn." in f".{key}" for key in weights) else "encoder"
    if {"encoder", "decoder"} <= first_words:
        return WeftForConditionalGeneration if "lm_head" in first_words else WeftModel, ""
    model_class = WeftDecoder if stack == "decoder" else WeftEncoder
    if "layers" in first_words:
        return model_class, f"{stack}."
    return model_class, f"{stack}.layers.0." if "self_attn" in first_words else ""


def fused_attention(there: str, here: str) -> list[KeyRule]:
    """Return the rules for `nn.MultiheadAttention`."""
    targets = [f"{here}.{name}_proj.<part>" for name in ("q", "k", "v")]
    return [
        rename(f"{there}.in_proj_<part>", *targets, operation=split(3)),
        rename(f"{there}.out_proj.<part>", f"{here}.out_proj.<part>"),
    ]


def stack_table(
    attention: Callable[[str, str], list[KeyRule]], first_linear: str, second_linear: str
) -> list[KeyRule]:
    """Return the table of a transformer without embeddings and head.

    Args:
        attention: returns the rules of an attention module for its name in the source and its name in Weft.
        first_linear: name of the feed-forward's first linear layer within a layer.
        second_linear: name of its second linear layer.
    """
    there, here = "<stack>.layers.<layer>", "model.<stack>.layers.<layer>"
    rules = [
        *renames(there, f"{here}.mlp", {first_linear: "up_proj", second_linear: "down_proj"}),
        *attention(f"{there}.self_attn", f"{here}.self_attn"),
        *attention(f"{there}.multihead_attn", f"{here}.encoder_attn"),
        rename("<stack>.norm.<part>", "model.<stack>.layer_norm.<part>"),
    ]
    for stack, norms in _NORMS.items():
        rules += renames(f"{stack}.layers.<layer>", f"model.{stack}.layers.<layer>", norms)
    return rules


def stack_fields(weights: Mapping[str, torch.Tensor], first_linear: str) -> Fields:
    """Return the fields of a transformer without embeddings and head.

    A stack without weights gets the size of the other.

    Args:
        weights: the source's tensors by its keys.
        first_linear: name of the feed-forward's first linear layer within a layer.
    """
    layer = "<stack>.layers.<layer>"
    fields: Fields = {
        "vocab_size": 3,
        "d_model": first(weights, f"{layer}.norm1.weight").shape[0],
        "norm_first": False,
        "norm_eps": 1e-5,
        "is_gated_act": False,
        "position_embedding_type": "none",
        "self_attention_position_type": "none",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "final_norm": has(weights, "<stack>.norm.weight"),
        "norm_bias": has(weights, f"{layer}.norm1.bias"),
        "mlp_bias": has(weights, f"{layer}.{first_linear}.bias"),
    }
    for stack in ("encoder", "decoder"):
        there = f"{stack}.layers.<layer>"
        if not has(weights, f"{there}.norm1.weight"):
            there = f"{'decoder' if stack == 'encoder' else 'encoder'}.layers.<layer>"
        fields[f"{stack}_layers"] = count(weights, f"{there}.norm1.weight")
        fields[f"{stack}_ffn_dim"] = first(weights, f"{there}.{first_linear}.weight").shape[0]
    return fields


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    return [
        *stack_table(fused_attention, "linear1", "linear2"),
        rename("shared.weight", "model.shared.weight"),
        rename("<stack>.embed_tokens.weight", "model.<stack>.embed_tokens.weight"),
        rename("<stack>.embed_positions.weight", "model.<stack>.embed_positions.weight", operation=SQUEEZE),
        rename("embed_positions.weight", "model.<stack>.embed_positions.weight", operation=SQUEEZE),
        rename("lm_head.<part>", "lm_head.<part>"),
    ]


def _around(weights: Mapping[str, torch.Tensor]) -> Fields:
    """Return the fields of embeddings, positions and head, if a model has them around its stacks."""
    fields: Fields = {}
    tables = {stack: weights.get(f"{stack}.embed_tokens.weight", weights.get("shared.weight")) for stack in STACKS}
    if tables["encoder"] is not None and tables["decoder"] is not None:
        fields |= {"vocab_size": len(tables["encoder"]), "decoder_vocab_size": len(tables["decoder"])}
        fields["share_encoder_decoder_embeddings"] = "shared.weight" in weights
    for stack, side in STACKS.items():
        positions = weights.get(f"{stack}.embed_positions.weight", weights.get("embed_positions.weight"))
        if positions is not None:
            fields |= {"position_embedding_type": "learned", f"max_{side}_positions": max(positions.shape[:-1])}
    if "lm_head.weight" in weights:
        fields |= {"tie_word_embeddings": False, "lm_head_bias": "lm_head.bias" in weights}
    return fields


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    return (
        stack_fields(weights, "linear1")
        | _around(weights)
        | {
            "norm_type": "layernorm",
            "activation_function": "relu",
            "attention_bias": has(weights, "<stack>.layers.<layer>.self_attn.in_proj_bias"),
            "attention_out_bias": has(weights, "<stack>.layers.<layer>.self_attn.out_proj.bias"),
        }
    )


SOURCE = Source(
    name="torch",
    title="torch.nn.Transformer",
    signature=("<stack>.layers.<layer>.linear1.weight", "<stack>.layers.<layer>.self_attn.in_proj_weight"),
    fields=_fields,
    table=_table,
    new=EMBEDDINGS,
    part=stack_part,
    computes=lambda source_config: [
        NO_ATTENTION_POSITIONS | {"norm_type": "layernorm", "is_gated_act": False, "position_embedding_type": kind}
        for kind in ("none", "learned")
    ],
)

"""transformers' T5 family: T5, T5 1.1, Flan-T5 and ByT5 (`model_type` "t5"), and mT5 ("mt5").

The Weft model differs from the originals in these points:

- T5 does not divide the attention scores by the square root of the head's width. The weights of q are multiplied by it
  instead.
- T5's first layer has the relative bias for all layers. In Weft each layer has its own bias, and they are trained
  separately.
- The first T5s multiply the decoder's output by d_model^-0.5 before the tied head. In Weft the head is then a separate
  weight, multiplied by this factor, and is trained separately from the embeddings.
- T5 has dropout after its final norms, and Weft does not. The outputs agree in evaluation mode.

UMT5 does not convert: transformers 5.23 scales its output even if its configuration disables that, so there is no
correct model to compare with.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from .operations import UNCHANGED, also_scaled, scale
from .source import Fields, Source
from .table import Ignored, KeyRule, KeyTable, rename

# The fields that follow from the code.
_CODE: Fields = {
    "norm_type": "rmsnorm",
    "norm_first": True,
    "final_norm": True,
    "position_embedding_type": "none",
    "self_attention_position_type": "bucketed",
    "cross_attention_position_type": "none",
    "scale_embedding": False,
}


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    return {
        "vocab_size": source_config["vocab_size"],
        "d_model": source_config["d_model"],
        "head_dim": source_config["d_kv"],
        "encoder_layers": source_config["num_layers"],
        "decoder_layers": source_config["num_decoder_layers"],
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), source_config["num_heads"]),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), source_config["d_ff"]),
        "activation_function": source_config["dense_act_fn"],
        "is_gated_act": source_config["is_gated_act"],
        **_CODE,
        "norm_eps": source_config["layer_norm_epsilon"],
        "relative_attention_num_buckets": source_config["relative_attention_num_buckets"],
        "relative_attention_max_distance": source_config["relative_attention_max_distance"],
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), source_config["dropout_rate"]),
        "tie_word_embeddings": not _has_own_head(weights) and not _scales_output(source_config),
        "pad_token_id": source_config["pad_token_id"],
        "bos_token_id": source_config.get("bos_token_id"),
        "eos_token_id": source_config["eos_token_id"],
        "decoder_start_token_id": source_config.get("decoder_start_token_id", source_config["pad_token_id"]),
    }


def _scales_output(source_config: Mapping[str, Any]) -> bool:
    """Return whether the model scales the decoder's output.

    T5 1.1 does not (by a field), nor mT5 (by its `model_type`).
    """
    is_tied = source_config.get("tie_word_embeddings") is not False
    return source_config["model_type"] == "t5" and source_config.get("scale_decoder_outputs", is_tied)


def _has_own_head(weights: Mapping[str, torch.Tensor]) -> bool:
    return "lm_head.weight" in weights and not torch.equal(weights["lm_head.weight"], weights["shared.weight"])


def _embeddings(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    factor = config.d_model**-0.5 if _scales_output(source_config) else 1.0
    copies = "repeats the shared table"
    if config.tie_word_embeddings:
        head: KeyTable = [
            rename("shared.weight", "model.shared.weight"),
            Ignored("lm_head.weight", copies, same_as="shared.weight"),
        ]
    else:
        # the head is the embedding table, unless the file has a separate head
        head = [
            rename("shared.weight", "model.shared.weight", "lm_head.weight", operation=also_scaled(factor)),
            rename("lm_head.weight", "lm_head.weight", operation=scale(lambda heads: factor)),
            rename("shared.weight", "model.shared.weight"),
        ]
    return [
        *head,
        Ignored("encoder.embed_tokens.weight", copies, same_as="shared.weight"),
        Ignored("decoder.embed_tokens.weight", copies, same_as="shared.weight"),
        # only the first published files have this tensor
        Ignored("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", "never read"),
    ]


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    rules: list[KeyRule | Ignored] = [*_embeddings(config, source_config)]
    attentions = {"encoder": ["SelfAttention"], "decoder": ["SelfAttention", "EncDecAttention"]}
    for stack, names in attentions.items():
        there, here = f"{stack}.block.<layer>.layer", f"model.{stack}.layers.<layer>"
        for number, name in enumerate(names):
            ours = "self_attn" if number == 0 else "encoder_attn"
            for a, b in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
                change = scale(lambda heads: heads.width**0.5) if a == "q" else UNCHANGED
                rules.append(
                    rename(f"{there}.{number}.{name}.{a}.weight", f"{here}.{ours}.{b}.weight", operation=change)
                )
            rules.append(rename(f"{there}.{number}.layer_norm.weight", f"{here}.{ours}_layer_norm.weight"))
        last, first = len(names), f"{stack}.block.0.layer.0.SelfAttention"
        up = {"wi_0": "gate_proj", "wi_1": "up_proj"} if config.is_gated_act else {"wi": "up_proj"}
        rules += [
            rename(f"{there}.{last}.DenseReluDense.{a}.weight", f"{here}.mlp.{b}.weight")
            for a, b in (up | {"wo": "down_proj"}).items()
        ]
        rules += [
            rename(f"{there}.{last}.layer_norm.weight", f"{here}.final_layer_norm.weight"),
            rename(f"{stack}.final_layer_norm.weight", f"model.{stack}.layer_norm.weight"),
            rename(f"{first}.relative_attention_bias.weight", f"{here}.self_attn.relative_bias"),
        ]  # fmt: skip
    return rules


SOURCE = Source(
    name="t5",
    title="transformers' T5 family (T5, T5 1.1, Flan-T5, ByT5, mT5)",
    signature=(
        "encoder.block.<layer>.layer.0.SelfAttention.q.weight",
        "decoder.block.<layer>.layer.1.EncDecAttention.q.weight",
    ),
    fields=_fields,
    table=_table,
    model_types=("t5", "mt5"),
    computes=lambda source_config: [_CODE],
    training=(
        "Training differs: each layer has its own relative positions, the head of the first T5s is not tied to "
        "the embeddings, and there is no dropout after the final norms."
    ),
)

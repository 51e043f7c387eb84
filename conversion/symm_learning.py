"""symm-learning 0.8.1 (PyPI `symm-learning`): its plain transformer encoder and decoder, stacks and single layers.

The attention is `nn.MultiheadAttention`, or one of three classes with positions in q and k only. The keys show which
one it is. Its rotary positions rotate neighbouring channels, but Weft's rotate the two halves of a head, so the
conversion reorders the rows of q and k. As with `torch.nn.Transformer`, there are no embeddings, and the number of
heads must be given. A norm without bias is assumed to be `rmsnorm`, the default of symm-learning: give
`norm_type="layernorm"` for a LayerNorm with `bias=False`. Other defaults are `norm_first=False`,
`activation_function="gelu"` and a rotary base of 10000 (`rope_parameters`). The equivariant classes do not convert,
because their weights are parametrised by a group.

Outputs can differ in three cases. symm-learning treats a float causal `tgt_mask` as a hint; its relative attention
then ignores its bias if there are no pads, but Weft always applies the bias. A final `nn.RMSNorm` without `eps` has
another eps than the layers. With a 2-D mask, Weft's decoder counts positions of non-pad tokens only, whereas
symm-learning counts all tokens (give `position_ids`).
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from .operations import PAIRS_TO_HALVES
from .shapes import first, has
from .source import Fields, Source
from .table import KeyRule, KeyTable, rename, renames
from .torch_transformer import EMBEDDINGS, fused_attention, stack_fields, stack_part, stack_table


def _attention(there: str, here: str, kind: str) -> list[KeyRule]:
    if kind == "bucketed":
        raise ValueError('symm-learning has no attention with "bucketed" positions.')
    if kind == "rotary":
        projections = [
            rename(f"{there}.{n}_proj.<part>", f"{here}.{n}_proj.<part>", operation=PAIRS_TO_HALVES) for n in "qk"
        ]
        return [*projections, *renames(there, here, {"v_proj": "v_proj", "out_proj": "out_proj"})]
    return [
        *fused_attention(there if kind == "none" else f"{there}.attn", here),
        rename(f"{there}.pos_emb", f"{here}.position_table.weight"),
        rename(f"{there}.rel_bias", f"{here}.relative_bias"),
    ]


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    kinds = {"self_attn": config.self_attention_position_type, "multihead_attn": config.cross_attention_position_type}

    def attention(there: str, here: str) -> list[KeyRule]:
        return _attention(there, here, kinds[there.rpartition(".")[2]])

    return stack_table(attention, "feed_forward_block.0", "feed_forward_block.3")


def _position_type(weights: Mapping[str, torch.Tensor], attention: str) -> str:
    for key, kind in (("pos_emb", "additive"), ("rel_bias", "relative"), ("q_proj.weight", "rotary")):
        if has(weights, f"<stack>.layers.<layer>.{attention}.{key}"):
            return kind
    return "none"


def _table_rows(weights: Mapping[str, torch.Tensor]) -> Fields:
    """Return the lengths of the additive position tables, as fields.

    In Weft, the table of the cross-attention has the larger of the source's and the target's length.
    """

    def rows(attention: str) -> int:
        pattern = f"{attention}.pos_emb"
        return first(weights, pattern).shape[0] if has(weights, pattern) else 0

    source = max(rows("encoder.layers.<layer>.self_attn"), rows("decoder.layers.<layer>.multihead_attn"))
    target = rows("decoder.layers.<layer>.self_attn")
    if not source and not target:
        return {}
    return {"max_source_positions": source or target, "max_target_positions": target or source}


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    layer = "<stack>.layers.<layer>"
    biases = [f"{layer}.self_attn.{name}" for name in ("in_proj_bias", "attn.in_proj_bias", "q_proj.bias")]
    fields = stack_fields(weights, "feed_forward_block.0") | {
        "activation_function": "gelu",
        "attention_bias": has(weights, *biases),
        "attention_out_bias": has(weights, *biases),
        "self_attention_position_type": _position_type(weights, "self_attn"),
        "cross_attention_position_type": _position_type(weights, "multihead_attn"),
        # the attention modules are built before the layer, and their dropout is 0 by default
        "attention_dropout": 0.0,
    }
    fields["norm_type"] = "layernorm" if fields["norm_bias"] else "rmsnorm"
    tables = [f"{layer}.{name}.rel_bias" for name in ("self_attn", "multihead_attn")]
    if has(weights, *tables):
        fields["relative_attention_max_distance"] = (first(weights, *tables).shape[0] - 1) // 2
    return fields | _table_rows(weights)


SOURCE = Source(
    name="symm",
    title="symm-learning's transformer",
    signature=("<stack>.layers.<layer>.feed_forward_block.0.weight", "<stack>.layers.<layer>.norm1.weight"),
    fields=_fields,
    table=_table,
    new=EMBEDDINGS,
    part=stack_part,
    computes=lambda source_config: [
        {"norm_type": norm, "is_gated_act": False, "position_embedding_type": kind}
        for norm in ("layernorm", "rmsnorm")
        for kind in ("none", "learned")
    ],
)

"""symm-learning 0.8.1 (PyPI `symm-learning`): its plain transformer encoder and decoder, stacks and single layers.

Attention is `nn.MultiheadAttention` or one of the three classes whose positions enter q and k only; which one, the keys
tell. The rotary one turns neighbouring channels, Weft the two halves of a head: the rows of q and k are put in that order.
As with `torch.nn.Transformer` there are no embeddings, and the number of heads has to be given. A norm without bias is
taken for the `rmsnorm` that is the default there: give `norm_type="layernorm"` for a LayerNorm built with `bias=False`.
Other defaults: `norm_first=False`, `activation_function="gelu"`, a rotary base of 10000 (`rope_parameters`). The equivariant
classes are not covered: their weights are parametrised by a group.

Where the two may part: symm takes a float causal `tgt_mask` for a hint, and with nothing padded its relative attention then
loses its bias, which Weft always applies; a last `nn.RMSNorm` built without `eps` has another one than the layers; and Weft's
decoder counts real tokens where a 2-D mask is given, symm all of them (give `position_ids`).
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from .operations import PairsToHalves
from .shapes import first, has
from .source import HEADS, Fields, Source
from .table import Rule, Table, rename
from .torch_transformer import EMBEDDINGS, fused_attention, stack_fields, stack_part, stack_table


def _attention(there: str, here: str, kind: str) -> list[Rule]:
    if kind == "bucketed":
        raise ValueError('symm-learning has no attention with "bucketed" positions.')
    if kind == "rotary":
        turned = [
            rename(f"{there}.{n}_proj.<part>", f"{here}.{n}_proj.<part>", operation=PairsToHalves()) for n in "qk"
        ]
        return [*turned, *(rename(f"{there}.{n}_proj.<part>", f"{here}.{n}_proj.<part>") for n in ("v", "out"))]
    return [
        *fused_attention(there if kind == "none" else f"{there}.attn", here),
        rename(f"{there}.pos_emb", f"{here}.position_table.weight"),
        rename(f"{there}.rel_bias", f"{here}.relative_bias"),
    ]


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> Table:
    kinds = {"self_attn": config.self_attention_position_type, "multihead_attn": config.cross_attention_position_type}

    def attention(there: str, here: str) -> list[Rule]:
        return _attention(there, here, kinds[there.rpartition(".")[2]])

    return stack_table(attention, "feed_forward_block.0", "feed_forward_block.3")


def _position_type(weights: Mapping[str, torch.Tensor], attention: str) -> str:
    for key, kind in (("pos_emb", "additive"), ("rel_bias", "relative"), ("q_proj.weight", "rotary")):
        if has(weights, f"<stack>.layers.<layer>.{attention}.{key}"):
            return kind
    return "none"


def _table_rows(weights: Mapping[str, torch.Tensor]) -> Fields:
    """Rows of the additive tables; Weft's table of the cross-attention is as long as the longer of source and target."""

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
        # it belongs to the attention modules, which are built before the layer and have none by default
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
    must_be_given=HEADS,
    new=EMBEDDINGS,
    part=stack_part,
)

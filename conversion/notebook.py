"""A lecture notebook's transformer, with valid lengths as masks, no biases, and a state per layer for decoding.

The keys are those of its family of notebooks (`blks.block0.attention.W_q`, `addnorm1.ln`, `ffn.dense1`). They also
show whether a linear layer has a bias. Weft takes masks instead of valid lengths. The state of a layer is its KV
cache.

The notebook's code has an error: its decoder normalises the output of the cross-attention without the residual. The
notebook's text and figure have the residual, and so has Weft. Weights that were trained with this code convert, but
the converted model gives other outputs.
"""

from collections.abc import Mapping
from typing import Any

import torch

from .shapes import VASWANI, vaswani_fields
from .source import Fields, Source
from .table import KeyTable, rename, renames

_ATTENTION = {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj"}
_BLOCKS = {
    "encoder": {"attention": "self_attn", "addnorm1.ln": "self_attn_layer_norm", "addnorm2.ln": "final_layer_norm"},
    "decoder": {
        "attention1": "self_attn",
        "addnorm1.ln": "self_attn_layer_norm",
        "attention2": "encoder_attn",
        "addnorm2.ln": "encoder_attn_layer_norm",
        "addnorm3.ln": "final_layer_norm",
    },
}


def _table() -> KeyTable:
    there, here = "<stack>.blks.block<layer>", "model.<stack>.layers.<layer>"
    rules = [
        rename("<stack>.embedding.weight", "model.<stack>.embed_tokens.weight"),
        *renames(f"{there}.ffn", f"{here}.mlp", {"dense1": "up_proj", "dense2": "down_proj"}),
        rename("decoder.dense.<part>", "lm_head.<part>"),
    ]
    for stack, blocks in _BLOCKS.items():
        there, here = f"{stack}.blks.block<layer>", f"model.{stack}.layers.<layer>"
        for theirs, ours in blocks.items():
            if "norm" in theirs:
                rules += renames(there, here, {theirs: ours})
            else:
                rules += renames(f"{there}.{theirs}", f"{here}.{ours}", _ATTENTION)
    return rules


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    fields = vaswani_fields(weights, _table())
    return fields | {"dropout": 0.1, "attention_dropout": 0.1}


SOURCE = Source(
    name="notebook",
    title="the lecture notebook's transformer",
    signature=("encoder.blks.block<layer>.attention.W_q.weight", "decoder.blks.block<layer>.attention2.W_q.weight"),
    fields=_fields,
    computes=lambda source_config: [VASWANI],
    table=lambda config, source_config: _table(),
)

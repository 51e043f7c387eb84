"""A widespread English-to-Persian tutorial in plain PyTorch.

It has one fused q/k/v projection with an output ordered head by head as [q, k, v] (and a fused k/v projection in the
cross-attention), norms with `gamma` and `beta` that divide by (standard deviation + 1e-6), sinusoidal positions, ReLU
with dropout before the second linear layer, post-norm, and a vocabulary for each language. The vocabularies can be
given as the source's configuration, `{"source_vocabulary": {token: id}, "target_vocabulary": {token: id}}`. The ids of
`<SOS>`, `<PAD>` and `<EOS>` then become the special ids. The id of the source's `<PAD>` must also be in the target's
vocabulary.

The tutorial's code has an error: its decoder takes the keys and values of the cross-attention from its own states, so
it never reads the source. The tutorial's text, figure and formulas take them from the encoder, and so does Weft.
Weights that were trained with this code convert, but the converted model gives other outputs.
"""

from collections.abc import Mapping
from typing import Any

import torch

from .operations import split_by_head
from .shapes import VASWANI, vaswani_fields
from .source import Fields, Source
from .table import KeyRule, KeyTable, rename, renames
from .vocabularies import read_vocabularies, special_tokens, target_pad


def _norm(there: str, here: str) -> list[KeyRule]:
    return [rename(f"{there}.gamma", f"{here}.weight"), rename(f"{there}.beta", f"{here}.bias")]


def _self_attention(there: str, here: str) -> list[KeyRule]:
    targets = [f"{here}.{name}_proj.<part>" for name in ("q", "k", "v")]
    return [
        rename(f"{there}.qkv_layer.<part>", *targets, operation=split_by_head(3)),
        rename(f"{there}.linear_layer.<part>", f"{here}.out_proj.<part>"),
    ]


def _table() -> KeyTable:
    there, here = "<stack>.layers.<layer>", "model.<stack>.layers.<layer>"
    encoder, decoder = "model.encoder.layers.<layer>", "model.decoder.layers.<layer>"
    cross = "decoder.layers.<layer>.encoder_decoder_attention"
    keys_values = [f"{decoder}.encoder_attn.{name}_proj.<part>" for name in ("k", "v")]
    return [
        rename("linear.<part>", "lm_head.<part>"),
        rename("<stack>.sentence_embedding.embedding.weight", "model.<stack>.embed_tokens.weight"),
        *renames(f"{there}.ffn", f"{here}.mlp", {"linear1": "up_proj", "linear2": "down_proj"}),
        *_self_attention("encoder.layers.<layer>.attention", f"{encoder}.self_attn"),
        *_norm("encoder.layers.<layer>.norm1", f"{encoder}.self_attn_layer_norm"),
        *_norm("encoder.layers.<layer>.norm2", f"{encoder}.final_layer_norm"),
        *_self_attention("decoder.layers.<layer>.self_attention", f"{decoder}.self_attn"),
        *renames(cross, f"{decoder}.encoder_attn", {"q_layer": "q_proj", "linear_layer": "out_proj"}),
        rename(f"{cross}.kv_layer.<part>", *keys_values, operation=split_by_head(2)),
        *_norm("decoder.layers.<layer>.layer_norm1", f"{decoder}.self_attn_layer_norm"),
        *_norm("decoder.layers.<layer>.layer_norm2", f"{decoder}.encoder_attn_layer_norm"),
        *_norm("decoder.layers.<layer>.layer_norm3", f"{decoder}.final_layer_norm"),
    ]


# The fields that differ from those of Vaswani et al.
_CODE: Fields = {"scale_embedding": False, "norm_type": "stdnorm", "norm_eps": 1e-6}


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    fields = vaswani_fields(weights, _table())
    fields |= _CODE | {"dropout": 0.1, "activation_dropout": 0.1}
    vocabularies = read_vocabularies(source_config)
    if vocabularies is not None:
        fields |= special_tokens(vocabularies, "<SOS>", "<PAD>", "<EOS>")
    return fields


SOURCE = Source(
    name="tutorial",
    title="the English-to-Persian tutorial",
    signature=(
        "encoder.layers.<layer>.attention.qkv_layer.weight",
        "decoder.layers.<layer>.encoder_decoder_attention.kv_layer.weight",
    ),
    fields=_fields,
    computes=lambda source_config: [VASWANI | _CODE],
    table=lambda config, source_config: _table(),
    generation=lambda source_config: target_pad(source_config, "<PAD>"),
)

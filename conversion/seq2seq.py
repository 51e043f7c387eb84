"""The transformer of Ben Trevett's PyTorch seq2seq tutorial ("Attention is all you need"), which many projects copied.

Its embeddings are multiplied by the square root of the width, its positions are learned, its layers are post-norm with
ReLU, and all its dropouts have one rate. The number of heads is not in the weights.

The vocabularies can be given as the source's configuration, `{"source_vocabulary": {token: id}, "target_vocabulary":
{token: id}}`, or `{"vocabulary": {token: id}}` if source and target have the same, which then becomes a tokenizer. For
torchtext, token and id are those of `enumerate(field.vocab.itos)`. `pattern` is the regular expression of a token
(default: words between spaces, as torchtext splits texts), and `lower` says whether texts are in lower case. Without
vocabularies, the special ids are those of torchtext.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from .shapes import VASWANI, first, vaswani_fields
from .source import Fields, Source
from .table import KeyTable, rename, renames
from .vocabularies import build_tokenizer, read_vocabularies, special_tokens, target_pad

_SPECIAL = ("<sos>", "<pad>", "<eos>")
_ATTENTION = {"fc_q": "q_proj", "fc_k": "k_proj", "fc_v": "v_proj", "fc_o": "out_proj"}
_NORMS = {
    "self_attn_layer_norm": "self_attn_layer_norm",
    "enc_attn_layer_norm": "encoder_attn_layer_norm",
    "ff_layer_norm": "final_layer_norm",
}


def _tokenizer(source_config: Mapping[str, Any]) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of a common vocabulary. transformers has none for a vocabulary each."""
    vocabularies = read_vocabularies(source_config)
    if vocabularies is None or vocabularies[0] != vocabularies[1]:
        return None
    pattern, lower = source_config.get("pattern"), source_config.get("lower", False)
    unknown = "<unk>" if "<unk>" in vocabularies[0] else None
    return build_tokenizer(vocabularies[0], *_SPECIAL, unknown, pattern, lower)


def _table() -> KeyTable:
    there, here = "<stack>.layers.<layer>", "model.<stack>.layers.<layer>"
    return [
        rename("<stack>.tok_embedding.weight", "model.<stack>.embed_tokens.weight"),
        rename("<stack>.pos_embedding.weight", "model.<stack>.embed_positions.weight"),
        *renames(f"{there}.self_attention", f"{here}.self_attn", _ATTENTION),
        *renames(f"{there}.encoder_attention", f"{here}.encoder_attn", _ATTENTION),
        *renames(f"{there}.positionwise_feedforward", f"{here}.mlp", {"fc_1": "up_proj", "fc_2": "down_proj"}),
        *renames(there, here, _NORMS),
        rename("decoder.fc_out.<part>", "lm_head.<part>"),
    ]


# The fields that differ from those of Vaswani et al.
_CODE: Fields = {"position_embedding_type": "learned"}


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    source, target = (first(weights, f"{stack}.tok_embedding.weight") for stack in ("encoder", "decoder"))
    fields = vaswani_fields(weights, _table())
    fields |= _CODE | {"infer_attention_mask": True}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        fields[f"max_{side}_positions"] = len(first(weights, f"{stack}.pos_embedding.weight"))
    fields |= {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
    vocabularies = read_vocabularies(source_config)
    if vocabularies is None:
        return fields | {"pad_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 2, "eos_token_id": 3}
    for name, vocabulary, table in zip(("source", "target"), vocabularies, (source, target), strict=True):
        if sorted(vocabulary.values()) != list(range(len(table))):
            raise ValueError(
                f"The {name} vocabulary has {len(vocabulary)} tokens for {len(table)} rows: give that of the training "
                "(`enumerate(field.vocab.itos)` of torchtext)."
            )
    return fields | special_tokens(vocabularies, *_SPECIAL)


SOURCE = Source(
    name="seq2seq",
    title="Ben Trevett's PyTorch seq2seq tutorial",
    signature=(
        "encoder.layers.<layer>.positionwise_feedforward.fc_1.weight",
        "decoder.layers.<layer>.encoder_attention.fc_q.weight",
    ),
    fields=_fields,
    computes=lambda source_config: [VASWANI | _CODE],
    table=lambda config, source_config: _table(),
    generation=lambda source_config: target_pad(source_config, "<pad>"),
    tokenizer=_tokenizer,
)

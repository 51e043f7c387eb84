"""Decoder-only checkpoints of transformers: Llama and Qwen3. The result is an encoder-decoder, as in T5Gemma (Zhang et al.
2025, arXiv:2504.06225).

Both stacks begin with the layers of the decoder. The encoder has no causal mask, so it reads in both directions. Each
cross-attention and the norm in front of it begin with the self-attention of the same layer. Cross-attention has no rotary
positions, as in T5Gemma, because source and target do not share a count of positions. One table embeds source and target,
as in T5Gemma 2. It is also the head if it was the head of the checkpoint.

Such a model must be trained before use: its cross-attention is untrained.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from .source import Fields, Source, base_model_part
from .table import Ignored, Rule, Table, rename, renames


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    own = source_config
    for name in ("sliding_window", "quantization_config"):
        if own.get(name) is not None:
            raise ValueError(
                f"{name}={own[name]!r} of this {own['model_type']} model does not convert: only {name}=None does."
            )
    rope = own["rope_parameters"]
    if rope.get("partial_rotary_factor", 1.0) != 1.0:  # transformers ignores it for these models
        raise ValueError(f"rope_parameters={rope!r} does not convert: these models rotate whole heads.")
    biases = own.get("attention_bias", False)
    bos, pad = own.get("bos_token_id"), own.get("pad_token_id")
    return {
        "vocab_size": own["vocab_size"],
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": own["tie_word_embeddings"],
        "d_model": own["hidden_size"],
        **dict.fromkeys(("encoder_layers", "decoder_layers"), own["num_hidden_layers"]),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), own["num_attention_heads"]),
        "num_key_value_heads": own["num_key_value_heads"],
        "head_dim": own.get("head_dim"),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), own["intermediate_size"]),
        "activation_function": own["hidden_act"],
        "is_gated_act": True,
        "mlp_bias": own.get("mlp_bias", False),
        **dict.fromkeys(("attention_bias", "attention_out_bias"), biases),
        "use_qk_norm": own["model_type"] == "qwen3",
        "norm_type": "rmsnorm",
        "norm_eps": own["rms_norm_eps"],
        "norm_first": True,
        "position_embedding_type": "none",
        "self_attention_position_type": "rotary",
        "cross_attention_position_type": "none",
        "rope_parameters": rope,
        **dict.fromkeys(("max_source_positions", "max_target_positions"), own["max_position_embeddings"]),
        "dropout": 0.0,
        "attention_dropout": own["attention_dropout"],
        "activation_dropout": 0.0,
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": own.get("eos_token_id"),
        # the bos as in T5Gemma, or else the pad as in T5
        "decoder_start_token_id": pad if bos is None else bos,
    }


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> Table:
    """Return the table. `<stack>` and `<attention>` are only in Weft's keys, so every place gets a copy."""
    if config.pad_token_id is None:
        raise ValueError(
            "The checkpoint has no pad token, with which an encoder-decoder fills up short sources and targets: choose a token "
            "of its vocabulary that is in no text (`--config-overrides pad_token_id=ID`)."
        )
    there, here = "model.layers.<layer>", "model.<stack>.layers.<layer>"
    embeddings = "model.embed_tokens.weight"
    head: Rule | Ignored = rename("lm_head.weight", "lm_head.weight")
    if config.tie_word_embeddings:
        head = Ignored("lm_head.weight", "repeats the embedding table", same_as=embeddings)
    attention = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"}
    if config.use_qk_norm:
        attention |= {"q_norm": "q_norm", "k_norm": "k_norm"}
    return [
        rename(embeddings, "model.shared.weight"),
        head,
        rename("model.norm.weight", "model.<stack>.layer_norm.weight"),
        rename(f"{there}.input_layernorm.weight", f"{here}.<attention>_layer_norm.weight"),
        rename(f"{there}.post_attention_layernorm.weight", f"{here}.final_layer_norm.weight"),
        *renames(f"{there}.self_attn", f"{here}.<attention>", attention),
        *renames(f"{there}.mlp", f"{here}.mlp", {name: name for name in ("gate_proj", "up_proj", "down_proj")}),
        Ignored(f"{there}.self_attn.rotary_emb.inv_freq", "computed; in old files only"),
    ]


SOURCE = Source(
    name="llama",
    title="a decoder-only checkpoint of transformers (Llama, Qwen3), as both stacks",
    signature=("model.layers.<layer>.self_attn.q_proj.weight", "model.layers.<layer>.input_layernorm.weight"),
    fields=_fields,
    table=_table,
    model_types=("llama", "qwen3"),
    part=base_model_part,
)

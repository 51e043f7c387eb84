"""Encoder-decoders from decoder-only checkpoints, as in T5Gemma (Zhang et al. 2025, arXiv:2504.06225).

Both stacks begin with the layers of the decoder, or with some of them, evenly spaced, as in "shrink and fine-tune"
(Shleifer and Rush 2020, arXiv:2010.13002). The encoder has no causal mask, and so reads both ways. Each
cross-attention, with the norm in front of it, begins with the self-attention of its layer. Its queries and keys are not
turned, as in T5Gemma: source and target have no common count of positions. One table embeds source and target, as in
T5Gemma 2; it is the head too if it was in the checkpoint. The encoder may also begin with a second checkpoint of the same
width, as in T5Gemma's pairs of two sizes; each stack then has the table of its own.

Such a model has to be trained before use: the cross-attention of an untouched one adds to the decoder's states what they
were never trained with.
"""

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..common.progress import Progress
from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from ..modeling.layers import at_least_float32
from .operations import Heads, Operation, Tensors
from .source import Conversion, Fields, Source, convert
from .table import Ignored, Rule, Table, Weights, rename, renames

# What each family can be told in its configuration that Weft has nothing for, with the values that ask for nothing.
FAMILIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": {},
    "mixtral": {"sliding_window": (None,), "router_jitter_noise": (0.0,)},
    "qwen3": {"sliding_window": (None,)},
    "gemma": {"use_bidirectional_attention": (None, False)},
}
# Families that are asked for, and what else they need. All have a norm behind each sub-layer too.
_BEYOND = {
    "gemma2": ("attn_logit_softcapping", "final_logit_softcapping", "sliding_window"),
    "gemma3_text": ("sliding_window",),
    "gemma3": (),
}
_EVERY_FAMILY: dict[str, tuple[Any, ...]] = {"quantization_config": (None,)}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# What comes from the checkpoint of the encoder if there are two, and all that they may differ in.
_OF_ENCODER = ("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "max_source_positions")
_OF_ONE_STACK = {
    *_OF_ENCODER,
    *("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "max_target_positions"),
    *("tie_word_embeddings", "attention_dropout", "router_aux_loss_coef"),
}
_LAYER = re.compile(r"(.*\blayers\.)(\d+)(\..*)")


def _check_family(source_config: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first field of the checkpoint that Weft cannot express."""
    family = source_config.get("model_type")
    if family in _BEYOND:
        fields = [f"{name}={source_config.get(name)!r}" for name in _BEYOND[family]]
        raise ValueError(
            f"model_type={family!r} cannot be adapted: Weft has nothing for {', '.join(['norms behind sub-layers', *fields])}. "
            f"Families that it can express are {', '.join(FAMILIES)}."
        )
    if family not in FAMILIES:
        raise ValueError(
            f"model_type={family!r} cannot be adapted: a checkpoint has to be of one of the families {', '.join(FAMILIES)}."
        )
    for name, values in (FAMILIES[family] | _EVERY_FAMILY).items():
        if source_config.get(name) not in values:
            raise ValueError(
                f"{name}={source_config[name]!r} of this {family} model cannot be expressed: Weft has only "
                f"{name}={values[0]!r}."
            )
    rope = source_config["rope_parameters"]
    if rope.get("partial_rotary_factor", 1.0) != 1.0:  # each of these families turns whole heads, whatever it is told
        raise ValueError(
            f"rope_parameters={rope!r} of this {family} model cannot be expressed: it turns part of a head."
        )


def _fields(weights: Mapping[str, torch.Tensor], own: Mapping[str, Any]) -> Fields:
    _check_family(own)
    biases = own.get("attention_bias", False)
    sparse = {
        **dict.fromkeys(("encoder_mlp_layer_types", "decoder_mlp_layer_types"), "sparse"),
        "num_experts": own.get("num_local_experts"),
        "num_experts_per_tok": own.get("num_experts_per_tok"),
        "norm_topk_prob": True,
        "router_aux_loss_coef": own.get("router_aux_loss_coef"),
        "router_z_loss_coef": 0.0,
    }
    return {
        "vocab_size": own["vocab_size"],
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": own["tie_word_embeddings"],
        "scale_embedding": own["model_type"] == "gemma",
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
        "rope_parameters": own["rope_parameters"],
        **dict.fromkeys(("max_source_positions", "max_target_positions"), own["max_position_embeddings"]),
        "dropout": 0.0,
        "attention_dropout": own["attention_dropout"],
        "activation_dropout": 0.0,
        **(sparse if own["model_type"] == "mixtral" else {}),
    }


def _table(config: WeftConfig, own: Mapping[str, Any]) -> Table:
    """Return the table for the keys of both stacks, each with the name of its stack in front.

    `<attention>` is only in Weft's keys: what it stands for gets copies.
    """
    there, here = "<stack>.model.layers.<layer>", "model.<stack>.layers.<layer>"
    norm = OnePlus() if own["model_type"] == "gemma" else None
    rules: list[Rule | Ignored] = [
        Ignored("encoder.lm_head.weight", "an encoder has no head"),
        rename("<stack>.model.norm.weight", "model.<stack>.layer_norm.weight", operation=norm),
        rename(f"{there}.input_layernorm.weight", f"{here}.<attention>_layer_norm.weight", operation=norm),
        rename(f"{there}.post_attention_layernorm.weight", f"{here}.final_layer_norm.weight", operation=norm),
        # in old files
        Ignored(f"{there}.self_attn.rotary_emb.inv_freq", "computed"),
    ]
    same = "decoder.model.embed_tokens.weight"
    if config.share_encoder_decoder_embeddings:
        rules.append(rename(same, "model.shared.weight"))
        rules.append(Ignored("encoder.model.embed_tokens.weight", "is the decoder's", same_as=same))
    else:
        rules.append(rename("<stack>.model.embed_tokens.weight", "model.<stack>.embed_tokens.weight"))
    if config.tie_word_embeddings:
        rules.append(Ignored("decoder.lm_head.weight", "repeats the embedding table", same_as=same))
    else:
        rules.append(rename("decoder.lm_head.weight", "lm_head.weight"))
    if config.use_qk_norm:
        rules += renames(f"{there}.self_attn", f"{here}.<attention>", {name: name for name in ("q_norm", "k_norm")})
    linears = {name: name for name in ("q_proj", "k_proj", "v_proj")} | {"o_proj": "out_proj"}
    rules += renames(f"{there}.self_attn", f"{here}.<attention>", linears)
    if own["model_type"] == "mixtral":
        return [*rules, *_experts(there, here)]
    linears = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
    return [*rules, *renames(f"{there}.mlp", f"{here}.mlp", linears)]


class OnePlus(Operation):
    """Adds the 1 of a norm that multiplies by 1 + weight, in fp32 at least, as Gemma does."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        return [1.0 + tensor.to(at_least_float32(tensor.dtype)) for tensor in tensors]


class GatedExperts(Operation):
    """Stacks the matrices of a layer's experts: w1 (gate), w2 (down) and w3 (up) of the first, of the second and so on."""

    def forward(self, tensors: Tensors, heads: Heads) -> Tensors:
        gates, downs, ups = tensors[::3], tensors[1::3], tensors[2::3]
        if len(gates) != len(ups):
            raise RuntimeError(f"{len(tensors)} matrices are not three for each expert")
        gate_up = [torch.cat(pair) for pair in zip(gates, ups, strict=True)]
        return [torch.stack(gate_up), torch.stack(downs)]


def _experts(there: str, here: str) -> Table:
    """Return the rules for Mixtral's sparse layers: the names in files, and those in a model of transformers 5."""
    up, down = f"{here}.mlp.experts.gate_up_proj", f"{here}.mlp.experts.down_proj"
    return [
        rename(f"{there}.block_sparse_moe.experts.<expert>.w<matrix>.weight", up, down, operation=GatedExperts()),
        rename(f"{there}.mlp.experts.gate_up_proj", up),
        rename(f"{there}.mlp.experts.down_proj", down),
        rename(f"{there}.block_sparse_moe.gate.weight", f"{here}.mlp.router.classifier.weight"),
        rename(f"{there}.mlp.gate.weight", f"{here}.mlp.router.classifier.weight"),
    ]


SOURCE = Source(
    name="decoder-only",
    title="a decoder-only checkpoint",
    signature=("decoder.model.embed_tokens.weight", "decoder.model.layers.<layer>.self_attn.q_proj.weight"),
    fields=_fields,
    table=_table,
)


def adapted_config(
    source_config: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    encoder_config: Mapping[str, Any] | None = None,
) -> WeftConfig:
    """
    Return the configuration that [`adapt`] gives its model, which needs no weights.

    Args:
        source_config (`Mapping[str, Any]`):
            The checkpoint's own configuration, see [`read_source_config`].
        overrides (`Mapping[str, Any]`, *optional*):
            Fields of [`WeftConfig`], which replace all others.
        encoder_config (`Mapping[str, Any]`, *optional*):
            The configuration of a second checkpoint, for the encoder.

    Returns:
        [`WeftConfig`]

    Raises:
        ValueError: a checkpoint is of another family, a field has a value that Weft cannot express, or two checkpoints do
            not fit together. The message names field and value.
    """
    fields = _fields({}, source_config)
    if encoder_config is not None:
        fields |= _encoder_fields(fields, source_config["model_type"], encoder_config)
    config = WeftConfig(**(fields | dict(overrides or {})))
    for name, own in (("encoder_layers", encoder_config or source_config), ("decoder_layers", source_config)):
        layers, most = getattr(config, name), own["num_hidden_layers"]
        if layers > most:
            raise ValueError(f"{name}={layers} is more than the num_hidden_layers={most} of the checkpoint.")
    return config


def _encoder_fields(decoder: Fields, family: str, encoder_config: Mapping[str, Any]) -> Fields:
    """Return the fields that a second checkpoint changes. Its other fields have to be those of the first."""
    encoder = _fields({}, encoder_config)
    # the family first: most of the others come from it
    compared = [("model_type", encoder_config["model_type"], family)]
    compared += [(name, encoder.get(name), value) for name, value in decoder.items() if name not in _OF_ONE_STACK]
    for name, found, wanted in compared:
        if found != wanted:
            raise ValueError(
                f"The checkpoint of the encoder has {name}={found!r}, and that of the decoder {name}={wanted!r}: they have to "
                "be the same."
            )
    return {name: encoder[name] for name in _OF_ENCODER} | {"share_encoder_decoder_embeddings": False}


def adapt(
    weights: Mapping[str, torch.Tensor],
    source_config: Mapping[str, Any],
    *,
    encoder: tuple[Mapping[str, torch.Tensor], Mapping[str, Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    is_shown: bool = False,
) -> WeftForConditionalGeneration:
    """
    Make an encoder-decoder from a decoder-only checkpoint, as in T5Gemma (Zhang et al. 2025, arXiv:2504.06225).

    Both stacks get the layers of the decoder, and each cross-attention gets the self-attention of its layer. The model
    has to be trained before use.

    Args:
        weights (`Mapping[str, torch.Tensor]`):
            The tensors of the checkpoint by its keys, see [`read_weights`]. They are copied.
        source_config (`Mapping[str, Any]`):
            The checkpoint's own configuration, see [`read_source_config`].
        encoder (`tuple[Mapping[str, torch.Tensor], Mapping[str, Any]]`, *optional*):
            Weights and configuration of a second checkpoint, of the same family, vocabulary and width, for the encoder.
            Encoder and decoder then have embedding tables of their own.
        overrides (`Mapping[str, Any]`, *optional*):
            Fields of [`WeftConfig`], which replace all others, such as the ids of [`special_token_ids`]. With fewer
            `encoder_layers` or `decoder_layers` than the checkpoint has, that many of its layers are taken, evenly spaced
            from the first to the last (Shleifer and Rush 2020, arXiv:2010.13002).
        dtype (`torch.dtype`, *optional*):
            The dtype of the model. Defaults to that of the weights, or to float32 for a Gemma in half precision, whose
            norms multiply by 1 + weight: half precision would round the sum.
        is_shown (`bool`, *optional*, defaults to `False`):
            Whether to show the progress on stderr.

    Returns:
        [`WeftForConditionalGeneration`]

    Raises:
        DoesNotFit: a key is missing, unexpected or of the wrong shape.
        ValueError: the checkpoint is of another family, a field has a value that Weft cannot express, or the weights
            are not floating point numbers.
    """
    encoder_config = None if encoder is None else encoder[1]
    # a field that cannot be expressed is named before a key that does not fit
    config = adapted_config(source_config, overrides, encoder_config)
    checkpoint = (weights, source_config)
    stacks: Weights = {}
    for stack, (tensors, own) in (("encoder", encoder or checkpoint), ("decoder", checkpoint)):
        _check_dtypes(tensors)
        chosen = _spaced(tensors, own["num_hidden_layers"], getattr(config, f"{stack}_layers"))
        stacks |= {f"{stack}.{key}": tensor for key, tensor in chosen.items()}
    conversion = convert(stacks, SOURCE, source_config=source_config, overrides=config.to_dict())
    dtype = dtype or reduce(torch.promote_types, {tensor.dtype for tensor in conversion.found.weights.values()})
    return _build(conversion, stacks.values(), dtype, is_shown)


def _check_dtypes(weights: Mapping[str, torch.Tensor]) -> None:
    for key, tensor in weights.items():
        if tensor.dtype not in DTYPES:
            raise ValueError(
                f"{key} is of {tensor.dtype}, and weights have to be of one of {', '.join(map(str, DTYPES))}: take the "
                "checkpoint that was not quantized."
            )


def _spaced(weights: Mapping[str, torch.Tensor], available: int, layers: int) -> Weights:
    """Return the weights of so many layers, evenly spaced and numbered anew, and all others.

    The keys are those of the model with its head, whether or not it was saved with the head.
    """
    prefix = "" if any(key.startswith("model.") for key in weights) else "model."
    chosen = [round(new * (available - 1) / max(layers - 1, 1)) for new in range(layers)]
    numbers = {str(old): "" for old in range(available)} | {str(old): str(new) for new, old in enumerate(chosen)}
    found: Weights = {}
    for key, tensor in weights.items():
        parts = _LAYER.fullmatch(prefix + key)
        if parts is None:
            found[prefix + key] = tensor
        elif number := numbers.get(parts[2], parts[2]):  # a layer that is not there is found out by its key
            found[parts[1] + number + parts[3]] = tensor
    return found


def _build(conversion: Conversion, source: Iterable[torch.Tensor], dtype: torch.dtype, is_shown: bool) -> Any:
    """Build the model of a conversion, with one tensor at a time beside it in memory.

    Tensors of the source, which may be those of a file, and tensors with several places are copied.
    """
    weights, state_dict = conversion.found.weights, {}
    taken = {id(tensor) for tensor in source}
    with Progress("adapt", len(weights), "tensors", is_shown=is_shown) as progress:
        for key in sorted(weights):
            tensor = weights.pop(key)
            state_dict[key] = tensor.to(dtype, copy=id(tensor) in taken)
            taken.add(id(tensor))
            progress.update()
    model = WeftForConditionalGeneration.from_pretrained(
        None, config=conversion.config, state_dict=state_dict, dtype=dtype
    )
    return model.eval()


def special_token_ids(
    tokenizer: PreTrainedTokenizerBase | None, source_config: Mapping[str, Any], pad_token: str | None = None
) -> dict[str, Any]:
    """
    Return the ids of special tokens that an encoder-decoder needs, from a checkpoint's tokenizer and configuration.

    The decoder begins with the bos, as in T5Gemma, or with the pad if there is no bos, as in T5. The tokenizer pads on
    the right from here on, and has the pad token.

    Args:
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the checkpoint. It is changed.
        source_config (`Mapping[str, Any]`):
            The checkpoint's own configuration, see [`read_source_config`].
        pad_token (`str`, *optional*):
            A token of the vocabulary to pad with. Defaults to the pad token of tokenizer or configuration.

    Returns:
        `dict[str, Any]`: `pad_token_id`, `bos_token_id`, `eos_token_id` and `decoder_start_token_id`.

    Raises:
        ValueError: there is no pad or no eos token, `pad_token` is not in the vocabulary, or the tokenizer has more
            tokens than the model.
    """
    found = {f"{name}_token_id": _token_id(tokenizer, source_config, name) for name in ("pad", "bos")}
    if tokenizer is not None:
        _check_size(tokenizer, source_config["vocab_size"])
        if pad_token is not None:
            found["pad_token_id"] = tokenizer.get_vocab().get(pad_token)
            if found["pad_token_id"] is None:
                raise ValueError(f"pad_token={pad_token!r} is not in the vocabulary.{_special_tokens(tokenizer)}")
    pad, bos = found["pad_token_id"], found["bos_token_id"]
    if pad is None:
        raise ValueError(
            "The checkpoint has no pad token, with which an encoder-decoder fills up short sources and targets: name a token "
            f"of its vocabulary that is in no text (--pad-token TOKEN).{_special_tokens(tokenizer)}"
        )
    ends = source_config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    if tokenizer is not None:
        tokenizer.padding_side, tokenizer.pad_token = "right", tokenizer.convert_ids_to_tokens(pad)
        ends = [tokenizer.eos_token_id, *ends]
    ends = [end for end in dict.fromkeys(ends) if end is not None]
    if not ends:
        raise ValueError(
            "The checkpoint has no eos token, with which a target ends: set `eos_token` in its tokenizer."
        )
    return found | {
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "decoder_start_token_id": pad if bos is None else bos,
    }


def _token_id(tokenizer: PreTrainedTokenizerBase | None, source_config: Mapping[str, Any], name: str) -> int | None:
    """Return the tokenizer's id, or else that of the configuration, where old files have -1 for none."""
    own, other = getattr(tokenizer, f"{name}_token_id", None), source_config.get(f"{name}_token_id")
    return own if own is not None else other if other is not None and other >= 0 else None


def _check_size(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> None:
    if len(tokenizer) > vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model vocab_size={vocab_size}: ids past {vocab_size - 1} would "
            "have no embedding. Use the tokenizer that the model was trained with."
        )


def _special_tokens(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Return a sentence with the special tokens that a tokenizer has beside its ends."""
    if tokenizer is None:
        return ""
    ends = {tokenizer.bos_token, tokenizer.eos_token}
    names = [
        str(token) for token in tokenizer.added_tokens_decoder.values() if token.special and str(token) not in ends
    ]
    return f" Its other special tokens are {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}." if names else ""

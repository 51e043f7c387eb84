"""Writes a dense Weft model in CTranslate2's format, if the format can express it, and compares the two."""

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from ..modeling.checks import check_merged
from ..modeling.losses import token_scores

# for log-probabilities in fp32; the measured differences are a thousandth of it
TOLERANCE = 1e-3
# number of non-pad tokens in the source of each sample
_LENGTHS = (7, 4, 6)
# activation functions and their names in CTranslate2
_ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swish": "SWISH", "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh", "quick_gelu": "GELUSigmoid", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip
_ALLOWED: dict[str, tuple] = {
    "norm_type": ("layernorm", "rmsnorm"),
    "activation_function": tuple(_ACTIVATIONS),
    "self_attention_position_type": ("none", "rotary"),
    "cross_attention_position_type": ("none",),
    # CTranslate2 has these norms, but computes them differently: log-probabilities differ by 0.3
    "use_qk_norm": (False,),
    "num_condition_features": (0,),
}


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise ValueError(
        f"CTranslate2 does not support {name}={value!r}: it supports {allowed}. `weftformer train --preset "
        "modern-tiny` (or modern-small) trains a model that can be exported."
    )


def _check_installed() -> None:
    if find_spec("ctranslate2") is None:
        raise ValueError('This needs ctranslate2. Install it in your clone of Weft: pip install -e ".[export]"')


def check_expressible(config: WeftConfig) -> tuple[int, int]:
    """Check that CTranslate2 can express a configuration.

    Args:
        config: the configuration.

    Returns:
        The ids of the start token and of the end token of a target.

    Raises:
        ValueError: the model cannot be exported. The message names the field, its value and the allowed values.
    """
    for name in ("encoder_mlp_layer_types", "decoder_mlp_layer_types"):
        if "sparse" in getattr(config, name):
            _refuse(name, getattr(config, name), '"dense" in every layer')
    for name, values in _ALLOWED.items():
        if getattr(config, name) not in values:
            _refuse(name, getattr(config, name), " or ".join(map(repr, values)))
    if config.self_attention_position_type == "rotary":
        if config.position_embedding_type != "none":
            _refuse("position_embedding_type", config.position_embedding_type, "'none' beside rotary positions")
        assert config.rope_parameters is not None
        if config.rope_parameters["rope_type"] != "default":
            _refuse("rope_parameters", config.rope_parameters, 'rope_type="default"')
    start, end = config.decoder_start_token_id, config.eos_token_id
    if not isinstance(start, int):
        _refuse("decoder_start_token_id", start, "one token")
    if not isinstance(end, int):
        _refuse("eos_token_id", end, "one token")
    return start, end


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().numpy()


def _set_linear(spec: Any, *linears: nn.Linear) -> None:
    """Set a linear layer, or one layer made of several with the same input."""
    spec.weight = np.concatenate([_array(linear.weight) for linear in linears])
    if linears[0].bias is not None:
        spec.bias = np.concatenate([_array(linear.bias) for linear in linears])


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _array(norm.bias)


def _set_attention(spec: Any, attention: Any, norm: nn.Module, is_cross: bool = False) -> None:
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    # one layer for each input: queries and keys have different ones in cross-attention, the same in self-attention
    if is_cross:
        _set_linear(spec.linear[0], projections[0])
        _set_linear(spec.linear[1], *projections[1:])
    else:
        _set_linear(spec.linear[0], *projections)
    _set_linear(spec.linear[-1], attention.out_proj)
    _set_norm(spec.layer_norm, norm)


def _set_stack(spec: Any, embeddings: Any, stack: Any, rows: int) -> None:
    """Set the parts that encoder and decoder have in common.

    `rows` is the length of the position table, if there is one.
    """
    config: WeftConfig = stack.config
    embeddings.weight = _array(stack.embed_tokens.weight)
    spec.scale_embeddings = np.dtype("float32").type(stack.embed_scale)
    if config.self_attention_position_type != "rotary":
        # without a table CTranslate2 would add its own sines and cosines
        table = torch.zeros(1, rows, config.d_model)
        if stack.embed_positions is not None:
            table = stack.embed_positions(torch.arange(rows)[None])
        spec.position_encodings.encodings = _array(table[0])
    if stack.layernorm_embedding is not None:
        _set_norm(spec.layernorm_embedding, stack.layernorm_embedding)
    if stack.layer_norm is not None:
        _set_norm(spec.layer_norm, stack.layer_norm)
    for part, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(part.self_attention, layer.self_attn, layer.self_attn_layer_norm)
        if hasattr(layer, "encoder_attn"):
            _set_attention(part.attention, layer.encoder_attn, layer.encoder_attn_layer_norm, is_cross=True)
        _set_norm(part.ffn.layer_norm, layer.final_layer_norm)
        if layer.mlp.gate_proj is None:
            _set_linear(part.ffn.linear_0, layer.mlp.up_proj)
        else:
            _set_linear(part.ffn.linear_0, layer.mlp.gate_proj)
            _set_linear(part.ffn.linear_0_noact, layer.mlp.up_proj)
        _set_linear(part.ffn.linear_1, layer.mlp.down_proj)


def _spec(config: WeftConfig) -> Any:
    """Return CTranslate2's model without weights."""
    from ctranslate2.specs import common_spec, transformer_spec

    def stack(spec_class: Any, layers: int, is_decoder: bool) -> Any:
        heads, key_value_heads, width = config.stack_heads(is_decoder)
        rotary: dict[str, Any] = {}
        if config.self_attention_position_type == "rotary":
            assert config.rope_parameters is not None
            rotary_dim = int(width * config.rope_parameters.get("partial_rotary_factor", 1.0))
            rotary = {"rotary_dim": rotary_dim, "rotary_base": config.rope_parameters["rope_theta"]}
        spec = spec_class(
            layers,
            heads,
            no_final_norm=not config.has_final_norm,
            activation=common_spec.Activation[_ACTIVATIONS[config.activation_function]],
            layernorm_embedding=config.normalize_embedding,
            ffn_glu=config.is_gated_act,
            rms_norm=config.norm_type == "rmsnorm",
            num_heads_kv=None if key_value_heads == heads else key_value_heads,
            head_dim=None if heads * width == config.d_model else width,
            rotary_interleave=False,
            **rotary,
        )
        # set afterwards: given to the constructor, False would remove the final norm
        spec.pre_norm = config.norm_first
        return spec

    return transformer_spec.TransformerSpec(
        stack(transformer_spec.TransformerEncoderSpec, config.encoder_layers, False),
        stack(transformer_spec.TransformerDecoderSpec, config.decoder_layers, True),
    )


def words(tokenizer: PreTrainedTokenizerBase | None, size: int) -> list[str]:
    """Return the names of the tokens in CTranslate2: those of the tokenizer, or their ids."""
    names = {} if tokenizer is None else {index: word for word, index in tokenizer.get_vocab().items()}
    return [names.get(index, str(index) if tokenizer is None else f"<unused{index}>") for index in range(size)]


def vocabularies(config: WeftConfig, tokenizer: PreTrainedTokenizerBase | None) -> tuple[list[str], list[str]]:
    """Return the names of the source's and of the target's tokens.

    A tokenizer has the names of the source, and of the target if both vocabularies have the same size.
    """
    source = words(tokenizer, config.vocab_size)
    separate = config.target_vocab_size != config.vocab_size
    return source, words(None, config.target_vocab_size) if separate else source


def write_ctranslate2(
    model: WeftForConditionalGeneration, folder: Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> None:
    """Write a model in CTranslate2's format, in fp32. CTranslate2 can quantise it when it loads it
    (`compute_type="int8"`).

    Args:
        model: the model, with dense layers only.
        folder: an existing, empty folder.
        tokenizer: the tokenizer, which gives the tokens their names. Without it they are called `"0"`, `"1"`, ...

    Raises:
        ValueError: CTranslate2 is not installed or cannot express the configuration, or the model has an adapter.
        FileNotFoundError: there is no such folder.
    """
    check_merged(model)
    config = model.config
    start, end = check_expressible(config)
    _check_installed()
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: make it first.")
    spec = _spec(config)
    _set_stack(spec.encoder, spec.encoder.embeddings[0], model.model.encoder, config.max_source_positions)
    _set_stack(spec.decoder, spec.decoder.embeddings, model.model.decoder, config.max_target_positions)
    _set_linear(spec.decoder.projection, model.lm_head)
    source, target = vocabularies(config, tokenizer)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    unknown = getattr(tokenizer, "unk_token_id", None)
    spec.config.unk_token = target[config.pad_token_id or 0 if unknown is None else unknown]
    spec.config.bos_token = spec.config.decoder_start_token = target[start]
    spec.config.eos_token = target[end]
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


@torch.no_grad()
def compare_ctranslate2(
    model: WeftForConditionalGeneration, folder: Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> float:
    """Compare the scores of random targets of random sources in CTranslate2 and in Weft.

    Args:
        model: the model.
        folder: the folder that [`write_ctranslate2`] has written for this model.
        tokenizer: the tokenizer that was given to [`write_ctranslate2`].

    Returns:
        The largest difference of the log-probability of a token, the end token included.

    Raises:
        ValueError: CTranslate2 is not installed.
    """
    _check_installed()
    import ctranslate2

    translator: Any = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    config = model.config
    generator = torch.Generator().manual_seed(1)
    special_ids = {config.pad_token_id, config.bos_token_id, config.eos_token_id, config.decoder_start_token_id}

    def drawn(size: int, *shape: int) -> torch.Tensor:
        usable = torch.tensor([index for index in range(size) if index not in special_ids])
        return usable[torch.randint(len(usable), shape, generator=generator)]

    lengths = torch.tensor(_LENGTHS)
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    sources = drawn(config.vocab_size, *mask.shape).where(mask.bool(), torch.tensor(config.pad_token_id or 0))
    targets = drawn(config.target_vocab_size, len(lengths), 6)
    starts, ends = (torch.full((len(lengths), 1), token) for token in check_expressible(config))
    source_words, target_words = vocabularies(config, tokenizer)
    results = translator.score_batch(
        [
            [source_words[index] for index in row[:length]]
            for row, length in zip(sources.tolist(), _LENGTHS, strict=True)
        ],
        [[target_words[index] for index in row] for row in targets.tolist()],
    )  # fmt: skip
    logits = model(
        input_ids=sources, attention_mask=mask, decoder_input_ids=torch.cat([starts, targets], dim=1)
    ).logits
    expected = token_scores(logits, torch.cat([targets, ends], dim=1))
    return (expected - torch.tensor([result.log_probs for result in results])).abs().max().item()


def load_translator(model: WeftForConditionalGeneration, tokenizer: PreTrainedTokenizerBase | None = None) -> Any:
    """Load a model, which is on the CPU, into CTranslate2. Without a tokenizer, the ids of tokens are their names."""
    import ctranslate2

    with TemporaryDirectory() as folder:
        write_ctranslate2(model, Path(folder), tokenizer)
        return ctranslate2.Translator(folder, device="cpu", intra_threads=torch.get_num_threads())

"""Models small enough for any test."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.tokenization import train_tokenizer

TINY_CONFIG: dict[str, Any] = {
    "vocab_size": 31,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
# Kinds of positions, vocabularies and layers, by what they differ in from the default.
LIMITS = {"max_source_positions": 24, "max_target_positions": 32}
KINDS = {
    "rotary": {},
    "rotary across": {"cross_attention_position_type": "rotary", "num_key_value_heads": 1, "use_qk_norm": True},
    "learned": {
        "norm_type": "layernorm", "norm_first": False, "is_gated_act": False, "mlp_bias": True, "attention_out_bias": True,
        "lm_head_bias": True, "activation_function": "gelu", "scale_embedding": True,
        "share_encoder_decoder_embeddings": False, "self_attention_position_type": "none",
        "position_embedding_type": "learned", "num_condition_features": 1, "init_std": 0.2, **LIMITS,
    },
    "sinusoidal": {"self_attention_position_type": "none", "position_embedding_type": "sinusoidal"},
    "additive": {"self_attention_position_type": "additive", "cross_attention_position_type": "additive", **LIMITS},
    "relative": {
        "self_attention_position_type": "relative", "cross_attention_position_type": "relative",
        "relative_attention_max_distance": 5,
    },
    "bucketed": {
        "self_attention_position_type": "bucketed", "cross_attention_position_type": "bucketed",
        "relative_attention_num_buckets": 6, "relative_attention_max_distance": 8,
    },
    "sparse": {
        "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": ["sparse", "dense"], "num_experts": 4,
        "router_type": "noisy_top_k",
    },
    "larger target": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 43},
    "smaller target": {
        "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23, "tie_word_embeddings": True,
    },
}  # fmt: skip
SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse"}
# A batch: pads in the middle of a source, and labels that do not count.
IDS = torch.tensor([[5, 6, 0, 0, 7, 8], [9, 10, 11, 12, 13, 14]])
LABELS = torch.tensor([[4, 5, 6, 7, -100], [8, 9, 3, 10, 11]])
TARGET = torch.tensor([[1, 4, 5, 6, 7], [1, 8, 9, 3, 10]])


def randomized(
    module: nn.Module, seed: int = 0, std: float = 0.35, norms: tuple[str, ...] = ("norm", "ln", "gamma")
) -> Any:
    """Refill every weight, and every bias that routing adds, so that no two numbers are alike and none is 0 or 1.

    Weights of norms are about one. What is not trained, such as sines and cosines, stays. Returns the module in eval
    mode.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                is_norm = any(word in name for word in norms) and not name.endswith(("bias", "beta"))
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter.copy_(noise * std + float(is_norm))
        for name, buffer in module.named_buffers():
            if name.endswith("selection_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return module.eval()


def tiny_model(
    model_class: Any = WeftForConditionalGeneration,
    config: WeftConfig | None = None,
    *,
    seed: int = 0,
    random: bool = False,
    attention: str | None = None,
    **fields: Any,
) -> Any:
    """Build a model in eval mode, with `TINY_CONFIG` and other `fields`, or with a configuration.

    Args:
        random: whether to refill all weights, see `randomized`. By default the model has its first weights.
        attention: the attention implementation.
    """
    torch.manual_seed(seed)
    options = {} if attention is None else {"attn_implementation": attention}
    model = model_class._from_config(config or WeftConfig(**(TINY_CONFIG | fields)), **options).eval()
    return randomized(model, seed) if random else model


def tiny_text_model(texts: Iterable[str], **options: Any) -> tuple[Any, Any]:
    """Build an untrained model, whose output differs from text to text, and a tokenizer trained on these texts.

    Args:
        options: as of `tiny_model`.
    """
    tokenizer = train_tokenizer([*texts] * 4, vocab_size=300)
    return tiny_model(random=True, vocab_size=len(tokenizer), **options), tokenizer


def assert_same_gradients(
    output: torch.Tensor, expected: torch.Tensor, leaves: list[Any], tolerance: float = 1e-10
) -> None:
    """Compare two ways to an output: values, and gradients of all leaves for one random gradient of the output."""
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)
    upstream = torch.randn(output.shape)
    found, wanted = (torch.autograd.grad(one, leaves, upstream, retain_graph=True) for one in (output, expected))
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


def run_loop(goes_on, write, state):
    """Run what torch's `while_loop` compiles."""
    while goes_on(*state):
        state = write(*state)
    return state

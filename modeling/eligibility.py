"""Which models and which requests to `generate` may take the short way of `decoding.py`; all others take the plain path."""

from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig
from transformers.generation import GenerationMode
from transformers.utils import output_capturing

from ..configuration.configuration_weft import WeftConfig
from .feed_forward import FeedForward
from .mixture import SparseFeedForward
from .norms import StdLayerNorm

_MODES = (
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.BEAM_SEARCH,
    GenerationMode.BEAM_SAMPLE,
)
_NORMS = (nn.LayerNorm, nn.RMSNorm, StdLayerNorm, type(None))


def _is_observed(module: nn.Module) -> bool:
    """Whether somebody listens to a module; transformers' recorders stay for ever and listen when outputs are asked for."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(getattr(hook, "__module__", None) != output_capturing.__name__ for hook in hooks)


def can_step(model: Any) -> bool:
    """Whether the step's shortcuts are sound for this model: its modules are its own, plain and unobserved."""
    decoder = model.model.decoder
    for module in (model, model.model, decoder, *decoder.modules(), model.lm_head):
        if module.training or _is_observed(module) or "forward" in module.__dict__:
            return False
    for layer in decoder.layers:
        for attention in (layer.self_attn, layer.encoder_attn):
            parts = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
            if any(type(part) is not nn.Linear or type(part.weight) is not nn.Parameter for part in parts):
                return False  # adapters, quantised or sharded weights
        if type(layer.mlp) not in (FeedForward, SparseFeedForward):
            return False
        norms = (layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm)
        if any(type(norm) not in _NORMS for norm in norms):
            return False
    return True


def takes_short_way(model: Any, generation_config: GenerationConfig, inputs: dict[str, Any], mode: Any) -> bool:
    """Whether this request to `generate` may be decoded by the step; all others take the plain path."""
    settings = generation_config
    if inputs.get("past_key_values") is not None or settings.cache_implementation is not None or mode not in _MODES:
        return False
    if torch.is_autocast_enabled(model.device.type):
        return False
    if settings.use_cache is False or settings.output_attentions or settings.output_hidden_states:
        return False
    if getattr(settings, "is_assistant", False) or settings.prefill_chunk_size is not None:
        return False
    given = {name for name, value in inputs.items() if value is not None}
    if given & {"decoder_position_mask", "position_mask", "output_router_logits", "decoder_inputs_embeds"}:
        return False
    config: WeftConfig = model.config
    if "position_ids" in given and config.cross_attention_position_type != "none":
        return False
    # offsets between rows that are padded differently
    if config.has_relative_self_attention and given & {"decoder_attention_mask", "decoder_position_ids"}:
        return False
    masks = [inputs.get(name) for name in ("attention_mask", "cross_attn_mask", "decoder_attention_mask")]
    return all(mask is None or mask.ndim == 2 for mask in masks) and can_step(model)

"""Who may attend to whom, in the form that the attention implementation in use understands.

A row with nothing to attend to gives zeros, in every implementation. Shape suffixes: B batch, H heads (1 where all
agree), L queries, M keys.
"""

from types import SimpleNamespace

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from ..configuration.configuration_weft import WeftConfig


def uses_flash(config: WeftConfig) -> bool:
    return "flash" in (config._attn_implementation or "")


def refuse_flash_with_bias(config: WeftConfig) -> None:
    """Flash kernels take no bias on the logits."""
    if uses_flash(config) and config.self_attention_position_type == "relative":
        raise ValueError(
            f'The attention implementation "{config._attn_implementation}" cannot carry a relative bias '
            '(self_attention_position_type="relative"): use "sdpa", "flex_attention" or "eager".'
        )


def cross_attention_implementation(config: WeftConfig) -> str:
    # transformers' flash path unpads the queries with the mask of the keys, which is wrong as soon as the two are
    # different sequences and the source is padded; SDPA picks its own flash kernel where the mask allows it.
    return "sdpa" if uses_flash(config) else config._attn_implementation


def _given(mask_BHLM: torch.Tensor, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """A mask the user gave, boolean (True: attend) or additive, in the form `implementation` takes."""
    if "flash" in implementation:
        raise ValueError(
            f'The attention implementation "{implementation}" cannot carry a 4-D mask: use "sdpa", "eager" or '
            '"flex_attention" (`model.set_attn_implementation(...)`), or a mask of shape (batch, length).'
        )
    if mask_BHLM.dtype == torch.bool:
        if implementation == "sdpa":
            return mask_BHLM
        mask_BHLM = torch.zeros(mask_BHLM.shape, dtype=dtype, device=mask_BHLM.device).masked_fill(
            ~mask_BHLM, float("-inf")
        )
    # "as low as it gets" means masked, whichever of the usual constants the user took
    mask_BHLM = mask_BHLM.to(dtype)
    return mask_BHLM.masked_fill(mask_BHLM <= torch.finfo(dtype).min / 2, float("-inf"))


def key_mask_of(mask: torch.Tensor | None) -> torch.Tensor | None:
    """(B, M) of what any query may see: how cross-attention and the losses read an encoder mask given as 4-D."""
    if mask is None or mask.ndim == 2:
        return mask
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(torch.float16).min / 2
    return allowed.any(dim=(1, 2))


def encoder_mask(config: WeftConfig, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None):
    if attention_mask is not None and attention_mask.ndim == 4:
        return _given(attention_mask, config._attn_implementation, inputs_embeds.dtype)
    return create_bidirectional_mask(config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask)


def decoder_mask(
    config: WeftConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    past_key_values: Cache | None,
):
    """Causal unless the call says otherwise (`is_causal=False`, which transformers puts into the config meanwhile)."""
    if attention_mask is not None and attention_mask.ndim == 4:
        return _given(attention_mask, config._attn_implementation, inputs_embeds.dtype)
    return create_causal_mask(
        config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, past_key_values=past_key_values
    )


def cross_mask(
    config: WeftConfig,
    inputs_embeds: torch.Tensor,
    encoder_hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
):
    implementation = cross_attention_implementation(config)
    if attention_mask is not None and attention_mask.ndim == 4:
        return _given(attention_mask, implementation, inputs_embeds.dtype)
    return create_bidirectional_mask(
        config=SimpleNamespace(_attn_implementation=implementation),
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        encoder_hidden_states=encoder_hidden_states,
    )

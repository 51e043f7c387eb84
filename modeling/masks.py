"""Who may attend to whom, in the form that the attention implementation in use understands.

A row with nothing to attend to gives zeros, in every implementation. Shape suffixes: B batch, H heads (1 where all
agree), L queries, M keys.
"""

import inspect

import torch
from transformers import Cache

from ..configuration.configuration_weft import WeftConfig
from .transformers_names import ALL_ATTENTION_FUNCTIONS, create_bidirectional_mask, create_causal_mask

# Implementations of transformers' registry that are the same mathematics: with the relative bias where they can carry one.
KNOWN_IMPLEMENTATIONS = (
    "eager",
    "sdpa",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
)

# Those of them that add a relative bias to the logits.
_BIASED_IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention")

# At this and below an additive mask means "masked", whichever of the usual constants (-inf, -1e9, ...) was taken.
_MASKED = torch.finfo(torch.float16).min / 2


def uses_flash(config: WeftConfig) -> bool:
    return "flash" in (config._attn_implementation or "")


def takes_bias(implementation: str) -> bool:
    """Whether a registered function names `position_bias`; many swallow it in their keyword arguments, and drop it."""
    if implementation in _BIASED_IMPLEMENTATIONS:
        return True
    function = ALL_ATTENTION_FUNCTIONS.get(implementation)
    return function is not None and "position_bias" in inspect.signature(function).parameters


def refuse_lost_bias(config: WeftConfig) -> None:
    """A relative bias is a part of the model, and an attention that leaves it out computes another one."""
    own, cross = config._attn_implementation, cross_attention_implementation(config)
    for field, implementation in (("self_attention_position_type", own), ("cross_attention_position_type", cross)):
        kind = getattr(config, field)
        if kind in ("relative", "bucketed") and not takes_bias(implementation):
            raise ValueError(
                f'The attention implementation "{implementation}" cannot carry a relative bias ({field}="{kind}"): use '
                '"sdpa", "flex_attention" or "eager", or register a function that has a parameter `position_bias` of shape '
                "(batch, heads, queries, keys) and adds it to the scores."
            )


def cross_attention_implementation(config: WeftConfig) -> str:
    # transformers' flash path unpads the queries with the mask of the keys, which is wrong as soon as the two are
    # different sequences and the source is padded; SDPA picks its own flash kernel where the mask allows it.
    return "sdpa" if uses_flash(config) else config._attn_implementation


def additive(mask_BHLM: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as numbers to add: 0, or -inf where it is False."""
    zeros_BHLM = torch.zeros(mask_BHLM.shape, dtype=dtype, device=mask_BHLM.device)
    return zeros_BHLM.masked_fill(~mask_BHLM, float("-inf"))


def mask_and_bias(
    implementation: str, mask: torch.Tensor | None, bias_BHLM: torch.Tensor | None, query: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Mask and relative bias of one call in the form `implementation` takes the two together."""
    if implementation == "sdpa" and bias_BHLM is not None and mask is not None and mask.dtype == torch.bool:
        # beside a bias SDPA fills in the lowest number, and who may see nothing would get the mean of all values
        return additive(mask, query.dtype), bias_BHLM
    if implementation == "flex_attention" and isinstance(mask, torch.Tensor):
        # flex reads the first head of a mask alone, and no mask of one row for all of the batch; a bias it reads in full
        bias_BHLM = mask if bias_BHLM is None else bias_BHLM + mask
        return None, bias_BHLM.expand(*query.shape[:3], -1)
    return mask, bias_BHLM


def _given(mask_BHLM: torch.Tensor, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """A mask the user gave, boolean or of whole numbers (True, 1: attend) or additive, as `implementation` takes it."""
    if "flash" in implementation:
        raise ValueError(
            f'The attention implementation "{implementation}" cannot carry a 4-D mask: use "sdpa", "eager" or '
            '"flex_attention" (`model.set_attn_implementation(...)`), or a mask of shape (batch, length).'
        )
    if not mask_BHLM.is_floating_point():
        return mask_BHLM.bool() if implementation == "sdpa" else additive(mask_BHLM.bool(), dtype)
    return mask_BHLM.to(dtype).masked_fill(mask_BHLM <= _MASKED, float("-inf"))


def key_mask_of(mask: torch.Tensor | None, batch: int) -> torch.Tensor | None:
    """(B, M) of what any query may see: how cross-attention and the losses read an encoder mask given as 4-D."""
    if mask is None or mask.ndim == 2:
        return mask
    allowed = mask > _MASKED if mask.is_floating_point() else mask.bool()
    return allowed.any(dim=(1, 2)).expand(batch, -1)


def encoder_mask(config: WeftConfig, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None):
    refuse_lost_bias(config)  # here too: the implementation may be switched after building
    if attention_mask is not None and attention_mask.ndim == 4:
        return _given(attention_mask, config._attn_implementation, inputs_embeds.dtype)
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        # to leave out a mask that hides nothing, it would have to be read, and that waits for the device
        allow_is_bidirectional_skip=attention_mask is None,
    )


def decoder_mask(
    config: WeftConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    past_key_values: Cache | None,
):
    """Causal unless the call says otherwise: `is_causal=False`, which transformers reads from the configuration."""
    refuse_lost_bias(config)
    if attention_mask is not None and attention_mask.ndim == 4:
        return _given(attention_mask, config._attn_implementation, inputs_embeds.dtype)
    return create_causal_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        past_key_values=past_key_values,
        allow_is_causal_skip=attention_mask is None,
    )


class _Implementation:
    """What transformers asks of a configuration to build a mask; a `SimpleNamespace` would break a compiled graph."""

    def __init__(self, name: str):
        self._attn_implementation = name


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
        config=_Implementation(implementation),
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        encoder_hidden_states=encoder_hidden_states,
        allow_is_bidirectional_skip=attention_mask is None,
    )

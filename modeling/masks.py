"""Attention masks, in the form that the attention implementation in use takes.

With every implementation, the output is zero for a query that may attend to no key. The exception is cuDNN's kernel of
SDPA, which training with `WeftTrainingArguments` and `generate` turn off. Shape suffixes: B batch, H heads (1 if all
heads have the same mask), L queries, M keys.
"""

import inspect
from copy import copy

import torch
from transformers import Cache

from ..configuration.configuration_weft import WeftConfig
from .transformers_names import (
    ALL_ATTENTION_FUNCTIONS,
    CACHE,
    attention_implementation,
    create_bidirectional_mask,
    create_causal_mask,
)

# Implementations in transformers' registry that compute the same attention as "eager".
KNOWN_IMPLEMENTATIONS = (
    "eager",
    "sdpa",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
)

# The known implementations that add a relative bias to the scores.
_BIASED_IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention")

# An additive mask value at or below this means "masked", whichever constant is used (-inf, -1e9, -10,000, which is
# -9,984 in bfloat16, ...).
_MASKED = -9_000.0


def takes_bias(implementation: str) -> bool:
    """Return whether an implementation adds `position_bias`.

    A registered function must name the parameter. Many functions would accept it in `**kwargs` and ignore it.
    """
    if implementation in _BIASED_IMPLEMENTATIONS:
        return True
    function = ALL_ATTENTION_FUNCTIONS.get(implementation)
    return function is not None and "position_bias" in inspect.signature(function).parameters


def refuse_lost_bias(config: WeftConfig) -> None:
    """Raise a ValueError if the model has a relative bias and the attention implementation would ignore it."""
    self_implementation, cross = attention_implementation(config), cross_attention_implementation(config)
    for field, implementation in (
        ("self_attention_position_type", self_implementation),
        ("cross_attention_position_type", cross),
    ):
        kind = getattr(config, field)
        if kind in ("relative", "bucketed") and not takes_bias(implementation):
            raise ValueError(
                f'"{implementation}" attention does not support a relative bias ({field}="{kind}"): use "sdpa", '
                '"flex_attention" or "eager", or a function with a parameter `position_bias`.'
            )


def cross_attention_implementation(config: WeftConfig) -> str:
    """Return the attention implementation of cross-attention, which is never flash attention."""
    # transformers' flash attention unpads the queries with the mask of the keys. That is wrong if the two are
    # different sequences and the source is padded. SDPA chooses its own flash kernel where the mask allows it.
    return "sdpa" if "flash" in (attention_implementation(config) or "") else attention_implementation(config)


def additive(mask_BHLM: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a boolean mask as an additive one: 0 where it is True, -inf where it is False."""
    zeros_BHLM = torch.zeros(mask_BHLM.shape, dtype=dtype, device=mask_BHLM.device)
    return zeros_BHLM.masked_fill(~mask_BHLM, float("-inf"))


def mask_and_bias(
    implementation: str, mask: torch.Tensor | None, bias_BHLM: torch.Tensor | None, query: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return mask and relative bias in the form that `implementation` expects."""
    if implementation == "sdpa" and bias_BHLM is not None and mask is not None and mask.dtype == torch.bool:
        # with a bias, transformers' SDPA fills masked scores with the lowest finite number: a query that may attend to
        # no key would then get the mean of all values
        return additive(mask, query.dtype), bias_BHLM
    if implementation == "flex_attention" and isinstance(mask, torch.Tensor):
        # flex attention reads only the first head of a mask and does not accept a mask of batch size 1 for a larger
        # batch, but it reads all of a bias
        bias_BHLM = mask if bias_BHLM is None else bias_BHLM + mask
        return None, bias_BHLM.expand(*query.shape[:3], -1)
    return mask, bias_BHLM


def _user_mask(mask_BHLM: torch.Tensor, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """Return a user's 4-D mask in the form that `implementation` takes.

    The mask is boolean or integer (True or 1: attend), or it is additive.
    """
    if "flash" in implementation:
        raise ValueError(
            f'"{implementation}" attention takes no 4-D mask: use "sdpa" or "eager", or a mask (batch, length).'
        )
    if not mask_BHLM.is_floating_point():
        return mask_BHLM.bool() if implementation == "sdpa" else additive(mask_BHLM.bool(), dtype)
    return mask_BHLM.to(dtype).masked_fill(mask_BHLM <= _MASKED, float("-inf"))


def key_mask_of(mask: torch.Tensor | None, batch: int) -> torch.Tensor | None:
    """Return a mask (B, M) of the keys that any query may attend to.

    Cross-attention and the losses read a 4-D mask of the encoder in this form.
    """
    if mask is None or mask.ndim == 2:
        return mask
    is_visible = mask > _MASKED if mask.is_floating_point() else mask.bool()
    return is_visible.any(dim=(1, 2)).expand(batch, -1)


def decoder_mask(
    config: WeftConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cache: Cache | None,
    is_causal: bool | None = None,
):
    """Return the mask of the decoder's self-attention. It is causal unless `is_causal` is False."""
    refuse_lost_bias(config)
    if attention_mask is not None and attention_mask.ndim == 4:
        return _user_mask(attention_mask, attention_implementation(config), inputs_embeds.dtype)
    if is_causal is not None:
        config = copy(config)
        config.is_causal = is_causal
    return create_causal_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        allow_is_causal_skip=attention_mask is None,
        **{CACHE: cache},
    )


class _Implementation:
    """The part of a configuration that transformers reads to build a mask.

    A `SimpleNamespace` would break a compiled graph.
    """

    def __init__(self, name: str):
        self._attn_implementation = name


def bidirectional_mask(
    config: WeftConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    encoder_hidden_states: torch.Tensor | None = None,
):
    """Return the mask of the encoder's self-attention, or with the encoder's states that of the decoder's
    cross-attention.
    """
    refuse_lost_bias(config)  # not only when the model is built: the implementation may be switched later
    is_cross = encoder_hidden_states is not None
    implementation = cross_attention_implementation(config) if is_cross else attention_implementation(config)
    if attention_mask is not None and attention_mask.ndim == 4:
        return _user_mask(attention_mask, implementation, inputs_embeds.dtype)
    return create_bidirectional_mask(
        config=_Implementation(implementation) if is_cross else config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        encoder_hidden_states=encoder_hidden_states,
        # to skip a mask without pads, transformers would have to read the mask, which waits for the device
        allow_is_bidirectional_skip=attention_mask is None,
    )

"""Weft: one encoder-decoder family for Hugging Face transformers.

Importing it registers the family with transformers' Auto classes ([`register`]).
"""

from .family import (
    WeftConfig,
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    __version__,
    fast_decoding,
    register,
    register_preset,
)

register()

__all__ = [
    "WeftConfig",
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "__version__",
    "fast_decoding",
    "register",
    "register_preset",
]

"""Weft: one encoder-decoder family for Hugging Face transformers.

Importing it registers the family with transformers' Auto classes ([`register`]), and what routes add to it.
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
from .routes import registration

register()
registration.register()

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

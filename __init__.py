"""Weft: one encoder-decoder family for Hugging Face transformers.

Importing it registers the family with transformers' Auto classes ([`register`]), and DirectMultiStep's search.
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
from .routes.planning.sqrt_length_search import sqrt_length_beam_search

register()
WeftForConditionalGeneration.searches = {"sqrt_length": lambda: sqrt_length_beam_search}

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

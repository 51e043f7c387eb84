"""Weft: one encoder-decoder family for Hugging Face transformers.

Importing it registers the family with transformers' Auto classes ([`register`]), and what routes add to it. The
command `weftformer` postpones this until it has read its arguments, so that `weftformer --help` needs no torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "weftformer_command" not in sys.modules:
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
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".family", __name__), name)

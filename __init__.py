"""Weft: one encoder-decoder family for Hugging Face transformers.

Importing it registers the family with transformers' Auto classes, and the planner with its pipelines. Only the command
`weftformer` postpones this until it has read its arguments, so that `weftformer --help` needs no torch.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any


def _is_command() -> bool:
    """Return whether this process is `weftformer ...` or `python -m weftformer ...`."""
    if not sys.argv or sys.argv[0] != "-m":
        return bool(sys.argv) and Path(sys.argv[0]).stem == "weftformer"
    return sys.orig_argv[-len(sys.argv)] == "weftformer"


if TYPE_CHECKING or not _is_command():
    from .family import (
        WeftConfig,
        WeftDecoder,
        WeftEncoder,
        WeftForConditionalGeneration,
        WeftModel,
        WeftPreTrainedModel,
        __version__,
        fast_decoding,
    )

__all__ = [
    "WeftConfig",
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "__version__",
    "fast_decoding",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".family", __name__), name)

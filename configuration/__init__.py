from typing import TYPE_CHECKING, Any

from .presets import PRESETS

if TYPE_CHECKING:
    from .configuration_weft import WeftConfig

__all__ = ["PRESETS", "WeftConfig"]


def __getattr__(name: str) -> Any:
    if name != "WeftConfig":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .configuration_weft import WeftConfig  # imports torch, which the presets do not need

    return WeftConfig

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names
from .presets import PRESETS

if TYPE_CHECKING:
    from .configuration_weft import WeftConfig  # imports torch, which the presets do not need

__getattr__, _names = lazy_names(__package__, __file__)
__all__ = ["PRESETS", *_names]

from .configuration_weft import WeftConfig
from .presets import PRESETS

__all__ = ["PRESETS", "WeftConfig"]

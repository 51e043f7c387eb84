from .card import Facts, MetricResult, build_card, converted_card, upcycled_card
from .export import export_code
from .trained import measured, trained_card

__all__ = [
    "Facts",
    "MetricResult",
    "build_card",
    "converted_card",
    "export_code",
    "measured",
    "trained_card",
    "upcycled_card",
]

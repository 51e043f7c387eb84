from .card import Facts, MetricResult, build_card
from .export import export_code
from .facts import converted_card, facts_of, upcycled_card
from .trained import measured, trained_card

__all__ = [
    "Facts",
    "MetricResult",
    "build_card",
    "converted_card",
    "export_code",
    "facts_of",
    "measured",
    "trained_card",
    "upcycled_card",
]

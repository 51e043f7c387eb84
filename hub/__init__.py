from .card import Facts, build_card, converted_card, loadable_name, metric_result, upcycled_card
from .export import export_code
from .trained import evaluation_results, trained_card

__all__ = [
    "Facts",
    "build_card",
    "converted_card",
    "evaluation_results",
    "export_code",
    "loadable_name",
    "metric_result",
    "trained_card",
    "upcycled_card",
]

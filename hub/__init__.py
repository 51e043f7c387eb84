from ..modeling import WeftPreTrainedModel
from .card import Facts, MetricResult, build_card
from .export import export_code
from .facts import converted_card, facts_of, upcycled_card, upload_with_card
from .trained import measured, trained_card

# The model's classes do not import this folder, because their code travels without it. So this folder sets the method
# that writes a card when a model is pushed.
WeftPreTrainedModel._upload_modified_files = upload_with_card

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

from .decoding import fast_decoding
from .modeling_weft import (
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    WeftStack,
)

__all__ = [
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "WeftStack",
    "fast_decoding",
]

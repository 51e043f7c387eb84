from . import decoding_dispatch, parallel
from .decoding_dispatch import fast_decoding
from .modeling_weft import (
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    WeftStack,
)

# What the page of the model and the code that travels with weights do without.
parallel.install(WeftPreTrainedModel, WeftStack)
WeftForConditionalGeneration.fast_path = decoding_dispatch

__all__ = [
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "fast_decoding",
]

from . import parallel
from .decoding import dispatch, fast_decoding
from .modeling_weft import (
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    WeftStack,
)

# `modeling_weft.py` does not import these parts, because the code that travels with weights does not have them.
parallel.install(WeftPreTrainedModel, WeftStack)
WeftForConditionalGeneration.fast_path = dispatch

__all__ = [
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "fast_decoding",
]

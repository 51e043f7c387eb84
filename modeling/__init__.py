from .compiling import fast_decoding
from .modeling_weft import WeftForConditionalGeneration, WeftModel
from .pretrained import WeftPreTrainedModel
from .stacks import WeftDecoder, WeftEncoder

__all__ = [
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "fast_decoding",
]

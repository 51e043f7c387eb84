from .beam_search import sqrt_length_beam_search
from .modeling_weft import WeftForConditionalGeneration, WeftModel
from .pretrained import WeftPreTrainedModel
from .stacks import WeftDecoder, WeftEncoder

__all__ = [
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "sqrt_length_beam_search",
]

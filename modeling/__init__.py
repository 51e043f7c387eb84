from .modeling_weft import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel, WeftPreTrainedModel

__all__ = ["WeftDecoder", "WeftEncoder", "WeftForConditionalGeneration", "WeftModel", "WeftPreTrainedModel"]

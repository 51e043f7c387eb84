"""The public names of `weftformer`, and the registration of the family with transformers when they are imported."""

from collections.abc import Callable

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
)
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration import WeftConfig
from .configuration.version import __version__
from .hub import export_code
from .modeling import (
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    fast_decoding,
)
from .routes.planning.pipeline import RoutesPipeline

AutoConfig.register("weft", WeftConfig, exist_ok=True)
AutoModel.register(WeftConfig, WeftModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(WeftConfig, WeftForConditionalGeneration, exist_ok=True)
PIPELINE_REGISTRY.register_pipeline("weft-routes", RoutesPipeline, pt_model=AutoModelForSeq2SeqLM)
WeftConfig.code_exporter = staticmethod(export_code)


def _sqrt_length_search() -> Callable:
    from .routes.planning.sqrt_length_search import sqrt_length_beam_search

    return sqrt_length_beam_search


WeftForConditionalGeneration.searches = {"sqrt_length": _sqrt_length_search}

__all__ = [
    "WeftConfig",
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "__version__",
    "fast_decoding",
]

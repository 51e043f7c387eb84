"""The public names of `weftformer`, and the registration of the family with transformers."""

from collections.abc import Callable

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration import WeftConfig
from .configuration.version import __version__
from .hub import export_code
from .hub.facts import upload_with_card
from .modeling import (
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    WeftStack,
    fast_decoding,
    parallel,
)
from .modeling.decoding import dispatch
from .routes.planning.pipeline import RoutesPipeline


def _sqrt_length_search() -> Callable:
    from .routes.planning.sqrt_length_search import sqrt_length_beam_search

    return sqrt_length_beam_search


def register() -> None:
    """Make the family known to transformers, and give its classes the parts that the package has for them.

    The code that travels with weights does not have these parts, so the classes do not import them: splitting over
    processes, the fast path of decoding, DirectMultiStep's search, the writing of that code, and the model card.
    """
    AutoConfig.register("weft", WeftConfig, exist_ok=True)
    AutoModel.register(WeftConfig, WeftModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(WeftConfig, WeftForConditionalGeneration, exist_ok=True)
    if "weft-routes" not in PIPELINE_REGISTRY.get_supported_tasks():  # transformers would warn
        PIPELINE_REGISTRY.register_pipeline("weft-routes", RoutesPipeline, pt_model=AutoModelForSeq2SeqLM)
    parallel.install(WeftPreTrainedModel, WeftStack)
    WeftForConditionalGeneration.fast_path = dispatch
    WeftForConditionalGeneration.searches = {"sqrt_length": _sqrt_length_search}
    WeftConfig.code_exporter = staticmethod(export_code)
    WeftPreTrainedModel._upload_modified_files = upload_with_card


__all__ = [
    "WeftConfig",
    "WeftDecoder",
    "WeftEncoder",
    "WeftForConditionalGeneration",
    "WeftModel",
    "WeftPreTrainedModel",
    "__version__",
    "fast_decoding",
    "register",
]

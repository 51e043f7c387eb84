"""What routes add to the family: a pipeline of transformers, DirectMultiStep's search, and a task of the server."""

from collections.abc import Callable

from transformers import AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from ..modeling import WeftForConditionalGeneration
from ..serving.tasks import register_task
from .planning.pipeline import RoutesPipeline
from .serve import route_task


def _sqrt_length_search() -> Callable:
    from .planning.sqrt_length_search import sqrt_length_beam_search

    return sqrt_length_beam_search


def register() -> None:
    """Register them. Nothing here needs RDKit."""
    if "weft-routes" not in PIPELINE_REGISTRY.get_supported_tasks():  # transformers would warn
        PIPELINE_REGISTRY.register_pipeline("weft-routes", RoutesPipeline, pt_model=AutoModelForSeq2SeqLM)
    WeftForConditionalGeneration.searches = {"sqrt_length": _sqrt_length_search}
    register_task("routes", route_task)

"""What routes add to the family: DirectMultiStep's search, and a task of the server."""

from ..modeling import WeftForConditionalGeneration
from ..serving.tasks import register_task
from .planning.sqrt_length_search import sqrt_length_beam_search
from .serve import route_task


def register() -> None:
    """Register them. Nothing here needs RDKit."""
    WeftForConditionalGeneration.searches = {"sqrt_length": lambda: sqrt_length_beam_search}
    register_task("routes", route_task)

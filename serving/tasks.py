"""Tasks: what a loaded model does with the inputs of requests. Texts come with this package; others register."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

from ..hub.loading import kind_of_output, load_generator, use_threads
from .batching import Pools
from .limits import Limits
from .texts import TextTask

if TYPE_CHECKING:
    from .endpoint import Endpoint


class Task(Pools, Protocol):
    """A loaded model with its kind of requests.

    Attributes:
        path: the path of its endpoint.
        summary: what the endpoint does, a sentence.
        example: the body of an example request.
    """

    path: str
    summary: str
    example: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return facts about the model and its settings, for the page."""

    def count_tokens(self, answer: Any) -> int:
        """Return the number of tokens of an answer."""

    def endpoint(self, limits: Limits) -> Endpoint:
        """Return the endpoint within the limits of a server."""


# What makes a task from a model, a tokenizer and options, by the kind of output.
_MAKERS: dict[str, Callable[..., Task]] = {"texts": TextTask}


def register_task(kind: str, make: Callable[..., Task]) -> None:
    """Let [`load_task`] load another kind of task.

    Args:
        kind: the kind of output.
        make: called with a model, a tokenizer and the options of `load_task`.
    """
    _MAKERS[kind] = make


def load_task(
    model: str, *, device: str | None = None, dtype: str = "auto", threads: int | None = None, **options: Any
) -> Any:
    """Load a model with its tokenizer, and make the task of its kind of output.

    Args:
        model: the folder or repository.
        device, dtype: as in [`~hub.loading.load_generator`].
        threads: the number of torch's threads in this process, as in [`~hub.loading.use_threads`].
        options: arguments of `RouteTask` or [`TextTask`].

    Raises:
        ValueError: as in [`~hub.loading.load_generator`], or an option does not fit the model.
        OSError: there is no such model.
    """
    loaded, tokenizer = load_generator(model, device=device, dtype=dtype)
    use_threads(loaded, threads)
    output = kind_of_output(loaded, tokenizer)
    make = _MAKERS[output]
    names = signature(make).parameters
    for name, value in options.items():
        if name not in names and value is not None:
            raise ValueError(f"{model} writes {output}: it takes no {name.replace('_', ' ')}.")
    offered = {"device": device, "dtype": dtype} | options  # for further models
    return make(loaded, tokenizer, **{name: value for name, value in offered.items() if name in names})

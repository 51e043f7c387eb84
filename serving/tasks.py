"""Tasks: what a loaded model does with the inputs of requests. Texts are this package's own; others register themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ..hub.card import writes_routes
from ..hub.loading import check_family, check_finite, check_generates, load
from ..modeling import fast_decoding
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
        models: the model, and others that it needs.
        example: the body of an example request.
    """

    path: str
    summary: str
    models: list[Any]
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


def load_task(model: str, *, kind: str | None = None, dtype: str = "auto", **options: Any) -> Any:
    """Load a model with its tokenizer. A model with the route vocabulary writes routes, unless it was trained on pairs.

    Args:
        model: the folder or repository.
        kind: the required kind of output, "routes" or "texts" (default: either).
        dtype: the precision of the weights, as in `from_pretrained`.
        options: arguments of `RouteTask` or [`TextTask`].

    Raises:
        ValueError: the model is of another family, has the other kind of output or weights that are NaN, or an option
            does not fit it.
        OSError: there is no such model.
    """
    check_family(model)
    tokenizer = load(AutoTokenizer, model)
    loaded = load(AutoModelForSeq2SeqLM, model, dtype=dtype)
    check_finite(loaded, model)
    check_generates(loaded, model)
    is_route_model = writes_routes(loaded.config) and "text_columns" not in tokenizer.init_kwargs
    written = "routes" if is_route_model else "texts"
    if kind not in (None, written):
        commands = "routes plan` or `routes evaluate" if is_route_model else "generate` or `evaluate"
        raise ValueError(f"{model} writes {written}, not {kind}: use `weftformer {commands}`.")
    make = _MAKERS[written]
    names = signature(make).parameters
    for name, value in options.items():
        if name not in names and value is not None:
            raise ValueError(f"{model} writes {written}: it takes no {name.replace('_', ' ')}.")
    offered = {"dtype": dtype} | options  # for further models
    return make(loaded, tokenizer, **{name: value for name, value in offered.items() if name in names})


def load_on(model: str, kind: str, device: str | None = None, dtype: str = "auto") -> Any:
    """Load the task of a model on a device, with [`fast_decoding`] if the model can take the fast path.

    Args:
        model, kind, dtype: as in [`load_task`].
        device: as in [`move_to`].

    Raises:
        ValueError: as in [`load_task`] and [`move_to`].
        OSError: there is no such model.
    """
    task = load_task(model, kind=kind, dtype=dtype)
    move_to(task.model, device)
    with suppress(ValueError):
        fast_decoding(task.model.eval())
    return task


def move_to(model: Any, device: str | None) -> None:
    """Move a model to a device, by default a GPU if there is one.

    Raises:
        ValueError: there is no such device.
    """
    try:
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # raised by torch for a missing device
        raise ValueError(f"--device {device}: {error}") from error

"""Models on their devices, for commands and for workers on other machines."""

from typing import Any

import torch

from ..modeling import fast_decoding
from .tasks import RouteTask, load_task


def load_on(model: str, wanted: str, device: str | None = None, is_compiled: bool = False, dtype: str = "auto") -> Any:
    """Load the task of a model on a device, optionally with [`fast_decoding`].

    Args:
        model: folder or Hub id.
        wanted: the required kind of output, "routes" or "texts".
        device, is_compiled: as in [`move_to`].
        dtype: as in [`load_task`].

    Raises:
        ValueError: there is no such model or device, or the model has the other kind of output.
    """
    try:
        task = load_task(model, dtype=dtype)
    except OSError as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"--model {model}: there is no such folder here, and it cannot be downloaded from the Hub. {first}"
        ) from error
    written = "routes" if isinstance(task, RouteTask) else "texts"
    if written != wanted:
        one, other = ("routes plan", "routes evaluate") if written == "routes" else ("generate", "evaluate")
        raise ValueError(f"--model {model} writes {written}, not {wanted}: use `weftformer {one}` or `{other}`.")
    move_to(task, device, is_compiled)
    return task


def load_forward(model: str | None, device: str | None = None, dtype: str = "auto") -> Any:
    """Load the model that predicts products, on a device.

    Args:
        model: folder or Hub id; None for the included one, "none" for no model.
        device: as in [`move_to`].
        dtype: as in [`load_task`].

    Raises:
        ValueError, OSError: there is no such model or device.
    """
    if model == "none":
        return None
    from ..routes.scoring.round_trip import ForwardModel

    forward = ForwardModel.from_pretrained(model, dtype=dtype)
    move_to(forward, device)
    return forward


def move_to(planner: Any, device: str | None, is_compiled: bool = False) -> None:
    """Move a planner's model to a device, by default a GPU if there is one, and optionally enable [`fast_decoding`].

    Raises:
        ValueError: there is no such device, or [`fast_decoding`] does not support the model.
    """
    try:
        planner.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # raised by torch for a missing device
        raise ValueError(f"--device {device}: {error}") from error
    if is_compiled:
        fast_decoding(planner.model.eval())

"""Loading the models of a page, with messages for what is missing."""

from typing import Any


def check_named(route_model: str | None, text_model: str | None) -> None:
    """Check that at least one model is given.

    Raises:
        ValueError: both are None.
    """
    if route_model is None and text_model is None:
        raise ValueError("there is nothing to show: give a route model (--model) or a text model (--text-model).")


def load_models(route_model: str | None, text_model: str | None) -> list[Any]:
    """Load the two arguments of `build_demo`.

    Args:
        route_model, text_model: folder or Hub id of each model, or None.

    Returns:
        The task of each model, or None for a model that is not given.

    Raises:
        ValueError: gradio or RDKit is not installed, no model is given, or a model is of the other kind.
    """
    check_named(route_model, text_model)
    try:
        import gradio  # noqa: F401

        from ..inference.tasks import RouteTask, TextTask, load_task

        named = ((route_model, RouteTask), (text_model, TextTask))
        tasks: list[Any] = [None if name is None else load_task(name) for name, _ in named]
    except ModuleNotFoundError as error:
        if error.name not in ("gradio", "fastapi", "starlette", "pydantic"):
            raise
        raise ValueError(f"The page needs {error.name}: pip install 'weftformer[app]'.") from error
    except ImportError as error:  # RDKit is missing; the message says which extra to install
        raise ValueError(str(error)) from error
    for (name, kind), task in zip(named, tasks, strict=True):
        if task is not None and not isinstance(task, kind):
            wanted, option = ("texts", "--text-model") if kind is RouteTask else ("routes", "--model")
            raise ValueError(f"{name} writes {wanted}: give it as {option}.")
    return tasks

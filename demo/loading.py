"""The models that a page shows, or a word on why it cannot."""

from typing import Any


def check_named(route_model: str | None, text_model: str | None) -> None:
    """Refuse to show nothing.

    Raises:
        ValueError: neither model is named.
    """
    if route_model is None and text_model is None:
        raise ValueError("there is nothing to show: name a model of routes (--model) or of texts (--text-model).")


def load_models(route_model: str | None, text_model: str | None) -> list[Any]:
    """What `build_demo` takes: the task of each model, None where none is named.

    Raises:
        ValueError: gradio or RDKit is not installed, no model is named, or one is of the other kind.
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
        raise ValueError(f"The demo needs {error.name}: pip install 'weftformer[demo]'.") from error
    except ImportError as error:  # RDKit's, which names the extra
        raise ValueError(str(error)) from error
    for (name, kind), task in zip(named, tasks, strict=True):
        if task is not None and not isinstance(task, kind):
            wanted, option = ("texts", "--text-model") if kind is RouteTask else ("routes", "--model")
            raise ValueError(f"{name} writes {wanted}: give it as {option}.")
    return tasks

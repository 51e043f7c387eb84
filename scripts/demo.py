"""`weftformer demo`: a page in the browser that plans routes, writes texts and shows what the model looks at."""

import argparse
from collections.abc import Sequence
from typing import Any

from weftformer.scripts.arguments import move_to


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weftformer demo", description=__doc__)
    add = parser.add_argument
    add("--model", metavar="MODEL", help="folder or Hub id of a model of routes, such as runs/demo after `make demo`")
    add("--text-model", metavar="MODEL", help="folder or Hub id of a model of texts")
    add("--device", help="where the models run, e.g. cuda:0 (default: cuda where there is one)")
    add("--host", help="address to listen at; 0.0.0.0 is every one of this machine's (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen at (default: the first from 7860 that is free)")
    add("--share", action="store_true", help="also open it to the world, through gradio's servers, for a week")
    return parser


def check_named(route_model: str | None, text_model: str | None) -> None:
    """Raises ValueError: neither model is named."""
    if route_model is None and text_model is None:
        raise ValueError("there is nothing to show: name a model of routes (--model) or of texts (--text-model).")


def load_models(route_model: str | None, text_model: str | None, device: str | None = None) -> list[Any]:
    """What `build_demo` takes: the task of each model, None where none is named.

    Raises:
        ValueError: gradio or RDKit is not installed, no model is named, or one is of the other kind.
    """
    check_named(route_model, text_model)
    try:
        import gradio  # noqa: F401

        from weftformer.inference.tasks import RouteTask, TextTask, load_task

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
        if task is not None:
            move_to(task, device)
    return tasks


def main(argv: Sequence[str] | None = None) -> None:
    """Load the models and show them until Ctrl-C.

    Raises:
        ValueError: as [`load_models`]. OSError: no such model, or the port is taken.
    """
    arguments = build_parser().parse_args(argv)
    tasks = load_models(arguments.model, arguments.text_model, arguments.device)
    from weftformer.demo import LAUNCH, build_demo

    build_demo(*tasks).launch(server_name=arguments.host, server_port=arguments.port, share=arguments.share, **LAUNCH)


if __name__ == "__main__":
    main()

"""Try models on a page in the browser, which plans routes and generates texts."""

import argparse
from pathlib import Path
from typing import Any

from weftformer.scripts.arguments import add_model_options, read_stock, take_shipped_model

EPILOG = """examples:
  weftformer app                                               # the included route model
  weftformer app --model runs/routes --text-model runs/de-en"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="MODEL",
        help="folder or Hub id of a route model (default: the included one, unless --text-model is given)")  # fmt: skip
    add("--stock", type=Path, metavar="FILE", help="purchasable molecules, unless a visitor uploads others")
    add("--text-model", metavar="MODEL", help="folder or Hub id of a text model")
    add_model_options(add, "models")
    add("--host", help="address to listen on; 0.0.0.0 for all addresses of this machine (default: 127.0.0.1)")
    add("--port", type=int, metavar="N", help="port to listen on (default: the first free one from 7860)")
    add("--share", action="store_true", help="also make the page public through gradio's servers, for a week")


def main(args: argparse.Namespace) -> None:
    """Load the models and show them until Ctrl-C.

    Raises:
        ValueError: as [`load_models`], or there is no such device. OSError: no such model, or the port is taken.
    """
    from weftformer.inference.loading import move_to

    if args.text_model is None:
        take_shipped_model(args)
    tasks = load_models(args.model, args.text_model, args.stock, args.dtype)
    for task in filter(None, tasks):
        move_to(task, args.device)

    from weftformer.demo import LAUNCH, build_demo

    build_demo(*tasks).launch(server_name=args.host, server_port=args.port, share=args.share, **LAUNCH)


def load_models(
    route_model: str | None, text_model: str | None, stock: Path | None = None, dtype: str = "auto"
) -> list[Any]:
    """Load the two arguments of `build_demo`.

    Args:
        route_model, text_model: folder or Hub id of each model, or None.
        stock: a file of purchasable molecules, for the route model.
        dtype: the precision of the weights, as in `from_pretrained`.

    Returns:
        The task of each model, or None for a model that is not given.

    Raises:
        ImportError: gradio or RDKit is not installed.
        ValueError: a model is of the other kind, or the stock has no route model or cannot be read.
    """
    if stock is not None and route_model is None:
        raise ValueError("--stock is for a route model: give one with --model.")
    import gradio  # noqa: F401  # before models are loaded, to fail at once if it is not installed

    from weftformer.inference.tasks import RouteTask, TextTask, load_task

    named = ((route_model, RouteTask), (text_model, TextTask))
    stocks = (read_stock(stock), None)
    tasks: list[Any] = [
        None if name is None else load_task(name, given, dtype=dtype)
        for (name, _), given in zip(named, stocks, strict=True)
    ]
    for (name, kind), task in zip(named, tasks, strict=True):
        if task is not None and not isinstance(task, kind):
            wanted, option = ("texts", "--text-model") if kind is RouteTask else ("routes", "--model")
            raise ValueError(f"{name} writes {wanted}: give it as {option}.")
    return tasks

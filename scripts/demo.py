"""`weftformer demo`: a page in the browser that plans routes, writes texts and shows what the model looks at."""

import argparse
from collections.abc import Sequence

from weftformer.demo.loading import load_models
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


def main(argv: Sequence[str] | None = None) -> None:
    """Load the models and show them until Ctrl-C.

    Raises:
        ValueError: as [`load_models`], or there is no such device. OSError: no such model, or the port is taken.
    """
    arguments = build_parser().parse_args(argv)
    tasks = load_models(arguments.model, arguments.text_model)
    for task in filter(None, tasks):
        move_to(task, arguments.device)
    from weftformer.demo import LAUNCH, build_demo

    build_demo(*tasks).launch(server_name=arguments.host, server_port=arguments.port, share=arguments.share, **LAUNCH)


if __name__ == "__main__":
    main()

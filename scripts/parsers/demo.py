"""The arguments of `weftformer demo`."""

import argparse

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer demo",
        description="A page in the browser that plans routes, writes texts and shows what the model looks at.",
    )
    add = parser.add_argument
    add("--model", metavar="MODEL", help="folder or Hub id of a route model (default: the one that comes with Weft)")
    add("--text-model", metavar="MODEL", help="folder or Hub id of a model of texts")
    add("--device", help="where the models run, e.g. cuda:0 (default: cuda where there is one)")
    add("--host", help="address to listen at; 0.0.0.0 is every one of this machine's (default: 127.0.0.1)")
    add("--port", type=int, metavar="N", help="port to listen at (default: the first from 7860 that is free)")
    add("--share", action="store_true", help="also open it to the world, through gradio's servers, for a week")
    return parser

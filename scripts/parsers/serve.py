"""The arguments of `weftformer serve`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer serve",
        usage="weftformer serve [--model MODEL] [--stock FILE] [--port N] [--option value ...]",
        description="A model behind HTTP: POST /plan (a model of routes) or /translate (of texts), GET /health, the API at /docs.",
    )
    add = parser.add_argument
    add(
        "--model",
        help="folder or Hub id of a trained model (default: the route model that comes with Weft, with its stock)",
    )
    add("--stock", type=Path, metavar="FILE",
        help="for routes, what can be bought: SMILES or InChIKeys, one a line or in a table")  # fmt: skip
    add("--forward-model", metavar="MODEL",
        help="for routes, say which reactions a model of `prepare-reactions` predicts the product of")  # fmt: skip
    add("--device", help="where the model runs, e.g. cuda:0 (default: cuda where there is one)")
    add("--host", default="127.0.0.1",
        help="address to listen at; 0.0.0.0 is every one of this machine's (default: %(default)s)")  # fmt: skip
    add(
        "--port",
        type=int,
        default=8000,
        metavar="N",
        help="port to listen at; 0 for one that is free (default: %(default)s)",
    )
    add("--log-level", default="info", choices=["critical", "error", "warning", "info"],
        help="what is written on stderr; info writes a line a request (default: %(default)s)")  # fmt: skip
    add = parser.add_argument_group("bounds").add_argument
    add("--max-batch-size", type=int, default=16, metavar="N", help="inputs computed together (default: %(default)s)")
    add("--max-wait-ms", type=float, default=10.0, metavar="MS",
        help="how long an input waits for others to be computed with (default: %(default)s)")  # fmt: skip
    add("--max-queue", type=int, default=256, metavar="N",
        help="inputs that may wait; more are refused with 429 (default: %(default)s)")  # fmt: skip
    add("--max-inputs", type=int, default=32, metavar="N", help="inputs of one request (default: %(default)s)")
    add("--max-characters", type=int, default=2000, metavar="N", help="length of an input (default: %(default)s)")
    add(
        "--max-beams",
        type=int,
        default=50,
        metavar="N",
        help="widest search that may be asked for (default: %(default)s)",
    )
    add("--max-new-tokens", type=int, metavar="N",
        help="most tokens written for an input (default: three quarters of a route model's positions; 256 of text)")  # fmt: skip
    add("--max-time-limit", type=float, default=60.0, metavar="S",
        help="longest `time_limit` that may be asked for (default: %(default)s)")  # fmt: skip
    add("--max-expand-leaves", type=int, default=2, metavar="N",
        help="most levels of `expand_leaves` that may be asked for; 0 for none (default: %(default)s)")  # fmt: skip
    add("--max-request-bytes", type=int, default=1 << 18, metavar="N",
        help="largest body; larger ones are refused with 413 (default: %(default)s)")  # fmt: skip
    add("--timeout-s", type=float, default=120.0, metavar="S",
        help="seconds until a request is given up with 504 (default: %(default)s)")  # fmt: skip
    return parser

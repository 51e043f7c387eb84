"""Serve a model over HTTP: POST /plan and /expand (route models) or /translate (text models), GET /health, /ready and
/metrics, API at /docs. If WEFT_API_KEY is set, requests must send `Authorization: Bearer KEY`.
"""

import argparse
import ipaddress
import os
import re
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

from weftformer.common.extensions import parts_of_extensions
from weftformer.common.options import add_options
from weftformer.scripts.arguments import add_model_options, add_threads_option, check_model
from weftformer.serving.limits import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "weftformer serve [--model MODEL] [--stock FILE] [--port N] [--option value ...]"
    add = parser.add_argument
    add("--model", help="folder or Hub id of a trained model (default: the included route model and stock)")
    for part in parts_of_extensions("commands.serving").values():
        part.add_arguments(add)
    add_model_options(add)
    add_threads_option(add)
    add("--host", default="127.0.0.1",
        help="address to listen on; 0.0.0.0 for all addresses of this machine (default: %(default)s)")  # fmt: skip
    add("--port", type=int, default=8000, metavar="N",
        help="port to listen on; 0 for a free one (default: %(default)s)")  # fmt: skip
    add("--log-level", default="info", choices=["critical", "error", "warning", "info"],
        help="log level on stderr; info logs one line per request (default: %(default)s)")  # fmt: skip
    add("--log-format", default="text", choices=["text", "json"],
        help="format of log lines on stderr (default: %(default)s)")  # fmt: skip
    add("--allowed-host", action="append", metavar="NAME",
        help="an allowed host name, or *.example.org (repeatable; default: any; on a loopback address without a key, "
        "names of localhost only)")  # fmt: skip
    add_options(parser.add_argument_group("bounds"), Limits)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} is not allowed: give a number from 0 to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _allowed_hosts(args: argparse.Namespace, address: str, has_key: bool) -> list[str]:
    """Return the host names that requests may use.

    A web page can let its own name lead to a loopback address, and browsers then let it read answers. So without a
    key, a server on such an address answers only its own names, besides those that are given.
    """
    for name in args.allowed_host or ():
        if not re.fullmatch(r"\*|(\*\.)?[\w.-]+|\[[\da-fA-F:.]+\]", name):
            raise ValueError(
                f"--allowed-host {name} is not a host name: give one without a port, such as *.example.org or [::1]."
            )
    if has_key or not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return args.allowed_host or ["*"]
    names = [
        "localhost",
        "127.0.0.1",
        "[::1]",
        *(f"[{name}]" if ":" in name else name for name in (args.host, address)),
    ]
    return [*names, *(args.allowed_host or ())]


def main(args: argparse.Namespace) -> None:
    """Load the model and serve it until SIGTERM or Ctrl-C. Running requests are finished, and queued ones get 503.

    Raises:
        ImportError: FastAPI or RDKit is not installed. ValueError: an argument does not fit. OSError: no such model,
            or the port is taken.
    """
    from weftformer.serving import build_app, load_task
    from weftformer.serving.connections import Server

    key = os.environ.get("WEFT_API_KEY", "")
    if key and not key.strip():
        raise ValueError("WEFT_API_KEY is blank: give a key, or unset it.")
    limits = Limits(**{field.name: getattr(args, field.name) for field in fields(Limits)})
    # before the model is loaded, to fail at once if the port is taken
    listener = _listen(args.host, args.port)
    host, port = listener.getsockname()[:2]
    hosts = _allowed_hosts(args, host, bool(key))
    options: dict[str, Any] = {}
    for part in parts_of_extensions("commands.serving").values():
        options |= part.options(args)
    if args.model is None:
        raise ValueError("--model is required.")
    check_model(args.model)
    task = load_task(
        args.model, device=args.device, dtype=args.dtype, threads=args.threads, max_new_tokens=limits.max_new_tokens,
        trust_remote_code=args.trust_remote_code,
        **options,
    )  # fmt: skip
    name = Path(args.model).resolve().name if Path(args.model).is_dir() else args.model
    # a key from a file often ends in a line break, which no header can have
    app = build_app(task, name=name, limits=limits, api_key=key.strip() or None, allowed_hosts=hosts)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"{app.state.name}: a page at {url}, requests to {url}{app.state.path}, the API at {url}/docs", flush=True)
    Server(app, limits, args.log_level, args.log_format).run([listener])

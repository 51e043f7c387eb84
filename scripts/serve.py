"""`weftformer serve`: a model behind HTTP. POST /plan (a model of routes) or /translate (of texts), GET /health, the API at /docs."""

import socket
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from weftformer.scripts.arguments import check_model, move_to, read_forward_model, read_stock, take_shipped_model
from weftformer.scripts.parsers.serve import build_parser


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} is not allowed: give a number from 0 to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def main(argv: Sequence[str] | None = None) -> None:
    """Load the model, serve it until SIGTERM or Ctrl-C: then what is computed is finished, and what waits is answered 503.

    Raises:
        ValueError: FastAPI is not installed, or an argument does not fit. OSError: no such model, or the port is taken.
    """
    arguments = build_parser().parse_args(argv)
    try:
        import uvicorn

        from weftformer.inference import load_task
        from weftformer.serving import Limits, build_app
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "pydantic"):
            raise
        raise ValueError(f"Serving needs {error.name}: pip install 'weftformer[serve]'.") from error

    limits = Limits(**{field.name: getattr(arguments, field.name) for field in fields(Limits)})
    # before the model is loaded: a port that is taken shows at once
    listener = _listen(arguments.host, arguments.port)
    try:
        take_shipped_model(arguments)
        check_model(arguments.model)
        stock = None if arguments.stock is None else read_stock(arguments.stock)
        forward = read_forward_model(arguments)
        task = load_task(arguments.model, stock, limits.max_new_tokens, forward)
    except ImportError as error:  # RDKit's, which names the extra
        raise ValueError(str(error)) from error
    move_to(task, arguments.device)
    # of a folder its name alone: where it lies is nobody's business
    name = Path(arguments.model).resolve().name if Path(arguments.model).is_dir() else arguments.model
    app = build_app(task, name=name, limits=limits)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # uvicorn waits for open requests: they must come to an end
            app.state.batcher.stop()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app, log_level=arguments.log_level, timeout_graceful_shutdown=round(limits.timeout_s) + 1, server_header=False
    )
    host, port = listener.getsockname()[:2]
    print(f"{name} at http://{host}:{port}{task.path}, its API at http://{host}:{port}/docs", flush=True)
    Server(config).run([listener])


if __name__ == "__main__":
    main()

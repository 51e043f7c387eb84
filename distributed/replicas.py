"""The server as replicas on Ray Serve. Each has a model and its own queue, and a front forwards requests to them.

The front sends nothing to a client before it has a whole answer. Requests are stateless, so if a replica dies, the
front can ask another one. Without it, Serve answers the requests of a dead replica with 500.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from ..serving.app import load_app
from ..serving.limits import Limits
from ..serving.refusals import BoundedBody, add_reasons
from .crew import Workers, connected, gpus_of, import_ray

# The number of replicas that are tried before a request is answered with 503.
_TRIES = 3
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# The parts of a scope that a replica needs. The rest belongs to the connection.
_SCOPE = (
    "type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "client",
    "server",
)  # fmt: skip
# The arguments of the application with their defaults.
_ARGUMENTS: dict[str, Any] = {
    "model": None, "replicas": 1, "threads": 1, "stock": None, "stock_column": None, "stock_strict": False,
    "forward_model": None, "device": None, "dtype": "auto", "engine": "auto", "allowed_hosts": ["*"], "limits": {},
}  # fmt: skip

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def bounds(replicas: str | int) -> tuple[int, int]:
    """Parse the smallest and largest number of replicas from a text such as `4` or `1-4`.

    Raises:
        ValueError: the text is neither.
    """
    first, dash, last = str(replicas).partition("-")
    try:
        found = int(first), int(last if dash else first)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1]:
        raise ValueError(f"--replicas {replicas} is not allowed: give a number, or bounds such as 1-4.")
    return found


class Replica:
    """A model with the application of one process, called without a connection.

    Args:
        args: all arguments of [`application`]. The files must have these names on every node.
        api_key: as in [`load_app`].
    """

    def __init__(self, args: dict[str, Any], api_key: str | None):
        import torch

        from ..routes.shipped import STOCK
        from ..routes.stock import Stock

        torch.set_num_threads(args["threads"])
        self.limits, stock = Limits(**args["limits"]), args["stock"]
        if stock is not None:
            stock = Stock.from_file(
                stock, progress=False, cache=Path(stock) != STOCK, column=args["stock_column"], is_strict=args["stock_strict"]
            )  # fmt: skip
        self.app = load_app(
            args["model"], stock=stock, limits=self.limits, api_key=api_key,
            **{name: args[name] for name in ("forward_model", "device", "engine", "dtype", "allowed_hosts")},
        )  # fmt: skip
        self.batcher = self.app.state.batcher

    async def answer(self, scope: dict[str, Any], body: bytes) -> Answer:
        """Answer a request."""
        messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
        status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()  # a client that disconnects cancels the call

        async def send(message: Any) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = (
                    message["status"],
                    [(bytes(name), bytes(value)) for name, value in message["headers"]],
                )
            else:
                parts.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, headers, b"".join(parts)

    def check_health(self) -> None:
        """Raise an error if the batcher has stopped. Serve then replaces the replica."""
        if not self.batcher.is_ready:
            raise RuntimeError("The batcher has stopped.")

    async def __del__(self) -> None:
        self.batcher.stop()
        await run_in_threadpool(self.batcher.join, self.limits.stop_timeout_s)


def build_front(replicas: Any, limits: Limits) -> FastAPI:
    """Build the application that sends each request to a replica, and to another one if that replica dies.

    Args:
        replicas: the handle of the deployment of [`Replica`].
        limits: the bounds on the body and on the time to wait for a replica.
    """
    from ray.exceptions import RayActorError

    front = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    front.add_middleware(BoundedBody, seconds=limits.timeout_s, most=limits.max_request_bytes)
    add_reasons(front)

    @front.api_route("/{path:path}", methods=_METHODS)
    async def forward(request: Request) -> Response:
        scope = {name: request.scope[name] for name in _SCOPE if name in request.scope}
        body = await request.body()
        try:
            async with asyncio.timeout(2 * limits.timeout_s):  # replicas may have to start first
                for _ in range(_TRIES):
                    try:
                        status, headers, content = await replicas.answer.remote(scope, body)
                    except RayActorError:
                        continue
                    answer = Response(content, status)
                    answer.raw_headers = headers
                    return answer
        except TimeoutError:
            pass
        raise HTTPException(503, "The replicas that worked on this request died, or none is ready: try again later.")

    return front


def application(args: dict[str, Any]) -> Any:
    """Build the application for Ray Serve, whose `import_path` is `weftformer.distributed.replicas:application`.

    Args:
        args: `model`, and optionally `replicas` (`4`, or `1-4` for as many as requests need), `threads` (of a
            replica), `stock`, `stock_column`, `stock_strict`, `forward_model`, `device`, `dtype`, `engine`,
            `allowed_hosts` and `limits` (fields of [`Limits`]). The key is in `WEFT_API_KEY`.

    Returns:
        The application for `ray.serve.run`.

    Raises:
        ValueError: an argument is unknown or not allowed, or Ray is not installed.
    """
    import_ray()
    from ray import serve

    if wrong := [*(args.keys() - _ARGUMENTS.keys()), *({"model"} - args.keys())]:
        raise ValueError(
            f"{wrong[0]} is unknown or missing: model is required, and the arguments are {', '.join(_ARGUMENTS)}."
        )
    args = _ARGUMENTS | args
    if unknown := args["limits"].keys() - {field.name for field in fields(Limits)}:
        raise ValueError(
            f"limit {min(unknown)} is not allowed: choose one of {', '.join(field.name for field in fields(Limits))}."
        )
    limits = Limits(**args["limits"])
    least, most = bounds(args["replicas"])
    # the inputs of a replica, waiting or running: its batcher itself refuses more
    room = limits.max_queue + limits.max_batch_size
    scaled: dict[str, Any] = {"num_replicas": least}
    if most > least:
        target = max(1, limits.max_batch_size // 2)
        scaled = {
            "autoscaling_config": {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": target}
        }
    replicas = serve.deployment(
        name="replica",
        **scaled,
        max_ongoing_requests=room,
        graceful_shutdown_timeout_s=limits.timeout_s + limits.stop_timeout_s,
        ray_actor_options={"num_cpus": args["threads"], "num_gpus": gpus_of(args["device"])},
    )(Replica)

    class Front:
        def __init__(self, replicas: Any):
            self.replicas = replicas

        def __serve_build_asgi_app__(self) -> FastAPI:
            return build_front(self.replicas, limits)

    front = serve.deployment(
        name="front", max_ongoing_requests=limits.max_connections, ray_actor_options={"num_cpus": 0}
    )(serve.ingress()(Front))
    return front.bind(replicas.bind(args, os.environ.get("WEFT_API_KEY", "").strip() or None))


def serve_here(args: dict[str, Any], host: str, port: int, address: str | None = None) -> None:
    """Serve on Ray until SIGTERM or Ctrl-C.

    Args:
        args: as in [`application`].
        host, port: the address of the server.
        address: as in [`Workers`].

    Raises:
        ValueError: as in [`application`], no cluster answers, it has no room for the replicas, or they do not start.
    """
    least, most = bounds(args["replicas"])
    workers = Workers(most, args["threads"], address, args["device"])
    stopped = threading.Event()
    with connected(workers, "--replicas") as (_, device):
        from ray import serve

        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which sets its own handlers
            signal.signal(number, lambda *_: stopped.set())
        serve.start(http_options={"host": host, "port": port})
        try:
            try:
                serve.run(application(args | {"device": device}), name="weft")
            except RuntimeError as error:  # a replica that could not load its model
                raise ValueError(str(error)) from error
            print(f"{args['model']} at http://{host}:{port}, {least} to {most} replicas", flush=True)
            stopped.wait()
        finally:
            serve.delete("weft")  # other applications of the cluster stay, and running requests finish

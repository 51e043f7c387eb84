"""The server as replicas on Ray Serve. Each has a model and its own queue, and a front forwards requests to them.

The front sends nothing to a client before it has a whole answer. Requests are stateless, so if a replica dies, the
front can ask another one. Without it, Serve answers the requests of a dead replica with 500.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
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
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def bounds(replicas: str | int) -> tuple[int, int]:
    """Parse the smallest and largest number of replicas from a text such as `4` or `1-4`.

    Raises:
        ValueError: the text is neither.
    """
    first, dash, last = str(replicas).partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"--replicas {replicas} is not allowed: give a number, or bounds such as 1-4.")
    return int(first), int(last)


@dataclass(frozen=True)
class Arguments:
    """The arguments of [`application`].

    Args:
        model: folder or Hub id. Files must have these names on every node.
        replicas: a number such as 4, or bounds such as "1-4" for as many as requests need.
        threads: the CPUs and threads of a replica.
        stock, stock_column, stock_strict: a file of purchasable molecules, as in `Stock.from_file`.
        forward_model, device, dtype, allowed_hosts: as in `load_app`.
        limits: fields of [`Limits`].
    """

    model: str
    replicas: str | int = 1
    threads: int = 1
    stock: str | None = None
    stock_column: str | None = None
    stock_strict: bool = False
    forward_model: str | None = None
    device: str | None = None
    dtype: str = "auto"
    allowed_hosts: Sequence[str] = ("*",)
    limits: dict[str, Any] = field(default_factory=dict)


class Replica:
    """A model with the application of one process, called without a connection.

    Args:
        args: the arguments of the application.
        api_key: as in [`load_app`].
    """

    def __init__(self, args: Arguments, api_key: str | None):
        import torch

        from ..routes.shipped import STOCK
        from ..routes.stock import Stock

        torch.set_num_threads(args.threads)
        stock = None
        if args.stock is not None:
            is_shipped = Path(args.stock) == STOCK
            stock = Stock.from_file(
                args.stock, progress=False, cache=not is_shipped, column=args.stock_column, is_strict=args.stock_strict
            )
        self.limits = Limits(**args.limits)
        self.app = load_app(
            args.model, stock=stock, limits=self.limits, api_key=api_key, forward_model=args.forward_model,
            device=args.device, dtype=args.dtype, allowed_hosts=args.allowed_hosts,
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
    front.add_middleware(BoundedBody, seconds=limits.timeout_s, max_bytes=limits.max_request_bytes)
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
        args: fields of [`Arguments`]. The key is in `WEFT_API_KEY`.

    Returns:
        The application for `ray.serve.run`.

    Raises:
        ValueError: an argument is unknown or not allowed, or Ray is not installed.
    """
    import_ray()
    from ray import serve

    try:
        arguments = Arguments(**args)
        limits = Limits(**arguments.limits)
    except TypeError as error:
        raise ValueError(f"An argument is unknown or missing: {error}") from error
    smallest, largest = bounds(arguments.replicas)
    # the inputs of a replica, waiting or running: its batcher itself refuses more
    room = limits.max_queue + limits.max_batch_size
    scaled: dict[str, Any] = {"num_replicas": smallest}
    if largest > smallest:
        target = max(1, limits.max_batch_size // 2)
        scaled = {
            "autoscaling_config": {
                "min_replicas": smallest,
                "max_replicas": largest,
                "target_ongoing_requests": target,
            }
        }
    replicas = serve.deployment(
        name="replica",
        **scaled,
        max_ongoing_requests=room,
        graceful_shutdown_timeout_s=limits.timeout_s + limits.stop_timeout_s,
        ray_actor_options={"num_cpus": arguments.threads, "num_gpus": gpus_of(arguments.device)},
    )(Replica)

    class Front:
        def __init__(self, replicas: Any):
            self.replicas = replicas

        def __serve_build_asgi_app__(self) -> FastAPI:
            return build_front(self.replicas, limits)

    front = serve.deployment(
        name="front", max_ongoing_requests=limits.max_connections, ray_actor_options={"num_cpus": 0}
    )(serve.ingress()(Front))
    return front.bind(replicas.bind(arguments, os.environ.get("WEFT_API_KEY", "").strip() or None))


def serve_here(args: Arguments, host: str, port: int, address: str | None = None) -> None:
    """Serve on Ray until SIGTERM or Ctrl-C.

    Args:
        args: the arguments of the application.
        host, port: the address of the server.
        address: as in [`Workers`].

    Raises:
        ValueError: as in [`application`], no cluster answers, it has no room for the replicas, or they do not start.
    """
    smallest, largest = bounds(args.replicas)
    workers = Workers(largest, args.threads, address, args.device)
    stopped = threading.Event()
    with connected(workers, "--replicas") as (_, device):
        from ray import serve

        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which sets its own handlers
            signal.signal(number, lambda *_: stopped.set())
        serve.start(http_options={"host": host, "port": port})
        try:
            try:
                serve.run(application(vars(args) | {"device": device}), name="weft")
            except RuntimeError as error:  # a replica that could not load its model
                raise ValueError(str(error)) from error
            print(f"{args.model} at http://{host}:{port}, {smallest} to {largest} replicas", flush=True)
            stopped.wait()
        finally:
            serve.delete("weft")  # other applications of the cluster stay, and running requests finish

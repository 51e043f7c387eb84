"""Servers in a thread of the test process, and a task that the test controls."""

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from weftformer.serving import Limits, build_app
from weftformer.serving.batching import Unwanted
from weftformer.serving.connections import Server
from weftformer.serving.translate import translate_endpoint


class StubTask:
    """Returns texts in upper case. "wait" runs until `go` is set or it is unwanted, "fail" fails, "bad" is refused."""

    beams, max_new_tokens, describe = 4, 100, dict
    example = public_example = {"texts": ["ein Haus", "zwei Hunde"]}

    def __init__(self):
        self.go, self.started = threading.Event(), threading.Event()
        self.computed: list[str] = []
        self.gave_up = 0

    def inputs(self, texts, *, beams, max_new_tokens, conditions):
        if "bad" in texts:
            raise ValueError("'bad' is no text.")
        return texts

    def pool_key(self, work):
        return "all"

    def rows(self, work):
        return 1

    def count_tokens(self, answer):
        return len(answer)

    def open_pool(self, key, watch):
        return StubPool(self, watch)

    def endpoints(self, limits):
        return [translate_endpoint(self, limits)]


class StubPool(dict):
    """Computes one text a step."""

    def __init__(self, task, watch):
        super().__init__()
        self.task, self.watch = task, watch

    add, remove = dict.__setitem__, dict.pop

    def step(self):
        if not self:
            return []
        key, text = next(iter(self.items()))
        self.task.computed.append(text)
        if text == "fail":
            raise RuntimeError("secret of the house")
        if text == "wait":
            self.task.started.set()
            while not self.task.go.wait(0.01):
                try:
                    self.watch()
                except Unwanted:
                    self.task.gave_up += 1
                    raise
        return [(key, self.pop(key).upper())]


# No variables of the environment, and no certificates, which take a while to read.
PLAIN = {"trust_env": False, "verify": False}


def soon(condition, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def reset_loggers() -> None:
    """Undo what a server changes in this process: its handlers write to the standard error of one test."""
    for name in ("uvicorn", "weftformer"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).setLevel(logging.NOTSET)


@contextmanager
def running(task, api_key=None, allowed_hosts=("*",), **limits):
    """Run a real server with a `client`, a `batcher`, `later(json)`, which posts from another thread, and `stop()`."""
    app = build_app(task, name="stub", limits=Limits(**limits), api_key=api_key, allowed_hosts=allowed_hosts)
    server = Server(app, Limits(**limits))
    server.config.port = 0
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    soon(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    threads, url = [], f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, timeout=60, **PLAIN) as client:

        def later(json, path=app.state.path, timeout=60.0):
            """Return a list to which the response or the error will be added."""
            got = []

            def post():
                try:
                    got.append(httpx.post(f"{url}{path}", json=json, timeout=timeout, **PLAIN))
                except httpx.HTTPError as error:
                    got.append(error)

            threads.append(threading.Thread(target=post, daemon=True))
            threads[-1].start()
            return got

        stop = partial(setattr, server, "should_exit", True)
        yield SimpleNamespace(client=client, batcher=app.state.batcher, later=later, port=port, stop=stop)
        for waiting in threads:
            waiting.join(60)
    stop()
    thread.join(60)
    reset_loggers()
    assert not thread.is_alive()


@pytest.fixture
def stub():
    task = StubTask()
    yield task
    task.go.set()

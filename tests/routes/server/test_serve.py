"""`weftformer serve` with a model of routes: its options, and a separate process under load, stopped by a signal."""

import json
import logging
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient

from weftformer.scripts import cli
from weftformer.serving.connections import JsonFormatter

from ...serving.conftest import PLAIN, soon
from ...serving.test_serve import servers  # noqa: F401, a fixture

TARGETS = ("CCOC(C)=O", "CC(=O)NCc1ccccc1", "CS(=O)(=O)NCC", "O=C(O)CNC(C)=O", "O=C(Nc1ccccc1)c1ccc(F)cc1")
JSON = {"content-type": "application/json"}


@contextmanager
def served(model, *options):
    """Run `weftformer serve` as a process, and end it with SIGTERM. Yield the address of its endpoint, and it."""
    command = [sys.executable, "-m", "weftformer", "serve", "--model", model, "--port", "0", "--log-level", "warning"]
    server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        yield re.search(r"requests to (http\S+),", line)[1], psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            _, log = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode in (0, -signal.SIGTERM) and "Traceback" not in log, log[-2000:]


def texts_of(response):
    """Return the part of an answer that must not depend on other requests. The last digits of scores may."""
    return [[candidate["text"] for candidate in plan["candidates"]] for plan in response.json()["plans"]]


def send_until(end, url, expected, seed):
    """Send requests, some of them given up early, and count the answers that are those of the request alone."""
    chance, outcomes = random.Random(seed), Counter()
    with httpx.Client(headers=JSON, timeout=120, **PLAIN) as client:
        while time.monotonic() < end:
            body, texts = chance.choice(list(expected.items()))
            if chance.random() < 0.02:
                with pytest.raises(httpx.TimeoutException):
                    client.post(url, content=body, timeout=chance.uniform(0.001, 0.01))
            else:
                outcomes[texts_of(client.post(url, content=body)) == texts] += 1
    return outcomes


@pytest.mark.integration
def test_under_load_answers_equal_those_alone_and_a_signal_ends_it_in_order(planner_folder):
    with served(planner_folder, "--max-batch-size", "8", "--timeout-s", "60") as (url, process):
        settings = {"n_steps": 1, "beams": 2, "max_new_tokens": 12}
        bodies = [json.dumps({"targets": target} | settings).encode() for target in TARGETS]
        post = partial(httpx.post, url, headers=JSON, timeout=60, **PLAIN)
        expected = {body: texts_of(post(content=body)) for body in bodies}
        memory = []
        with ThreadPoolExecutor(20) as clients:
            for seconds in (1, 3):  # the first is for warming up
                send = partial(send_until, time.monotonic() + seconds, url, expected)
                outcomes = sum(clients.map(send, range(20)), Counter())
                memory.append(process.memory_info().rss / 2**20)
            assert outcomes[True] > 20 and not outcomes[False], outcomes
            assert memory[1] - memory[0] < 50
            health = url.replace("/plan", "/health")
            soon(lambda: httpx.get(health, **PLAIN).json()["waiting"] == 0)
            big = {"targets": [TARGETS[0]] * 20, "beams": 10, "grammar": False}
            last = [clients.submit(post, json=big) for _ in range(3)]
            soon(lambda: httpx.get(health, **PLAIN).json()["waiting"] > 40)
            # the signal comes while a batch is computed: `served` checks how the process ends, and its log
            process.send_signal(signal.SIGTERM)
            assert [answer.result().status_code for answer in last] == [503] * 3  # none was computed as a whole


def test_options_reach_the_server(servers, monkeypatch, untrained_folder):
    monkeypatch.setenv("WEFT_API_KEY", "secret\n")  # as a file has it
    words = ["--log-level", "error", "--log-format", "json", "--refuse", "ranking", "--max-connections", "9"]
    words += ["--allowed-host", "a.example", "--header-timeout-s", "3"]
    assert cli.main(["serve", "--model", untrained_folder, "--port", "0", *words]) == 0
    (server,) = servers
    assert server.config.log_level == "error" and logging.getLogger("weftformer").level == logging.ERROR
    assert server.config.log_config["formatters"]["line"]["()"] is JsonFormatter
    assert (server.config.limit_concurrency, server.config.timeout_keep_alive) == (10, 3)
    with TestClient(server.config.app) as client:
        get = partial(client.get, "/v1/models")
        for key, host, status in (("secret", "a.example", 200), ("secret", "b.example", 400), ("", "a.example", 401)):
            assert get(headers={"authorization": f"Bearer {key}", "host": host}).status_code == status

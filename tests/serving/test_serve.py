"""`weftformer serve` as a separate process, under load and stopped by a signal."""

import asyncio
import logging
import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("rdkit")

from fastapi.testclient import TestClient

import weftformer
from weftformer.scripts import cli, serve
from weftformer.serving.connections import JsonFormatter, Server

from .conftest import soon
from .load import TARGETS, answers_alone, load, request_bodies, served

ROOT = Path(weftformer.__file__).resolve().parent


@pytest.mark.integration
def test_under_load_no_answer_is_lost_and_a_signal_ends_it_in_order(planner_folder):
    statuses: list[int] = []
    with served(planner_folder, "--max-batch-size", "8", "--timeout-s", "60") as (url, process):
        bodies = request_bodies(TARGETS[:6], beams=2, max_new_tokens=12)
        expected = asyncio.run(answers_alone(url, bodies))
        figures = asyncio.run(load(url, process, expected, clients=20, seconds=3, warm_up=1))
        assert figures.answers > 20 and figures.lost == {}, str(figures)
        assert figures.memory[1] - figures.memory[0] < 50
        health = url.replace("/plan", "/health")
        assert httpx.get(health, trust_env=False).json()["waiting"] == 0

        def ask() -> None:
            body = {"targets": [TARGETS[0]] * 20, "beams": 10, "grammar": False}
            statuses.append(httpx.post(url, json=body, timeout=60, trust_env=False).status_code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        soon(lambda: httpx.get(health, trust_env=False).json()["waiting"] > 40)
    # the signal came while a batch was computed: `served` checks how the process ended, and its log
    for thread in threads:
        thread.join(60)
    assert statuses == [503, 503, 503]  # none of them was computed as a whole


def test_a_missing_extra_is_one_line(monkeypatch, capsys, tmp_path):
    for name in [name for name in sys.modules if name.startswith("weftformer.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert cli.main(["serve", "--model", str(tmp_path)]) == 1
    assert "weftformer serve: error: This needs fastapi: pip install 'weftformer[serve]'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--forward-model", "/nope"], "weftformer serve: error: --forward-model /nope: there is no such folder."),
        (["--port", "99999"], "--port 99999 is not allowed: give a number from 0 to 65535."),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, untrained_folder):
    assert cli.main(["serve", "--model", untrained_folder, "--port", "0", *words]) == 1
    assert message in capsys.readouterr().err


def test_options_reach_the_server(monkeypatch, untrained_folder):
    seen = []
    monkeypatch.setattr(Server, "run", lambda self, sockets: seen.append(self))
    monkeypatch.setenv("WEFT_API_KEY", "secret\n")  # as a file has it
    words = ["--log-level", "error", "--log-format", "json", "--refuse", "ranking", "--max-connections", "9"]
    words += ["--allowed-host", "a.example"]
    assert cli.main(["serve", "--model", untrained_folder, "--port", "0", *words]) == 0
    (server,) = seen
    assert server.config.log_level == "error" and logging.getLogger("weftformer").level == logging.ERROR
    assert server.config.log_config["formatters"]["line"]["()"] is JsonFormatter
    assert server.config.http.keywords["most"] == 9
    with TestClient(server.config.app) as client:
        asked = partial(client.get, "/v1/models", headers={"authorization": "Bearer secret", "host": "a.example"})
        assert asked().status_code == 200
        assert asked(headers={"authorization": "Bearer secret"}).status_code == 400
        assert asked(headers={"host": "a.example"}).status_code == 401


def test_a_blank_key_is_refused_and_an_address_is_one_to_open(monkeypatch, capsys, untrained_folder):
    monkeypatch.setattr(Server, "run", lambda self, sockets: None)
    listener = SimpleNamespace(getsockname=lambda: ("::1", 8000, 0, 0))
    monkeypatch.setattr(serve, "_listen", lambda host, port: listener)
    words = ["serve", "--model", untrained_folder, "--host", "::1"]
    monkeypatch.setenv("WEFT_API_KEY", " \n")
    assert cli.main(words) == 1 and "WEFT_API_KEY is blank" in capsys.readouterr().err
    monkeypatch.delenv("WEFT_API_KEY")
    assert cli.main(words) == 0 and "http://[::1]:8000/docs" in capsys.readouterr().out


@pytest.mark.slow
def test_the_memory_of_600_mixed_requests_levels_off(planner_folder, tmp_path):
    (tmp_path / "stock.smi").write_text("CCO\nCC(=O)O\n")
    chance, statuses, memory = random.Random(0), Counter(), []
    settings = [
        {"time_limit": 2},  # searched to the stock
        {"time_limit": 2, "svg": True},
        {"ranking": "sqrt_length"},
        {"direct": True},
        {"direct": True, "svg": True},
        {"grammar": False},
        {"n_steps": [1, 2]},
    ]
    with (
        served(planner_folder, "--stock", str(tmp_path / "stock.smi")) as (url, process),
        ThreadPoolExecutor(8) as clients,
    ):

        def ask(number: int) -> int:
            targets = ["C(C"] if number % 50 == 0 else chance.sample(TARGETS, chance.choice([1, 2, 3]))
            body = {
                "targets": targets,
                "beams": chance.choice([1, 5, 10, 50]),
                "max_new_tokens": chance.choice([20, 60]),
            }
            answer = httpx.post(url, json=body | chance.choice(settings), timeout=100, trust_env=False)
            return answer.status_code

        for part in range(6):
            statuses.update(clients.map(ask, range(100 * part, 100 * (part + 1))))
            memory.append(process.memory_info().rss / 2**20)
    assert statuses == {200: 588, 422: 12}, statuses
    assert memory[5] - memory[3] < 25, memory

"""Replicas on Ray Serve give the answers of one process, even if a replica is killed."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("ray")
pytest.importorskip("fastapi")

import httpx
import psutil

from ..conftest import save_both
from ..models import tiny_text_model
from ..serving.conftest import soon

pytestmark = pytest.mark.integration
WORDS = ["one", "two", "three", "four", "five", "six", "nine"]


def test_of_200_requests_none_is_lost_when_a_replica_is_killed(tmp_path):
    save_both(tmp_path, *tiny_text_model([" ".join(WORDS)], max_target_positions=12))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *f"-m weftformer serve --model {tmp_path} --port {port} --replicas 2".split()]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["WEFT_API_KEY"] = "key"
    with open(tmp_path / "log", "w+") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert server.stdout is not None
            said = [next(server.stdout, "")]
            assert f"http://127.0.0.1:{port}, 2 to 2 replicas" in said[0], said
            url, key = f"http://127.0.0.1:{port}", {"authorization": "Bearer key"}
            with httpx.Client(base_url=url, timeout=120, trust_env=False, headers=key) as client:
                assert client.get("/ready").json()["status"] == "ready" and client.get("/health").status_code == 200
                assert "weft_requests" in client.get("/metrics").text
                refused = client.post("/translate", json={"texts": "one"}, headers={"authorization": "Bearer x"})
                assert refused.status_code == 401
                assert client.post("/translate", json={"texts": [], "beams": 0}).status_code == 422
                assert client.post("/translate", content=b" " * (1 << 19)).status_code == 413
                started = psutil.Process(server.pid).children(recursive=True)
                replicas = [one for one in started if "ServeReplica:weft:replica" in " ".join(one.cmdline())]
                assert len(replicas) == 2

                def ask(number):
                    if number == 60:
                        os.kill(replicas[0].pid, signal.SIGKILL)
                    text = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(5))
                    answer = client.post("/translate", json={"texts": text, "beams": 2})
                    return answer.status_code, text, answer.text

                with ThreadPoolExecutor(8) as clients:
                    answers = list(clients.map(ask, range(200)))
                assert Counter(status for status, *_ in answers) == {200: 200}
                assert len({(text, answer) for _, text, answer in answers}) == len(WORDS)  # the same from each replica
                soon(lambda: client.get("/ready").status_code == 200, 120)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(90)
            finally:
                server.kill()
        log.seek(0)
        assert server.returncode == 0, log.read()[-3000:]

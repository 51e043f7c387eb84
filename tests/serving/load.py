"""Run `weftformer serve` under load: start a server, let clients send requests without pause, and count their answers.

Each answer is compared with the answer to the same input alone. Some clients disconnect before their answer, and some
send malformed requests. Neither must change the answers of other clients, or make the server's memory grow.
"""

import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

TARGETS = (
    "CCOC(C)=O", "CC(=O)NCc1ccccc1", "CS(=O)(=O)NCC", "O=C(O)CNC(C)=O", "O=C(Nc1ccccc1)c1ccc(F)cc1", "CCN(CC)C(=O)c1ccccc1",
    "COc1ccc(NC(C)=O)cc1", "CC(C)OC(=O)c1ccncc1", "O=S(=O)(Nc1ccccc1)c1ccccc1", "CCOc1ccc(C(=O)O)cc1", "CNCc1ccccc1",
    "Clc1ccc(OCc2ccccc2)cc1", "CC(=O)Oc1ccccc1C(=O)O", "O=C(NCCO)c1ccccc1", "Cc1ccc(-c2ccccc2)cc1", "CCCCNC(=O)OC",
)  # fmt: skip
# The share of requests whose clients disconnect early, and the share of malformed requests.
LEAVE, MALFORMED = 0.02, 0.01
MALFORMED_BODIES = (b'{"targets": [', b"\xff\xfe", b'{"targets": NaN}', b'{"texts": 1e999}', b"[" * 5000, b"{}")
_MEGABYTE = 1 << 20


@dataclass
class Figures:
    """The answers that clients received, and the memory of the server."""

    answers: int = 0
    # requests without an answer, with another answer than alone, or with an error
    lost: Counter[str] = field(default_factory=Counter)
    # MB after the warm-up and at the end
    memory: list[float] = field(default_factory=list)


@contextmanager
def served(model: str, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run `weftformer serve` as a process. Yield the address of its endpoint and the process. End it with SIGTERM.

    Raises:
        ValueError: the server did not start, or failed. The message has the end of its log.
    """
    command = [sys.executable, "-m", "weftformer", "serve", "--model", model, "--port", "0", "--log-level", "warning"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r" at (http\S+),", server.stdout.readline())
            if found is None:
                server.wait(10)
                log.seek(0)
                raise ValueError(f"The server did not start: {log.read()[-2000:]}")
            yield found[1], psutil.Process(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                raise
        log.seek(0)
        written = log.read()
    if server.returncode not in (0, -signal.SIGTERM) or "Traceback" in written:
        raise ValueError(f"The server ended with {server.returncode}: {written[-2000:]}")


def content(answer: dict[str, Any]) -> Any:
    """Return the part of an answer that must not depend on the other requests in a batch.

    Scores are not in it, because their last digits may differ.
    """
    return [[candidate["text"] for candidate in plan["candidates"]] for plan in answer["plans"]]


async def ask_once(client: httpx.AsyncClient, url: str, body: bytes, expected: Any, figures: Figures) -> None:
    try:
        response = await client.post(url, content=body)
    except httpx.HTTPError as error:
        figures.lost[type(error).__name__] += 1
        return
    if response.status_code != 200:
        figures.lost[str(response.status_code)] += 1
    elif content(response.json()) != expected:
        figures.lost["another answer than alone"] += 1
    else:
        figures.answers += 1


async def one_client(url: str, seed: int, expected: dict[bytes, Any], until: float, figures: Figures) -> None:
    chance = random.Random(seed)
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(headers=headers, timeout=120, trust_env=False) as client:
        while time.monotonic() < until:
            draw, (body, answer) = chance.random(), chance.choice(list(expected.items()))
            if draw < LEAVE:
                with suppress(asyncio.TimeoutError, httpx.HTTPError):
                    await asyncio.wait_for(client.post(url, content=body), chance.uniform(0.005, 0.2))
            elif draw < LEAVE + MALFORMED:
                response = await client.post(url, content=chance.choice(MALFORMED_BODIES))
                if not 400 <= response.status_code < 500 or "detail" not in response.json():
                    figures.lost[f"malformed, answered {response.status_code}"] += 1
            else:
                await ask_once(client, url, body, answer, figures)


async def crowd(
    url: str, expected: dict[bytes, Any], clients: int, seconds: float, figures: Figures, seed: int = 0
) -> None:
    """Let clients send requests for some seconds, and wait for the last answers."""
    until = time.monotonic() + seconds
    seeds = range(seed * clients, (seed + 1) * clients)
    await asyncio.gather(*(one_client(url, number, expected, until, figures) for number in seeds))


async def answers_alone(url: str, bodies: Sequence[bytes]) -> dict[bytes, Any]:
    """Return the answer to each request when nobody else asks.

    Raises:
        ValueError: the server refused one of the requests.
    """
    expected: dict[bytes, Any] = {}
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        for body in bodies:
            response = await client.post(url, content=body, headers={"content-type": "application/json"})
            if response.status_code != 200:
                raise ValueError(f"{body.decode()} was answered {response.status_code}: {response.text}")
            expected[body] = content(response.json())
    return expected


async def load(
    url: str, process: psutil.Process, expected: dict[bytes, Any], *, clients: int, seconds: float, warm_up: float
) -> Figures:
    """Let clients send requests, first for a warm-up, then for the measurement, which is returned."""
    await crowd(url, expected, clients, warm_up, Figures())
    figures = Figures(memory=[process.memory_info().rss / _MEGABYTE])
    await crowd(url, expected, clients, seconds, figures, seed=1)
    figures.memory.append(process.memory_info().rss / _MEGABYTE)
    return figures


def request_bodies(inputs: Sequence[str], **settings: Any) -> list[bytes]:
    return [json.dumps({"targets": text, "n_steps": 1} | settings).encode() for text in inputs]

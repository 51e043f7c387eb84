"""A load test of `weftformer serve`: start a server, let clients send requests without pause, and count their answers.

Each answer is compared with the answer to the same input alone. Some clients disconnect before their answer, and some
send malformed requests. Neither must change the answers of other clients, or make the server's memory grow.
"""

import argparse
import asyncio
import itertools
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
from pathlib import Path
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
ROW = "| clients | answers | lost or other | answers a second | p50 | p95 | answers a second of processor time |"


@dataclass
class Figures:
    """The answers that clients received, and the time and memory of the server."""

    answers: int = 0
    # requests without an answer, with another answer than alone, or with an error
    lost: Counter[str] = field(default_factory=Counter)
    # requests whose clients disconnected early
    left: int = 0
    # malformed requests that were answered with 4xx
    refused: int = 0
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    # the server's processor time in seconds
    processor: float = 0.0
    # MB after the warm-up, at half of the time, and at the end
    memory: list[float] = field(default_factory=list)

    @property
    def percentiles(self) -> tuple[float, float]:
        """The median and the 95th percentile of the latencies in seconds."""
        ordered = sorted(self.latencies) or [0.0]
        p50, p95 = (ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.95))
        return p50, p95

    def row(self, clients: int) -> str:
        """A row of a table, as `ROW` names its columns."""
        p50, p95 = self.percentiles
        return (
            f"| {clients} | {self.answers} | {self.lost.total()} | {self.answers / self.seconds:.2f} | {p50:.1f} s | {p95:.1f} s "
            f"| {self.answers / self.processor:.2f} |"
        )

    def __str__(self) -> str:
        p50, p95 = self.percentiles
        before, half, after = self.memory
        return (
            f"{self.answers} answers in {self.seconds:.0f} s, {self.answers / self.seconds:.1f} a second; "
            f"{self.lost.total()} lost {dict(self.lost) or ''}\n"
            f"latency p50 {p50:.2f} s, p95 {p95:.2f} s\n"
            f"{self.left} requests left by their clients, {self.refused} malformed ones refused\n"
            f"the server took {self.processor:.0f} s of processor time: {self.answers / self.processor:.1f} answers a second of it\n"
            f"and {before:.1f} MB of memory after the warm-up, {half:.1f} at half of the time, {after:.1f} at the end"
        )


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
    if "translations" in answer:
        return answer["translations"]
    return [[candidate["text"] for candidate in plan["candidates"]] for plan in answer["plans"]]


async def ask_once(client: httpx.AsyncClient, url: str, body: bytes, expected: Any, figures: Figures) -> None:
    start = time.monotonic()
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
        figures.latencies.append(time.monotonic() - start)


async def one_client(url: str, seed: int, expected: dict[bytes, Any], until: float, figures: Figures) -> None:
    chance = random.Random(seed)
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(headers=headers, timeout=120, trust_env=False) as client:
        while time.monotonic() < until:
            draw, (body, answer) = chance.random(), chance.choice(list(expected.items()))
            if draw < LEAVE:
                with suppress(asyncio.TimeoutError, httpx.HTTPError):
                    await asyncio.wait_for(client.post(url, content=body), chance.uniform(0.005, 0.2))
                figures.left += 1
            elif draw < LEAVE + MALFORMED:
                response = await client.post(url, content=chance.choice(MALFORMED_BODIES))
                if 400 <= response.status_code < 500 and "detail" in response.json():
                    figures.refused += 1
                else:
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
    """Let clients send requests, first for a warm-up, then for the measurement.

    Args:
        url: the address of the endpoint.
        process: the server.
        expected: the bodies of the requests, each with its answer ([`answers_alone`]).
        clients: the number of clients at once.
        seconds: the time of the measurement.
        warm_up: the time of the warm-up, in seconds.

    Returns:
        The figures of the measurement.
    """
    await crowd(url, expected, clients, warm_up, Figures())
    figures, start, processor = Figures(), time.monotonic(), sum(process.cpu_times()[:2])
    for part in (0, 1):
        figures.memory.append(process.memory_info().rss / _MEGABYTE)
        await crowd(url, expected, clients, seconds / 2, figures, part)
    figures.memory.append(process.memory_info().rss / _MEGABYTE)
    figures.seconds, figures.processor = time.monotonic() - start, sum(process.cpu_times()[:2]) - processor
    return figures


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.serve_load", description=__doc__)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--inputs", type=Path, help="file of targets or texts, one per line (default: 16 targets)")
    parser.add_argument(
        "--clients",
        type=int,
        nargs="+",
        default=[100],
        help="number of clients at once, or several in turn (default: 100)",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="time of each measurement (default: %(default)s)")
    parser.add_argument(
        "--n-steps", type=int, nargs="+", default=[1], help="steps of the routes, in turn for the targets (default: 1)"
    )
    parser.add_argument("--beams", type=int, default=2, help="number of beams (default: %(default)s)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=40, help="largest number of tokens of an answer (default: %(default)s)"
    )
    return parser


def request_bodies(path: str, inputs: Sequence[str], n_steps: Sequence[int] = (1,), **settings: Any) -> list[bytes]:
    if path != "/plan":
        return [json.dumps({"texts": text} | settings).encode() for text in inputs]
    return [
        json.dumps({"targets": text, "n_steps": steps} | settings).encode()
        for text, steps in zip(inputs, itertools.cycle(n_steps), strict=False)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    inputs: Sequence[str] = TARGETS
    if arguments.inputs is not None:
        inputs = list(itertools.islice(filter(None, arguments.inputs.read_text().splitlines()), 100))
    lost = 0
    with served(arguments.model, "--max-queue", str(2 * max(arguments.clients))) as (url, process):
        path = f"/{url.rpartition('/')[2]}"
        settings = {"beams": arguments.beams, "max_new_tokens": arguments.max_new_tokens}
        expected = asyncio.run(answers_alone(url, request_bodies(path, inputs, arguments.n_steps, **settings)))
        seconds, rows = 60 * arguments.minutes, [ROW, re.sub("[^|]+", " --- ", ROW)]
        for clients in arguments.clients:
            figures = asyncio.run(load(url, process, expected, clients=clients, seconds=seconds, warm_up=seconds / 10))
            print(f"{clients} clients: {figures}", flush=True)
            rows.append(figures.row(clients))
            lost += figures.lost.total()
        state = httpx.get(url.replace(path, "/health"), trust_env=False).json()
    print(f"left in the server: {state['waiting']} waiting, {state['computing']} computed")
    if len(arguments.clients) > 1:
        print("\n".join(rows))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

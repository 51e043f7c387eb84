"""Two processes that communicate by gloo, started once for all tests of a file, because starting takes most time."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ..conftest import save_both, write_backwards
from ..models import tiny_text_model

WORKER = Path(__file__).with_name("worker.py")
LIMIT = 180  # seconds for a start and for a job, on a busy machine


class Pair:
    """Two processes and a folder through which they receive jobs and return results."""

    def __init__(self, folder: Path):
        self.folder, self.number, self.processes = folder, 0, []
        for rank in range(2):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            # the processes meet through a file, because a port could be taken in the meantime
            environment = os.environ | ranks | {"CUDA_VISIBLE_DEVICES": ""}
            with open(folder / f"log-{rank}", "w") as log:
                command = [sys.executable, str(WORKER), str(folder)]
                pipes = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
                self.processes.append(subprocess.Popen(command, text=True, env=environment, **pipes))

    def run(self, name: str, **arguments) -> list:
        """Return the results of both processes for a job, in the order of ranks."""
        self.number += 1
        torch.save(arguments, self.folder / f"{self.number}.pt")
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"number": self.number, "name": name}) + "\n")
            process.stdin.flush()
        results = [self._result(rank) for rank in range(2)]
        errors = [result["error"] for result in results if "error" in result]
        assert not errors, "\n".join(errors)
        return [result["result"] for result in results]

    def _result(self, rank: int):
        end = time.monotonic() + LIMIT
        while not self.is_done(rank):
            died = [process for process in self.processes if process.poll() is not None]
            if died or time.monotonic() > end:
                self.stop()
                logs = "\n".join((self.folder / f"log-{rank}").read_text()[-3000:] for rank in range(2))
                # one of them may have failed while the other waits for it
                results = [self._read(rank) for rank in range(2) if self.is_done(rank)]
                errors = "\n".join(result["error"] for result in results if "error" in result)
                pytest.fail(
                    f"The two processes {'died' if died else f'gave no answer in {LIMIT} s'}:\n{errors}\n{logs}"
                )
            time.sleep(0.02)
        return self._read(rank)

    def _read(self, rank: int):
        return torch.load(self.folder / f"{self.number}-{rank}.pt", weights_only=False)

    def is_done(self, rank: int) -> bool:
        """Return whether a process has finished its last job."""
        return (self.folder / f"{self.number}-{rank}.pt").exists()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    @property
    def is_alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)


@pytest.fixture(scope="module")  # no longer than needed: gloo's threads, a hundred by then, wake up all the time
def pairs(tmp_path_factory):
    """All pairs of a file. There is a second one only if a job has killed the first."""
    started: list[Pair] = []
    yield started
    for pair in started:
        pair.stop()


@pytest.fixture
def pair(pairs, tmp_path_factory) -> Pair:
    if not pairs or not pairs[-1].is_alive:
        pairs.append(Pair(tmp_path_factory.mktemp("pair")))
    return pairs[-1]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Fifty pairs: texts of four letters, and the same read backwards."""
    return write_backwards(tmp_path_factory.mktemp("data") / "pairs.csv")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    model, tokenizer = tiny_text_model(["one two three four five six nine"], max_target_positions=12)
    model.generation_config.max_length = 9
    return save_both(tmp_path_factory.mktemp("texts"), model, tokenizer)

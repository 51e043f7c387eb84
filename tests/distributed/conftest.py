"""Two processes that communicate by gloo, started once for all tests of a file, because starting takes most time."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import save_both, write_backwards
from ..models import tiny_text_model
from .worker import begin

LIMIT = 180  # seconds for a start and a function, on a busy machine


class Pair:
    """Two processes that run the same function at the same time. They are started when they are needed."""

    def __init__(self, folder: Path):
        self.folder, self.number = folder, 0
        self.pools: list[Any] = []

    def run(self, function: Callable, **arguments) -> list:
        """Return the results of both processes, in the order of ranks."""
        if not self.pools:
            self.number += 1
            spawn = multiprocessing.get_context("spawn")
            self.pools = [spawn.Pool(1, begin, (rank, self.folder / f"store-{self.number}")) for rank in range(2)]
        results = [pool.apply_async(function, (), arguments) for pool in self.pools]
        for result in results:
            result.wait(LIMIT)
        try:
            # of one that failed first: the other may wait for it
            return [result.get(0) for result in sorted(results, key=lambda result: not result.ready())]
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for pool in self.pools:
            pool.terminate()
        self.pools = []


@pytest.fixture(scope="module")  # no longer than needed: gloo's threads, a hundred by then, wake up all the time
def pair(tmp_path_factory):
    pair = Pair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Fifty pairs: texts of four letters, and the same read backwards."""
    return write_backwards(tmp_path_factory.mktemp("data") / "pairs.csv")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    model, tokenizer = tiny_text_model(["one two three four five six nine"], max_target_positions=12)
    model.generation_config.max_length = 9
    return save_both(tmp_path_factory.mktemp("texts"), model, tokenizer)

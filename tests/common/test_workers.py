"""Worker processes: items that hang, and processes that are killed."""

import os
import time

import pytest

from weftformer.common import workers
from weftformer.common.workers import WorkerProcesses


class Work:
    """Doubles numbers. It hangs at some of them, and is killed at others."""

    def __init__(self, hangs=(), killed=()):
        self.hangs, self.killed = hangs, killed

    def double(self, number: int) -> list[int]:
        if number in self.killed:
            os._exit(1)
        if number in self.hangs:
            time.sleep(60)
        return [2 * number]


class NeverBegins(Work):
    def __setstate__(self, state):
        os._exit(1)


def test_one_process_reads_items_as_they_are_needed(monkeypatch):
    monkeypatch.setattr(workers, "_BATCH", 4)
    items = iter(range(100))
    assert next(WorkerProcesses(Work(), 1).map(Work.double, items)) == 0 and next(items) == 8


@pytest.mark.parametrize("count", [1, 2])
def test_an_item_that_hangs_is_given_up_and_no_other(monkeypatch, count):
    monkeypatch.setattr(workers, "_BATCH", 4)
    hangs = (5, 6, 17)
    with WorkerProcesses(Work(hangs), count, seconds=0.5) as processes:
        found = list(processes.map(Work.double, range(20)))
    assert found == [None if number in hangs else 2 * number for number in range(20)]


def test_a_process_that_ends_while_the_results_are_used_loses_nothing(monkeypatch):
    monkeypatch.setattr(workers, "_BATCH", 4)
    with WorkerProcesses(Work(hangs=(18,)), 2, seconds=0.5) as processes:
        results = processes.map(Work.double, range(60))
        found = [next(results)]
        time.sleep(4.0)  # the pool breaks before the next batch is submitted
        found += results
    assert found == [None if number == 18 else 2 * number for number in range(60)]


def test_a_killed_process_is_an_error(monkeypatch):
    monkeypatch.setattr(workers, "_BATCH", 4)
    for seconds in (None, 30.0):
        raises = pytest.raises(ChildProcessError, match="a worker process was killed")
        with WorkerProcesses(Work(killed=(5,)), 2, seconds) as processes, raises:
            list(processes.map(Work.double, range(20)))


def test_workers_that_end_before_more_items_come_are_an_error(monkeypatch):
    monkeypatch.setattr(workers, "_BATCH", 4)

    def items():
        yield from range(12)
        while processes._pool.active:
            time.sleep(0.01)
        yield from range(12, 40)

    raises = pytest.raises(ChildProcessError, match="a worker process was killed")
    with WorkerProcesses(NeverBegins(), 2) as processes, raises:
        list(processes.map(Work.double, items()))

import threading
from concurrent.futures import wait
from dataclasses import dataclass

import pytest

from weftformer.inference.batching import Batcher, Failed, QueueFull, Stopping, Unwanted

from .conftest import soon


@dataclass(frozen=True)
class Work:
    number: int
    settings: str = "a"


class Recorder:
    """Computes squares; holds the first batch until `go`, so that others can come to wait behind it."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def __call__(self, works, is_wanted):
        self.batches.append([work.number for work in works])
        while not self.go.wait(0.005):
            if not is_wanted():
                raise Unwanted
        for index, work in enumerate(works):
            if work.number < 0:
                raise RuntimeError("negative")
            yield index, work.number**2


@pytest.fixture
def compute():
    return Recorder()


@pytest.fixture
def batcher(compute):
    made = Batcher(compute, max_batch_size=3, max_wait_s=0.0, max_queue=6)
    made.start()
    yield made
    made.stop()
    compute.go.set()
    made.join(20)


def answers(items):
    done = wait([item.answer for item in items], timeout=20)
    assert not done.not_done
    return [item.answer.result() for item in items]


def held(batcher, compute, number=0):
    """A batch that is computed until `compute.go`."""
    items = batcher.submit([Work(number)])
    soon(lambda: compute.batches)
    return items


def test_what_waits_is_computed_together_the_oldest_first_by_settings(batcher, compute):
    items = held(batcher, compute)
    items += batcher.submit([Work(1), Work(2, "b"), Work(3)])
    items += batcher.submit([Work(4), Work(5), Work(6, "b")])
    assert batcher.waiting == 6 and batcher.computing == 1
    compute.go.set()
    assert answers(items) == [0, 1, 4, 9, 16, 25, 36]
    assert compute.batches == [[0], [1, 3, 4], [2, 6], [5]]
    soon(lambda: batcher.computing == 0)


def test_the_first_waits_for_others_a_while(compute):
    compute.go.set()
    batcher = Batcher(compute, max_batch_size=2, max_wait_s=20.0, max_queue=6)
    batcher.start()
    items = batcher.submit([Work(1)])
    with pytest.raises(TimeoutError):
        items[0].answer.result(0.05)
    items += batcher.submit([Work(2, "b"), Work(3)])
    assert items[0].answer.result(10) == 1 and compute.batches == [[1, 3]]
    batcher.stop()
    batcher.join(10)


def test_a_request_that_does_not_fit_is_refused_as_a_whole(batcher, compute):
    items = held(batcher, compute) + batcher.submit([Work(number) for number in range(1, 6)])
    with pytest.raises(QueueFull):
        batcher.submit([Work(6), Work(7)])
    assert batcher.waiting == 5
    items += batcher.submit([Work(6)])
    compute.go.set()
    assert answers(items) == [number**2 for number in range(7)]


def test_what_is_abandoned_leaves_the_queue(batcher, compute):
    items = held(batcher, compute)
    gone, kept = batcher.submit([Work(1)]), batcher.submit([Work(2)])
    batcher.abandon(gone)
    assert batcher.waiting == 1
    compute.go.set()
    assert answers(items + kept) == [0, 4] and compute.batches == [[0], [2]]


def test_a_batch_ends_early_once_all_of_it_is_abandoned(batcher, compute):
    held(batcher, compute)
    first, second = batcher.submit([Work(1)]), batcher.submit([Work(2)])
    compute.go.set()
    answers(first + second)
    compute.go.clear()
    del compute.batches[:]
    (one,) = held(batcher, compute, 3)
    batcher.abandon([one])
    soon(lambda: batcher.computing == 0)
    assert not one.answer.done() and not compute.go.is_set()


def test_a_batch_goes_on_as_long_as_one_is_wanted(batcher, compute):
    held(batcher, compute)
    one, two = batcher.submit([Work(1), Work(2)])
    compute.go.set()
    soon(lambda: batcher.computing == 0)
    compute.go.clear()
    del compute.batches[:]
    one, two = batcher.submit([Work(1), Work(2)])
    soon(lambda: compute.batches)
    batcher.abandon([one])
    with pytest.raises(TimeoutError):
        two.answer.result(0.05)
    compute.go.set()
    assert two.answer.result(10) == 4


def test_one_that_fails_does_not_harm_the_others_nor_the_worker(batcher, compute, caplog):
    held(batcher, compute)
    good, bad, other = batcher.submit([Work(1), Work(-1), Work(2)])
    compute.go.set()
    assert good.answer.result(10) == 1 and other.answer.result(10) == 4
    error = bad.answer.exception(10)
    assert type(error) is Failed and str(error) == "RuntimeError"
    assert error.__traceback__ is None and error.__context__ is None  # frames would keep tensors
    assert "negative" in caplog.text
    assert compute.batches[1:] == [[1, -1, 2], [-1], [2]]  # the first had its answer
    assert answers(batcher.submit([Work(5)])) == [25]


def test_stopping_finishes_what_is_computed_and_nothing_else(batcher, compute):
    (running,), (waiting,) = held(batcher, compute, 2), batcher.submit([Work(3)])
    batcher.stop()
    assert type(waiting.answer.exception(10)) is Stopping and not batcher.is_ready
    with pytest.raises(Stopping):
        batcher.submit([Work(4)])
    compute.go.set()
    assert running.answer.result(10) == 4
    batcher.join(10)
    assert compute.batches == [[2]]

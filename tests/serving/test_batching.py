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


class Countdown:
    """A pool in which an input of number n takes n steps; -1 fails in its first step, -2 when it joins."""

    def __init__(self, pools):
        self.pools, self.left, self.removed = pools, {}, []

    def __len__(self):
        return len(self.left)

    def add(self, key, work):
        if work.number == -2:
            raise RuntimeError("no room")
        self.left[key] = [work.number, work.number**2]

    def remove(self, key):
        self.removed.append(self.left.pop(key)[1])

    def step(self):
        self.pools.steps.append(sorted(square for _, square in self.left.values()))
        self.pools.go.wait(20)
        done = []
        for key, state in list(self.left.items()):
            if state[0] == -1:
                raise RuntimeError("negative")
            state[0] -= 1
            if state[0] <= 0:
                done.append((key, self.left.pop(key)[1]))
        return done


class Countdowns:
    """Pools for settings other than "batch"."""

    def __init__(self):
        self.steps, self.made, self.go = [], [], threading.Event()

    def pool_key(self, work):
        return None if work.settings == "batch" else work.settings

    def open_pool(self, key):
        self.made.append(Countdown(self))
        return self.made[-1]


@pytest.fixture
def pools():
    return Countdowns()


@pytest.fixture
def pooling(compute, pools):
    compute.go.set()
    made = Batcher(compute, max_batch_size=3, max_wait_s=0.0, max_queue=6, pools=pools)
    made.start()
    yield made
    made.stop()
    pools.go.set()
    made.join(20)


def begun(pooling, pools, number=5, settings="a"):
    """An input whose first step waits for `pools.go`."""
    items = pooling.submit([Work(number, settings)])
    soon(lambda: pools.steps)
    return items


def test_inputs_join_and_leave_between_steps(pooling, pools):
    long = begun(pooling, pools)
    others = pooling.submit([Work(1), Work(2, "b"), Work(3)])
    assert pooling.computing == 1 and pooling.waiting == 3
    pools.go.set()
    assert answers(long + others) == [25, 1, 4, 9]
    # at most three at once, the oldest first: 9 joins when 1 has left; the pools take turns
    assert pools.steps[:4] == [[25], [1, 25], [4], [9, 25]]
    soon(lambda: pooling.computing == 0)
    assert len(pools.made) == 2


def test_batches_have_their_turn_beside_pools(pooling, pools, compute):
    long = begun(pooling, pools)
    items = pooling.submit([Work(7, "batch"), Work(2), Work(8, "batch")])
    pools.go.set()
    assert answers(long + items) == [25, 49, 4, 64]
    assert compute.batches == [[7, 8]]


def test_one_that_fails_in_a_pool_does_not_harm_the_others(pooling, pools, compute, caplog):
    long = begun(pooling, pools)
    bad, good = pooling.submit([Work(-1), Work(2)])
    pools.go.set()
    assert answers([*long, good]) == [25, 4]
    error = bad.answer.exception(10)
    assert type(error) is Failed and str(error) == "RuntimeError" and error.__traceback__ is None
    assert "negative" in caplog.text and sorted(compute.batches) == [[-1], [2], [5]]
    assert answers(pooling.submit([Work(3)])) == [9]
    (none,) = pooling.submit([Work(-2)])
    assert type(none.answer.exception(10)) is Failed


def test_what_is_abandoned_leaves_its_pool(pooling, pools):
    (long,) = begun(pooling, pools, 10**9)
    other = pooling.submit([Work(3)])
    pooling.abandon([long])
    pools.go.set()
    assert answers(other) == [9] and not long.answer.done()
    soon(lambda: pooling.computing == 0)
    assert pools.made[0].removed == [10**18]


def test_stopping_finishes_what_is_in_pools(pooling, pools):
    (long,) = begun(pooling, pools)
    waiting = pooling.submit([Work(1)])
    pooling.stop()
    assert type(waiting[0].answer.exception(10)) is Stopping and not pooling.is_ready
    pools.go.set()
    assert long.answer.result(10) == 25
    pooling.join(10)
    assert len(pools.steps) == 5

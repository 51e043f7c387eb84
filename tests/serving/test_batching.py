"""The queue and its pools, for pools that count down."""

import threading
from concurrent.futures import wait
from dataclasses import dataclass

import pytest

from weftformer.serving.batching import Batcher, Failed, QueueFull

from .conftest import soon


@dataclass(frozen=True)
class Input:
    number: int
    settings: str = "a"
    rows: int = 1


class Countdown:
    """A pool in which an input of number n takes n steps; -1 and -3 fail in their first step, -2 when it joins."""

    def __init__(self, pools, watch):
        self.pools, self.watch, self.left = pools, watch, {}

    def add(self, key, input):
        if input.number == -2:
            raise RuntimeError("no space")
        self.left[key] = [input.number, input.number**2]

    def remove(self, key):
        del self.left[key]

    def step(self):
        self.pools.steps.append(sorted(square for _, square in self.left.values()))
        while not self.pools.go.wait(0.005):
            self.watch()
        done = []
        for key, state in list(self.left.items()):
            if state[0] == -1:
                raise RuntimeError("negative")
            if state[0] == -3:  # as Rust code panics
                raise type("PanicException", (BaseException,), {})
            state[0] -= 1
            if state[0] <= 0:
                done.append((key, self.left.pop(key)[1]))
        return done


class Countdowns:
    """Makes pools whose steps wait for `go`."""

    def __init__(self):
        self.steps, self.made, self.go = [], [], threading.Event()

    def pool_key(self, input):
        return input.settings

    def rows(self, input):
        return input.rows

    def open_pool(self, key, watch):
        self.made.append(Countdown(self, watch))
        return self.made[-1]


@pytest.fixture
def pools():
    return Countdowns()


@pytest.fixture
def batcher(pools):
    instance = Batcher(pools, max_batch_size=6, max_queue=6)
    yield instance
    instance.stop()
    pools.go.set()
    instance.join(20)


def answers(items):
    done = wait([item.answer for item in items], timeout=20)
    assert not done.not_done
    return [item.answer.result() for item in items]


def begun(batcher, pools, number=5, settings="a"):
    """Submit an input whose first step waits for `pools.go`, and wait until this step has begun."""
    before = len(pools.steps)
    items = batcher.submit([Input(number, settings)])
    soon(lambda: len(pools.steps) > before)
    return items


def test_inputs_join_and_leave_between_steps(batcher, pools):
    long = begun(batcher, pools)
    joiners = batcher.submit([Input(1), Input(2), Input(3), Input(4)])
    assert [batcher.computing, batcher.waiting] == [4, 1]  # one request has at most half of the capacity
    with pytest.raises(QueueFull):  # all of its inputs or none
        batcher.submit([Input(6)] * 6)
    pools.go.set()
    assert answers(long + joiners) == [25, 1, 4, 9, 16]
    assert pools.steps[:3] == [[25], [1, 4, 9, 25], [4, 9, 16, 25]]
    assert answers(batcher.submit([Input(1), Input(2, "b")])) == [1, 4]
    soon(lambda: batcher.computing == 0)
    assert len(pools.made) == 3  # a pool that is empty is closed


def test_requests_begin_in_turn(pools, batcher):
    first = batcher.submit([Input(1, "first") for _ in range(6)])
    second = batcher.submit([Input(1, "second")])
    third = batcher.submit([Input(2, "third"), Input(3, "third")])
    assert [batcher.waiting, batcher.computing] == [3, 6]
    pools.go.set()
    assert answers([*second, *third, *first]) == [1, 4, 9] + [1] * 6


def test_a_wide_input_waits_for_capacity_and_is_not_overtaken(pools):
    batcher, ended = Batcher(pools, max_batch_size=24, max_queue=300), []
    items = batcher.submit([Input(1, rows=100)] * 2)  # the second would take more than half of 240 rows
    assert [batcher.waiting, batcher.computing] == [1, 1]
    inputs = [Input(1, rows=60)] * 10 + [Input(1, rows=230)] + [Input(1, rows=10)] * 20
    items += [item for input in inputs for item in batcher.submit([input])]
    for item in items:
        item.answer.add_done_callback(lambda _, item=item: ended.append(item.rows))
    pools.go.set()
    assert answers(items) == [1] * 33
    soon(lambda: len(ended) == 33)
    assert ended.index(230) < 13
    batcher.stop()
    batcher.join(20)


def test_an_abandoned_input_leaves_the_queue_or_its_pool(batcher, pools):
    (long,) = begun(batcher, pools, 10**9)
    gone, survivor = batcher.submit([Input(1)]), batcher.submit([Input(3)])
    batcher.abandon([*gone, long])
    pools.go.set()
    assert answers(survivor) == [9]
    assert not long.answer.done() and not gone[0].answer.done()
    soon(lambda: batcher.computing == 0)
    assert all(1 not in step for step in pools.steps)


def test_an_input_that_fails_does_not_harm_the_others(batcher, pools, caplog):
    long = begun(batcher, pools)
    bad, good = batcher.submit([Input(-1), Input(2)])
    pools.go.set()
    assert answers([*long, good]) == [25, 4]
    error = bad.answer.exception(10)
    assert type(error) is Failed and str(error) == "RuntimeError"
    assert error.__traceback__ is None and error.__context__ is None  # frames would keep tensors
    assert "negative" in caplog.text
    for number in (-2, -3):
        (none,) = batcher.submit([Input(number)])
        assert type(none.answer.exception(10)) is Failed
    assert answers(batcher.submit([Input(3)])) == [9]


def test_a_step_without_end_shows_until_it_ends(pools):
    batcher = Batcher(pools, max_batch_size=6, max_queue=6, max_seconds=0.05)
    assert batcher.status == "ready"
    items = batcher.submit([Input(1)])
    soon(lambda: batcher.status == "stuck")
    pools.go.set()
    assert answers(items) == [1]
    soon(lambda: batcher.status == "ready")
    batcher.stop()
    assert batcher.status == "stopping"

"""The queue and its pools, for pools that count down."""

import threading
from concurrent.futures import wait
from dataclasses import dataclass

import pytest

from weftformer.inference.batching import Batcher, Failed, QueueFull, Stopping

from .conftest import soon


@dataclass(frozen=True)
class Work:
    number: int
    settings: str = "a"
    rows: int = 1


class Countdown:
    """A pool in which an input of number n takes n steps; -1 fails in its first step, -2 when it joins."""

    def __init__(self, pools, watch):
        self.pools, self.watch, self.left, self.removed = pools, watch, {}, []

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
        while not self.pools.go.wait(0.005):
            self.watch()
        done = []
        for key, state in list(self.left.items()):
            if state[0] == -1:
                raise RuntimeError("negative")
            state[0] -= 1
            if state[0] <= 0:
                done.append((key, self.left.pop(key)[1]))
        return done


class Countdowns:
    """Makes pools whose steps wait for `go`."""

    def __init__(self):
        self.steps, self.made, self.go = [], [], threading.Event()

    def pool_key(self, work):
        return work.settings

    def rows(self, work):
        return work.rows

    def open_pool(self, key, watch):
        self.made.append(Countdown(self, watch))
        return self.made[-1]


@pytest.fixture
def pools():
    return Countdowns()


@pytest.fixture
def batcher(pools):
    made = Batcher(pools, max_batch_size=6, max_queue=6)
    yield made
    made.stop()
    pools.go.set()
    made.join(20)


def answers(items):
    done = wait([item.answer for item in items], timeout=20)
    assert not done.not_done
    return [item.answer.result() for item in items]


def begun(batcher, pools, number=5, settings="a"):
    """Submit an input whose first step waits for `pools.go`, and wait until this step has begun."""
    before = len(pools.steps)
    items = batcher.submit([Work(number, settings)])
    soon(lambda: len(pools.steps) > before)
    return items


def test_inputs_join_and_leave_between_steps(batcher, pools):
    long = begun(batcher, pools)
    others = batcher.submit([Work(1), Work(2), Work(3)])
    assert batcher.computing == 3 and batcher.waiting == 1
    pools.go.set()
    assert answers(long + others) == [25, 1, 4, 9]
    # one request has at most half of what is free: 9 joins when 1 has left
    assert pools.steps[:3] == [[25], [1, 4, 25], [4, 9, 25]]
    batcher.join(10)
    assert answers(batcher.submit([Work(1), Work(2, "b")])) == [1, 4]
    soon(lambda: batcher.computing == 0)
    assert len(pools.made) == 3  # a pool that is empty is closed


def test_a_request_that_does_not_fit_is_refused_as_a_whole(batcher, pools):
    items = begun(batcher, pools) + batcher.submit([Work(number) for number in range(1, 6)])
    with pytest.raises(QueueFull):
        batcher.submit([Work(6)] * 4)
    assert batcher.waiting == 3
    items += batcher.submit([Work(6)])
    pools.go.set()
    assert answers(items) == [25, 1, 4, 9, 16, 25, 36]


def test_requests_begin_in_turn(pools, batcher):
    first = batcher.submit([Work(1, "first") for _ in range(6)])
    begun(batcher, pools, 1, "second")
    assert [batcher.waiting, batcher.computing] == [3, 4]
    third = batcher.submit([Work(2, "third"), Work(3, "third")])
    pools.go.set()
    assert answers(third) == [4, 9] and answers(first) == [1] * 6


def test_wide_inputs_wait_for_room_and_narrow_ones_do_not(pools, batcher):
    wide = batcher.submit([Work(1, rows=100)] * 2)  # the second would take more than half of 240 rows
    other = batcher.submit([Work(1, rows=150)])
    narrow = [batcher.submit([Work(1, rows=10)]) for _ in range(2)]
    assert [batcher.waiting, batcher.computing] == [2, 3]
    pools.go.set()
    assert answers([*wide, *other, *narrow[0], *narrow[1]]) == [1] * 5


@pytest.mark.parametrize("rows", [60, 10])
def test_many_narrow_inputs_do_not_keep_a_wide_one_waiting(pools, rows):
    batcher, ended = Batcher(pools, max_batch_size=24, max_queue=300), []
    works = [Work(1, rows=rows)] * 24 + [Work(1, rows=100)] + [Work(1, rows=rows)] * 200
    items = [item for work in works for item in batcher.submit([work])]
    for item in items:
        item.answer.add_done_callback(lambda _, item=item: ended.append(item.rows))
    pools.go.set()
    assert answers(items) == [1] * 225
    soon(lambda: len(ended) == 225)
    assert ended.index(100) < 100
    batcher.stop()
    batcher.join(20)


def test_a_step_without_end_lets_the_others_compute(pools, batcher):
    """A search from beginning to end is one step; between calls of the model it lets other pools have their turn."""

    class Free(Countdown):
        def step(self):
            return [(key, "free") for key in [*self.left] if self.left.pop(key)]

    endless, pools.open_pool = begun(batcher, pools), lambda key, watch: Free(pools, watch)
    assert answers(batcher.submit([Work(1, "b")])) == ["free"]
    assert not endless[0].answer.done()


def test_giving_up_ends_what_is_computed(pools, batcher):
    (endless,) = begun(batcher, pools)
    batcher.stop()
    batcher.join(0.05)
    assert batcher.computing == 1
    batcher.give_up()
    assert type(endless.answer.exception(10)) is Stopping
    batcher.join(10)
    assert batcher.computing == 0


def test_what_is_abandoned_leaves_the_queue_and_its_pool(batcher, pools):
    (long,) = begun(batcher, pools, 10**9)
    gone, kept = batcher.submit([Work(1)]), batcher.submit([Work(3)])
    batcher.abandon([*gone, long])
    pools.go.set()
    assert answers(kept) == [9]
    assert not long.answer.done() and not gone[0].answer.done()
    soon(lambda: batcher.computing == 0)
    assert all(1 not in step for step in pools.steps)


def test_a_step_ends_once_nobody_wants_any_of_it(batcher, pools):
    first, second = begun(batcher, pools, 4), batcher.submit([Work(2)])
    batcher.abandon(first)
    soon(lambda: [4] in pools.steps)  # the step of the first has ended though `go` is not set
    assert not first[0].answer.done()
    pools.go.set()
    assert answers(second) == [4]
    pools.go.clear()
    one, two = batcher.submit([Work(1), Work(2)])
    soon(lambda: [1, 4] in pools.steps)
    batcher.abandon([one])
    with pytest.raises(TimeoutError):
        two.answer.result(0.05)
    pools.go.set()
    assert two.answer.result(10) == 4


def test_one_that_fails_does_not_harm_the_others_nor_the_worker(batcher, pools, caplog):
    long = begun(batcher, pools)
    bad, good = batcher.submit([Work(-1), Work(2)])
    pools.go.set()
    assert answers([*long, good]) == [25, 4]
    error = bad.answer.exception(10)
    assert type(error) is Failed and str(error) == "RuntimeError"
    assert error.__traceback__ is None and error.__context__ is None  # frames would keep tensors
    assert "negative" in caplog.text
    assert answers(batcher.submit([Work(3)])) == [9]
    (none,) = batcher.submit([Work(-2)])
    assert type(none.answer.exception(10)) is Failed


def test_stopping_finishes_what_is_computed_and_nothing_else(batcher, pools):
    (long,) = begun(batcher, pools)
    *computed, waiting = batcher.submit([Work(1), Work(2), Work(3)])
    batcher.stop()
    assert type(waiting.answer.exception(10)) is Stopping and not batcher.is_ready
    with pytest.raises(Stopping):
        batcher.submit([Work(4)])
    pools.go.set()
    assert answers([long, *computed]) == [25, 1, 4]
    batcher.join(10)
    assert len(pools.steps) == 5

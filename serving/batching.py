"""Queues of the inputs of requests: a [`Batcher`] for a model, and [`Threads`] for functions.

A pool is a running computation that inputs join and leave between steps. Inputs with the same key share a pool.
Requests share the model: inputs begin in turn, one of each request, and pools compute for the same time.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import BoundedSemaphore, Condition, Thread
from typing import Any, Literal, Protocol

_logger = logging.getLogger(__name__)

# The largest number of rows that are computed at once. A wider input is computed alone.
ROWS = 240


class Pool(Protocol):
    """A running computation."""

    def add(self, key: Hashable, input: Any) -> None:
        """Add an input under a key of the caller."""

    def remove(self, key: Hashable) -> None:
        """Remove an input that is no longer wanted."""

    def step(self) -> Iterable[tuple[Any, Any]]:
        """Take a step. Return the keys and answers of the finished inputs, which have left the pool."""


class Pools(Protocol):
    """Makes pools."""

    def pool_key(self, input: Any) -> Hashable:
        """Return the key of the pool for an input."""

    def rows(self, input: Any) -> int:
        """Return the number of rows of an input in the calls of the model."""

    def open_pool(self, key: Any, watch: Callable[[], None]) -> Pool:
        """Return an empty pool for inputs of this key.

        It calls `watch` before each call of the model, and does not catch [`Unwanted`].
        """


class Unwanted(Exception):
    """The clients of the requests being computed have disconnected."""


class QueueFull(Exception):
    """The queue has no space for the inputs of a request."""

    def __init__(self, inputs: int, waiting: int):
        super().__init__(
            f"The queue has no space for this request (inputs: {inputs}, waiting: {waiting}): try again later."
        )


class Stopping(Exception):
    """No new inputs are accepted."""


class Failed(Exception):
    """The model failed on an input. The log has the cause."""


@dataclass(eq=False)
class _Request:
    """The queued inputs of a request, and the numbers of its running inputs and of their rows."""

    waiting: deque[Item] = field(default_factory=deque)
    computing: int = 0
    rows: int = 0


@dataclass(eq=False)
class Item:
    """An input in the queue or in a pool. `answer` will have its result, unless the input is abandoned."""

    input: Any
    rows: int = 1
    request: _Request = field(default_factory=_Request)
    answer: Future[Any] = field(default_factory=Future)
    is_wanted: bool = True


@dataclass(eq=False)
class _RunningPool:
    """A pool with its inputs, those that join before its next step, and the time of its steps in seconds."""

    key: Hashable
    seconds: float
    pool: Pool | None = None
    members: list[Item] = field(default_factory=list)
    joining: list[Item] = field(default_factory=list)


class Queue(Protocol):
    """Computes the inputs of requests."""

    def submit(self, inputs: Sequence[Any]) -> list[Item]:
        """Put the inputs of a request into the queue: all of them, or none if an error is raised.

        Raises:
            QueueFull: they do not fit.
            Stopping: no new inputs are accepted.
        """

    def abandon(self, items: Iterable[Item]) -> None:
        """Remove inputs, whose answers are no longer needed."""


class Threads:
    """A queue of requests with one input, which threads of its own compute.

    A computation that has begun cannot be ended. The process ends without it.

    Args:
        compute: returns the answer to an input, or raises an error.
        number: the number of threads.
        max_queue: the largest number of waiting inputs.
        max_seconds: the time of a computation after which its thread is no longer available to others.
    """

    def __init__(self, compute: Callable[[Any], Any], number: int, max_queue: int, max_seconds: float = math.inf):
        self._compute, self._max_queue, self._max_seconds = compute, max_queue, max_seconds
        self._places, self._waiting = BoundedSemaphore(number + max_queue), SimpleQueue[Item]()
        self._begun = [math.inf] * number
        for place in range(number):
            Thread(target=self._run, args=(place,), name="weft-threads", daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether all threads compute what no request waits for any more."""
        return max(self._begun) < time.monotonic() - self._max_seconds

    def submit(self, inputs: Sequence[Any]) -> list[Item]:
        (input,) = inputs
        if not self._places.acquire(blocking=False):
            raise QueueFull(1, self._max_queue)
        self._waiting.put(item := Item(input))
        return [item]

    def _run(self, place: int) -> None:
        while True:
            item = self._waiting.get()
            if item.answer.set_running_or_notify_cancel():
                self._begun[place] = time.monotonic()
                try:
                    item.answer.set_result(self._compute(item.input))
                except BaseException as error:  # also panics, which would end the thread
                    item.answer.set_exception(error)
                self._begun[place] = math.inf
            del item  # it keeps the answer
            self._places.release()

    def abandon(self, items: Iterable[Item]) -> None:
        for item in items:
            item.answer.cancel()


class Batcher:
    """Computes the inputs of requests.

    A request gets at most half of the capacity, so that the next request can begin.

    Args:
        pools: makes pools.
        max_batch_size: the largest number of inputs in all pools together.
        max_queue: the largest number of waiting inputs.
        max_seconds: the time of a step after which the batcher is not ready.
    """

    def __init__(self, pools: Pools, *, max_batch_size: int, max_queue: int, max_seconds: float = math.inf):
        self._pools, self._max_batch_size, self._max_queue = pools, max_batch_size, max_queue
        self._max_seconds, self._step_begun = max_seconds, math.inf
        self._requests: deque[_Request] = deque()  # those with waiting inputs; the first is next
        self._changed = Condition()
        self._open: dict[Hashable, _RunningPool] = {}
        self._is_stopping = False
        self.computing = self._rows = 0
        self._thread = Thread(target=self._run, name="weft-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting inputs."""
        with self._changed:
            return sum(len(request.waiting) for request in self._requests)

    @property
    def status(self) -> Literal["ready", "stopping", "stuck"]:
        """`"stopping"` if no new inputs are accepted, `"stuck"` if a step takes so long that no input is answered."""
        if self._is_stopping:
            return "stopping"
        return "stuck" if time.monotonic() - self._step_begun > self._max_seconds else "ready"

    def submit(self, inputs: Sequence[Any]) -> list[Item]:
        """Put the inputs of a request into the queue, as in [`Queue`]. It is closed after [`stop`]."""
        with self._changed:
            if self._is_stopping:
                raise Stopping
            if self.waiting + len(inputs) > self._max_queue:
                raise QueueFull(len(inputs), self.waiting)
            request = _Request()
            items = [Item(input, self._pools.rows(input), request) for input in inputs]
            request.waiting.extend(items)
            self._requests.append(request)
            self._begin()
            return items

    def abandon(self, items: Iterable[Item]) -> None:
        """Remove inputs from the queue. Those in a pool leave it before its next step."""
        with self._changed:
            for item in items:
                item.is_wanted = False
                if item in item.request.waiting:
                    item.request.waiting.remove(item)
            self._begin()

    def stop(self) -> None:
        """Accept no more inputs. Queued inputs fail with [`Stopping`]."""
        with self._changed:
            self._is_stopping = True
            for request in self._requests:
                for item in request.waiting:
                    if item.answer.set_running_or_notify_cancel():
                        item.answer.set_exception(Stopping())
            self._requests.clear()
            self._changed.notify_all()

    def give_up(self) -> None:
        """Let the inputs in pools fail with [`Stopping`]."""
        with self._changed:
            for open_pool in self._open.values():
                for item in (*open_pool.members, *open_pool.joining):
                    if item.is_wanted:
                        item.is_wanted = False
                        item.answer.set_exception(Stopping())

    def join(self, timeout: float | None = None) -> None:
        """Wait until the pools are empty, after [`stop`]."""
        self._thread.join(timeout)

    def _begin(self) -> None:
        """Let inputs join pools, one of each request in turn. An input keeps its turn until it fits."""
        num_refused = 0
        while num_refused < len(self._requests):
            request = self._requests[0]
            if not request.waiting:
                self._requests.popleft()
                continue
            rows = request.waiting[0].rows
            has_share = 2 * request.computing < self._max_batch_size and 2 * (request.rows + rows) <= ROWS
            if not has_share and request.computing:
                num_refused += 1
            elif self.computing and (self.computing == self._max_batch_size or self._rows + rows > ROWS):
                return
            else:
                self._join(request.waiting.popleft())
                num_refused = 0
            self._requests.rotate(-1)

    def _join(self, item: Item) -> None:
        # after this call a future cannot be cancelled
        if not item.answer.set_running_or_notify_cancel():
            return
        self._count(item, 1)
        key = self._pools.pool_key(item.input)
        if key not in self._open:
            self._open[key] = _RunningPool(key, min((running.seconds for running in self._open.values()), default=0.0))
        self._open[key].joining.append(item)
        self._changed.notify_all()

    def _count(self, item: Item, change: int) -> None:
        self.computing += change
        self._rows += change * item.rows
        item.request.computing += change
        item.request.rows += change * item.rows

    def _run(self) -> None:
        """Let the pools take steps for the same time each, until the batcher is stopped and they are empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._open or self._is_stopping)
                if not self._open:
                    return
                running = min(self._open.values(), key=lambda running: running.seconds)
            start = self._step_begun = time.monotonic()
            self._step(running)
            self._step_begun = math.inf
            running.seconds += time.monotonic() - start

    def _step(self, running: _RunningPool) -> None:
        with self._changed:
            joining, running.joining = running.joining, []
            running.members += joining
            if not running.members:
                del self._open[running.key]
                return
        try:
            if running.pool is None:
                running.pool = self._pools.open_pool(running.key, partial(_watch, running.members))
            for item in joining:
                running.pool.add(item, item.input)
            for item in [item for item in running.members if not item.is_wanted]:
                running.pool.remove(item)
                self._leave(running, item)
            for item, answer in running.pool.step():
                self._leave(running, item, answer)
        except BaseException as error:  # also panics, which would end the thread
            if not isinstance(error, Unwanted):
                _logger.exception("a step of %d inputs failed", len(running.members))
            running.pool = None
            for item in list(running.members):  # any input may be the cause, so each is computed alone
                self._alone(running, item)

    def _leave(self, running: _RunningPool, item: Item, answer: Any = None, error: Exception | None = None) -> None:
        """Remove an input from a pool, answer it if it is wanted, and let others begin."""
        with self._changed:
            running.members.remove(item)
            self._count(item, -1)
            if item.is_wanted and error is not None:
                item.answer.set_exception(error)
            elif item.is_wanted:
                item.answer.set_result(answer)
            self._begin()

    def _alone(self, running: _RunningPool, item: Item) -> None:
        """Compute an input in a pool of its own."""
        answers: list[Any] = []
        error: Exception | None = None
        try:
            pool = self._pools.open_pool(running.key, partial(_watch, [item]))
            pool.add(item, item.input)
            while item.is_wanted and not answers:
                self._step_begun = time.monotonic()
                answers = [answer for _, answer in pool.step()]
        except Unwanted:
            pass
        except BaseException as failure:
            _logger.exception("an input failed: %r", item.input)
            error = Failed(type(failure).__name__)  # not the error itself: its traceback keeps tensors alive
        self._leave(running, item, answers[0] if answers else None, error)


def _watch(members: Sequence[Item]) -> None:
    if not any(item.is_wanted for item in members):
        raise Unwanted

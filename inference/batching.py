"""A queue of the inputs of requests, and pools that compute them, each in its own thread.

A pool is a running computation that inputs join and leave between steps. Inputs with the same key share a pool.
Requests share the model: inputs begin in turn, one of each request, and pools compute in turn, for a slice of time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import Any, Protocol

_logger = logging.getLogger(__name__)

# Seconds that a pool computes before the next one has a turn. A call of the model is not interrupted.
_SLICE = 0.02
# The largest number of rows that are computed at once, and of an input that may begin even without room, so that many
# wide searches do not block a narrow one. `Batcher._is_behind` keeps many narrow ones from blocking a wide one.
ROWS, _FEW_ROWS = 240, 10


class Pool(Protocol):
    """A running computation."""

    def __len__(self) -> int:
        """Return the number of inputs in it."""

    def add(self, key: Hashable, work: Any) -> None:
        """Add an input under a key of the caller."""

    def remove(self, key: Hashable) -> None:
        """Remove an input that is no longer wanted."""

    def step(self) -> Iterable[tuple[Any, Any]]:
        """Take a step. Return the keys and answers of the finished inputs, which have left the pool."""


class Pools(Protocol):
    """Makes pools."""

    def pool_key(self, work: Any) -> Hashable:
        """Return the key of the pool for an input."""

    def rows(self, work: Any) -> int:
        """Return the number of rows of an input in the calls of the model."""

    def open_pool(self, key: Any, watch: Callable[[], None]) -> Pool:
        """Return an empty pool for inputs of this key.

        It calls `watch` before each call of the model, and does not catch [`Unwanted`]. Other pools compute meanwhile.
        """


class Unwanted(Exception):
    """The clients of the requests being computed have disconnected."""


class QueueFull(Exception):
    """The queue has no room for the inputs of a request."""


class Stopping(Exception):
    """No new inputs are accepted."""


class Failed(Exception):
    """The model failed on an input. The log has the cause."""


@dataclass(eq=False)
class _Request:
    """The queued and the running inputs of a request."""

    waiting: deque[Item] = field(default_factory=deque)
    computing: int = 0
    rows: int = 0
    number: int = 0  # in the order of arrival
    passed: int = 0  # inputs of later requests that began while all of its own waited


@dataclass(eq=False)
class Item:
    """An input in the queue or in a pool. `answer` will have its result, unless the input is abandoned."""

    work: Any
    rows: int
    request: _Request
    answer: Future[Any] = field(default_factory=Future)
    is_wanted: bool = True


@dataclass(eq=False)
class _OpenPool:
    """A pool with its inputs, and those that join before its next step."""

    key: Hashable
    pool: Pool | None = None
    members: list[Item] = field(default_factory=list)
    joining: list[Item] = field(default_factory=list)


class _Turns:
    """A lock that threads acquire in turn."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._line: deque[object] = deque()  # the first one has the lock
        self._end = 0.0

    def __enter__(self) -> None:
        place = object()
        with self._changed:
            self._line.append(place)
            self._changed.wait_for(lambda: self._line[0] is place)
        self._end = time.monotonic() + _SLICE

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._line.popleft()
            self._changed.notify_all()

    def pass_on(self) -> None:
        """Let all other threads have a turn if the slice of time is over."""
        if len(self._line) > 1 and time.monotonic() >= self._end:
            self.__exit__()
            self.__enter__()


class Batcher:
    """Computes the inputs of requests.

    A request that already has an input in a pool gets at most half of the free capacity, so that there is room for the
    next request.

    Args:
        pools: makes pools.
        max_batch_size: the largest number of inputs in all pools together.
        max_queue: the largest number of waiting inputs.
    """

    def __init__(self, pools: Pools, *, max_batch_size: int, max_queue: int):
        self._make, self._max_batch_size, self._max_queue = pools, max_batch_size, max_queue
        self._requests: deque[_Request] = deque()  # those with waiting inputs; the first is next
        self._changed, self._turns = Condition(), _Turns()
        self._open: dict[Hashable, _OpenPool] = {}
        self._is_stopping = False
        self.computing = self._rows = self._few = self._submitted = 0

    @property
    def waiting(self) -> int:
        """The number of waiting inputs."""
        with self._changed:
            return sum(len(request.waiting) for request in self._requests)

    @property
    def is_ready(self) -> bool:
        """Whether new inputs are accepted."""
        return not self._is_stopping

    def submit(self, works: Sequence[Any]) -> list[Item]:
        """Put the inputs of a request into the queue: all of them, or none if an error is raised.

        Raises:
            QueueFull: they do not fit.
            Stopping: [`stop`] was called.
        """
        with self._changed:
            if self._is_stopping:
                raise Stopping
            if self.waiting + len(works) > self._max_queue:
                raise QueueFull
            self._submitted += 1
            request = _Request(number=self._submitted)
            items = [Item(work, self._make.rows(work), request) for work in works]
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

    def stop(self) -> None:
        """Accept no more inputs. Queued inputs fail with [`Stopping`]."""
        with self._changed:
            self._is_stopping = True
            for request in self._requests:
                for item in request.waiting:
                    if item.answer.set_running_or_notify_cancel():
                        item.answer.set_exception(Stopping())
            self._requests.clear()

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
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout)

    def _begin(self) -> None:
        """Let inputs join pools, one of each request in turn, as long as there is room."""
        refused = 0
        while refused < len(self._requests):
            request = self._requests.popleft()
            if not request.waiting:
                continue
            self._requests.append(request)
            if self._has_room(request) and not self._is_behind(request):
                self._join(request.waiting.popleft())
                refused = 0
            else:
                refused += 1

    def _has_room(self, request: _Request) -> bool:
        inputs, rows, new = self._max_batch_size - self.computing, ROWS - self._rows, request.waiting[0].rows
        if not request.computing:
            return inputs > 0 and (new <= max(rows, _FEW_ROWS) or not self.computing)
        return (
            2 * (request.computing + 1) <= inputs + request.computing
            and 2 * (request.rows + new) <= rows + request.rows
        )

    def _is_behind(self, request: _Request) -> bool:
        """Return whether a request leaves its rows to an earlier one that `max_batch_size` inputs have overtaken."""
        earlier = (other for other in self._requests if other.waiting and other.number < request.number)
        if not any(other.passed >= self._max_batch_size for other in earlier):
            return False
        new = request.waiting[0].rows
        return new > _FEW_ROWS or self._few + new > ROWS // 2

    def _join(self, item: Item) -> None:
        # after this call a future cannot be cancelled
        if not item.answer.set_running_or_notify_cancel():
            return
        self._count(item, 1)
        item.request.passed = 0
        for other in self._requests:
            other.passed += other.number < item.request.number and not other.computing
        key = self._make.pool_key(item.work)
        if key not in self._open:
            self._open[key] = _OpenPool(key)
            Thread(target=self._work, args=(self._open[key],), name="weft-batches", daemon=True).start()
        self._open[key].joining.append(item)

    def _count(self, item: Item, change: int) -> None:
        self.computing += change
        item.request.computing += change
        self._rows += change * item.rows
        self._few += change * item.rows * (item.rows <= _FEW_ROWS)
        item.request.rows += change * item.rows

    def _work(self, own: _OpenPool) -> None:
        with self._turns:
            while self._step(own):
                self._turns.pass_on()
            own.pool = None

    def _step(self, own: _OpenPool) -> bool:
        """Take a step of a pool, and return whether it is still open."""
        with self._changed:
            joining, own.joining = own.joining, []
            own.members += joining
            if not own.members:
                del self._open[own.key]
                self._changed.notify_all()
                return False
        try:
            if own.pool is None:
                own.pool = self._make.open_pool(own.key, partial(self._watch, own.members))
            for item in joining:
                own.pool.add(item, item.work)
            for item in [item for item in own.members if not item.is_wanted]:
                own.pool.remove(item)
                self._leave(own, item)
            for item, answer in own.pool.step():
                self._leave(own, item, answer)
        except Exception as error:
            if not isinstance(error, Unwanted):
                _logger.exception("a step of %d inputs failed", len(own.members))
            own.pool = None
        if own.pool is None:  # any input may be the cause, so each is computed alone
            for item in list(own.members):
                self._alone(own, item)
        return True

    def _watch(self, members: Sequence[Item]) -> None:
        if not any(item.is_wanted for item in members):
            raise Unwanted
        self._turns.pass_on()

    def _leave(self, own: _OpenPool, item: Item, answer: Any = None, error: Exception | None = None) -> None:
        """Remove an input from a pool, answer it if it is wanted, and let others begin."""
        with self._changed:
            own.members.remove(item)
            self._count(item, -1)
            if item.is_wanted and error is not None:
                item.answer.set_exception(error)
            elif item.is_wanted:
                item.answer.set_result(answer)
            self._begin()

    def _alone(self, own: _OpenPool, item: Item) -> None:
        """Compute an input in a pool of its own."""
        left, error = False, None
        try:
            pool = self._make.open_pool(own.key, partial(self._watch, [item]))
            pool.add(item, item.work)
            while item.is_wanted and not left:
                for _, answer in pool.step():
                    self._leave(own, item, answer)
                    left = True
                self._turns.pass_on()
        except Unwanted:
            pass
        except Exception as failure:
            _logger.exception("an input failed: %r", item.work)
            error = Failed(type(failure).__name__)  # not the error itself: its traceback keeps tensors alive
        if not left:
            self._leave(own, item, error=error)
